"""What a node knows of itself between starts: `node.json`, replaced as a whole, so a crash leaves the old or new."""

import contextlib
import json
import os
from pathlib import Path

import msgspec

from llmgw.core.errors import LlmgwError
from llmgw.core.layout import AgentLayout

MAX_SERVERS = 64
MAX_TEXT = 512


class IdentityError(LlmgwError):
    """The node has not joined a cluster, or its files are damaged; the sentence says what to do."""

    code = "identity"


class Identity(msgspec.Struct, frozen=True, kw_only=True):
    """A node's place in its cluster."""

    node: str
    cluster_id: str
    servers: tuple[str, ...]
    """`host:port` of every control plane's agent port."""
    mirror_url: str = ""
    epoch: int = 0
    """Highest leader's epoch seen; orders of an older one are refused."""


def load_identity(layout: AgentLayout) -> Identity:
    """The node's identity; raises IdentityError when it has not joined or the file is damaged."""
    try:
        identity = msgspec.json.decode(layout.identity.read_bytes(), type=Identity)
    except FileNotFoundError as error:
        raise IdentityError(
            f"this machine has not joined a cluster ({layout.identity} is missing): "
            "run `llmgw agent join TOKEN URL` with what `llmgw ctl join-token` printed"
        ) from error
    except (OSError, msgspec.DecodeError) as error:
        raise IdentityError(f"{layout.identity}: {error}: join again with a new join token") from error
    if not identity.servers:
        raise IdentityError(f"{layout.identity}: no server is listed: join again with a new join token")
    return identity


def save_identity(layout: AgentLayout, identity: Identity) -> None:
    """Replace `node.json`; raises OSError."""
    text = json.dumps(msgspec.to_builtins(identity), indent=2) + "\n"
    write_file(layout.identity, text.encode(), mode=0o644)


def write_file(path: Path, content: bytes, *, mode: int) -> None:
    """Replace a file as a whole and durably; raises OSError."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.new")
    with contextlib.suppress(FileNotFoundError):
        temporary.unlink()
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)


def split_address(address: str, *, default_port: int = 9443) -> tuple[str, int]:
    """`host:port`, `[v6]:port`, `https://host:port` as a pair; raises ValueError with a sentence."""
    text = address.strip().removeprefix("https://").rstrip("/")
    if "://" in text:
        raise ValueError(f"{address[:100]!r} is not an address: write HOST:PORT or https://HOST:PORT")
    host, colon, port = text.rpartition(":")
    if not colon or (text.startswith("[") and text.endswith("]")):
        host, port = text, str(default_port)
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        raise ValueError(f"{address[:100]!r}: write an IPv6 address in brackets, as in [fd00::1]:{default_port}")
    if (
        not host
        or not port.isascii()
        or not port.isdigit()
        or not 0 < int(port[:6]) < 65536
        or set(host) & set("/@ ?#")
    ):
        raise ValueError(f"{address[:100]!r} is not an address: write HOST:PORT, as in control:{default_port}")
    return host, int(port)
