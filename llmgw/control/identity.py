"""What a server makes once, at its first start, and keeps: its id, the cluster secret, its admin token."""

import os
import secrets
import uuid
from collections.abc import Callable
from pathlib import Path

from llmgw.core.errors import InvalidInput
from llmgw.core.layout import ServerLayout, check_own
from llmgw.core.secrets import CLUSTER_SECRET_BYTES


def prepare(layout: ServerLayout) -> None:
    """Make the data directory and those under it, private to the server's account; raises InvalidInput."""
    check_own(layout.data)
    try:
        layout.data.mkdir(parents=True, exist_ok=True, mode=0o700)
        for directory in (layout.data, layout.run, layout.secrets, layout.log, layout.mirror, layout.spool):
            directory.mkdir(exist_ok=True, mode=0o700)
            directory.chmod(0o700)
    except OSError as error:
        raise InvalidInput(f"{error.filename} cannot be made: {error.strerror}", field="data") from error


def server_id(layout: ServerLayout) -> str:
    """Identity of this data directory; owns the lease."""
    return _once(layout.server_id, lambda: f"{uuid.uuid4()}\n".encode()).decode().strip()


def cluster_secret(layout: ServerLayout) -> bytes:
    """The secret from which engine keys and key digests are derived."""
    secret = _once(layout.cluster_secret, lambda: secrets.token_bytes(CLUSTER_SECRET_BYTES))
    if len(secret) != CLUSTER_SECRET_BYTES:
        raise InvalidInput(f"{layout.cluster_secret} holds {len(secret)} bytes, not {CLUSTER_SECRET_BYTES}: restore it")
    return secret


def admin_token(layout: ServerLayout) -> Path:
    """The file of the server's own bearer token."""
    _once(layout.admin_token, lambda: f"at-{secrets.token_urlsafe(32)}\n".encode())
    return layout.admin_token


def _once(path: Path, make: Callable[[], bytes]) -> bytes:
    """The file's content; made whole, 0600, when it is not there."""
    try:
        return path.read_bytes()
    except FileNotFoundError:
        pass
    content = make()
    part = path.with_name(path.name + ".part")
    part.unlink(missing_ok=True)
    descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    part.replace(path)
    return content
