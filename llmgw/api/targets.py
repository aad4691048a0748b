"""Which server a client talks to: a flag, the environment, the chosen profile, the system's socket, the demo's."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit

import msgspec

from llmgw.api.problems import Unreachable, Usage
from llmgw.core.errors import InvalidInput

SYSTEM_SOCKET = Path("/run/llmgw/admin.sock")
"""Where a server started as a system service has its socket."""
DEMO_SOCKET = Path(".local/share/llmgw/demo/admin.sock")
"""The demo's socket under the home directory."""
PROFILES = Path("llmgw/profiles.yaml")
"""Under `XDG_CONFIG_HOME`, `~/.config` by default."""
MAX_TOKEN_BYTES = 4096

_FORMS = "unix:/path/admin.sock, a path, or http://HOST:PORT"


@dataclass(frozen=True, kw_only=True)
class ServerTarget:
    """One server's admin API."""

    socket: Path | None = None
    host: str = ""
    port: int = 0
    https: bool = False
    token: str | None = None

    def __str__(self) -> str:
        if self.socket is not None:
            return f"unix:{self.socket}"
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'https' if self.https else 'http'}://{host}:{self.port}"


class Profile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A server one has a name for."""

    server: str
    token_file: str = ""


class Profiles(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`~/.config/llmgw/profiles.yaml`."""

    current: str = ""
    servers: dict[str, Profile] = {}


def parse_server(text: str, *, source: str) -> ServerTarget:
    """The target `text` names; raises Usage naming `source`, what was given and the forms wanted."""
    if text.startswith("unix:"):
        path = text.removeprefix("unix:")
        path = path.removeprefix("//") if path.startswith("///") else path
        if path:
            return ServerTarget(socket=Path(unquote(path)).expanduser())
    elif text.startswith(("/", "./", "../", "~")):
        return ServerTarget(socket=Path(text).expanduser())
    else:
        try:
            url = urlsplit(text)
            port = url.port
        except ValueError:
            raise Usage(f"{source}: {text[:200]!r} is not a server; give {_FORMS}") from None
        plain = url.path in ("", "/") and not (url.query or url.fragment or url.username or url.password)
        if url.scheme in ("http", "https") and url.hostname and plain:
            https = url.scheme == "https"
            return ServerTarget(host=url.hostname, port=port or (443 if https else 80), https=https)
    raise Usage(f"{source}: {text[:200]!r} is not a server; give {_FORMS}")


def read_token(path: Path) -> str:
    """The token on the first line of `path`; raises Usage."""
    try:
        with path.open("rb") as file:
            data = file.read(MAX_TOKEN_BYTES)
    except OSError as error:
        raise Usage(f"token file {path}: {error.strerror or error}") from error
    lines = data.splitlines()
    token = lines[0].strip() if lines else b""
    if not token or not token.isascii() or b" " in token:
        raise Usage(f"token file {path}: its first line is not a token")
    return token.decode()


def resolve(*, server: str | None, token_file: str | None, environ: Mapping[str, str] | None = None) -> ServerTarget:
    """The server to talk to; raises Usage for a name that is none, Unreachable without any."""
    environ = os.environ if environ is None else environ
    target, profile_token = _choose(server, environ)
    token_path = token_file or environ.get("LLMGW_TOKEN_FILE") or profile_token
    if not token_path or target.socket is not None:
        return target
    return ServerTarget(
        host=target.host, port=target.port, https=target.https, token=read_token(Path(token_path).expanduser())
    )


def _choose(server: str | None, environ: Mapping[str, str]) -> tuple[ServerTarget, str]:
    if server is not None:
        return parse_server(server, source="--server"), ""
    if environ.get("LLMGW_SERVER"):
        return parse_server(environ["LLMGW_SERVER"], source="LLMGW_SERVER"), ""
    home = Path(environ.get("HOME") or "~").expanduser()
    path = Path(environ.get("XDG_CONFIG_HOME") or home / ".config") / PROFILES
    if path.exists():
        profile = _current_profile(path)
        if profile is not None:
            return parse_server(profile.server, source=str(path)), profile.token_file
    for candidate in (SYSTEM_SOCKET, home / DEMO_SOCKET):
        if candidate.exists():
            return ServerTarget(socket=candidate), ""
    raise Unreachable(
        f"no server is named and none is here: {SYSTEM_SOCKET} and {home / DEMO_SOCKET} are not there; "
        "give --server, or set LLMGW_SERVER"
    )


def _current_profile(path: Path) -> Profile | None:
    # YAML costs 20 ms to import; only those with a profile file pay it.
    from llmgw.core.yamlfile import read_yaml

    try:
        profiles = read_yaml(path, Profiles)
    except InvalidInput as error:
        raise Usage(error.message) from error
    if not profiles.current:
        return None
    if profiles.current not in profiles.servers:
        known = ", ".join(sorted(profiles.servers)) or "none"
        raise Usage(f"{path}: current is {profiles.current!r}, which is not among servers ({known})")
    return profiles.servers[profiles.current]
