"""What all shards of a replica have in common: a directory of the same path on every node, and a token.

The directory has the engine's sockets, and the weights under one name. It is named after the replica, so that two
replicas on a node never meet in it, and short, because sockets' paths are.
"""

import hashlib
import hmac
import os
import shutil
import stat
from pathlib import Path

from llmgw.core.errors import Unavailable

ROOT = Path("/tmp")
"""Every node has it; what is there already and not ours is never taken over."""
WEIGHTS = "model"


def token_of(key: str) -> str:
    """What a replica's shards know one another by, from its key: whoever overhears one has not the other."""
    return hmac.digest(key.encode(), b"llmgw/shards", hashlib.sha256).hex()


def shared_directory(replica_id: str) -> Path:
    """Where the replica's directory is, on this node as on the others."""
    return ROOT / f"llmgw-{hashlib.sha256(replica_id.encode()).hexdigest()[:16]}"


def make_shared(replica_id: str, weights: Path | None) -> Path:
    """Make it, open to this account alone, with a link to the weights; raises Unavailable. Blocking."""
    directory = shared_directory(replica_id)
    try:
        directory.mkdir(mode=0o700, exist_ok=True)
        found = directory.lstat()
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o077:
            raise Unavailable(f"{directory} is there and is not this account's alone: remove it")
        if weights is not None:
            fresh = directory / f".{WEIGHTS}.{os.getpid()}"
            fresh.unlink(missing_ok=True)
            fresh.symlink_to(weights)
            fresh.rename(directory / WEIGHTS)
    except OSError as error:
        raise Unavailable(f"{directory} cannot be made: {error.strerror}") from error
    return directory


def remove_shared(replica_id: str) -> None:
    """Remove it with all that an engine left there; the weights themselves stay. Blocking."""
    directory = shared_directory(replica_id)
    if not directory.is_symlink():
        shutil.rmtree(directory, ignore_errors=True)
