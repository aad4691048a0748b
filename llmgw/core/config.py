"""`server.yaml`, typed. A key that is not here is refused by name, with file and line; every key has its sentence.

The sentences are the field docstrings below; `docs/reference/config.md` is generated from them.
"""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal, TypeVar
from urllib.parse import urlsplit

import msgspec

from llmgw.core.addresses import Address, check_advertised, check_apart, parse_listen
from llmgw.core.errors import InvalidInput
from llmgw.core.proxies import parse_networks
from llmgw.core.yamlfile import read_yaml

T = TypeVar("T")
Role = Literal["viewer", "operator", "admin"]

MAX_ROUTERS = 64
MAX_HISTORY_MB = 4096
LISTEN_VARIABLES = {"listen": "LLMGW_LISTEN", "admin": "LLMGW_ADMIN"}
"""Environment variables that stand in for a key of the file."""


class AdminToken(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One more bearer token for the admin API."""

    name: str
    """Name under which its changes stand in the audit (`token:NAME`)."""
    role: Role
    """What it may do: `viewer` looks, `operator` changes models and nodes, `admin` also keys and settings."""
    token_file: str
    """File with the token on its first line, 16 characters at least, readable by its owner alone."""


class ClientTls(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """TLS on the client API's port. Both files are looked at every few seconds and read again when they change."""

    certificate: str
    """PEM file: the certificate clients are shown, then those that lead to its authority."""
    key: str
    """PEM file (0600): the certificate's key, without a password."""


class ClientConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The client API."""

    tls: ClientTls | None = None
    """Certificate and key; with them the port speaks HTTPS and nothing else. Empty is plain HTTP."""
    trusted_proxies: tuple[str, ...] = ()
    """Addresses and networks (`10.0.0.7`, `10.0.0.0/24`, `fd00::/64`) of proxies in front of the client port. What they
    say in `X-Forwarded-For` is believed; from anybody else it is dropped."""


class HistoryConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the server remembers of figures, for charts."""

    memory_mb: int = 160
    """Megabytes that an hour by five seconds and a day by the minute may take, 0 to 4096; 0 remembers nothing. Where it
    is too little for all cards, figures worth least are left out for all of them."""


class ServerConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Configuration of `llmgw server`."""

    data: str
    """Directory in which everything of this control plane lives. A relative path is taken from the file's directory;
    `~` is the account's home."""
    listen: str = "127.0.0.1:8080"
    """Address of the client API. `LLMGW_LISTEN` and `--listen` stand in for it."""
    client: ClientConfig = ClientConfig()
    """How the client API is spoken, `client: {tls: {certificate: FILE, key: FILE}}` for HTTPS, and which proxies in
    front of it are believed."""
    admin: str = "127.0.0.1:9090"
    """Loopback address of the admin API and `/metrics`. `LLMGW_ADMIN` and `--admin` stand in for it."""
    agents: str = "0.0.0.0:9443"
    """Address on which agents connect, by mutual TLS."""
    mirror: str = "0.0.0.0:9470"
    """Address from which agents fetch weights."""
    advertise: str = ""
    """Name or address under which nodes reach this machine; its host name when empty."""
    routers: int = 1
    """Router processes that share the client port, 1 to 64."""
    database: str = ""
    """`postgresql://…` of your own server. Empty keeps an embedded PostgreSQL under `data`."""
    database_file: str = ""
    """File (0600) that holds the database's URL, so that its password stands in no other file."""
    postgres_account: str = ""
    """Account that runs the embedded PostgreSQL when the server runs as root and user namespaces are not available."""
    hf_endpoint: str = "https://huggingface.co"
    """Hub that `hf:` sources are fetched from."""
    hf_token_file: str = ""
    """File (0600) that holds the hub's token, for gated repositories."""
    allow_pickle: bool = False
    """Whether weights in pickle files may be served. They can run code on the node that loads them."""
    wheelhouse: str = ""
    """Directory below which the mirror hands wheels to nodes, for sites without a package index: `/srv/wheels` here
    lets `wheelhouse: mirror:/srv/wheels/2026-11` stand in agent.yaml. Empty hands out none."""
    admin_users: dict[str, Role] = {}
    """Roles on `admin.sock` by account name of this machine. Root and the server's own account are admins."""
    admin_tokens: tuple[AdminToken, ...] = ()
    """Further bearer tokens of the admin API, besides `admin.token` in `data`."""
    history: HistoryConfig = HistoryConfig()
    """What is remembered for charts, `history: {memory_mb: 160}`."""
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """Least severity that is logged."""

    @property
    def data_path(self) -> Path:
        """`data` as a path; absolute once loaded."""
        return Path(self.data)

    def address(self, key: Literal["listen", "admin", "agents", "mirror"]) -> Address:
        """The checked address of one of the four listeners."""
        return parse_listen(getattr(self, key), source=key)


def load_config(path: Path, type_: type[T]) -> T:
    """The YAML file at `path` as a `type_`; raises InvalidInput naming file, line and key."""
    return read_yaml(path, type_)


def path_from(base: Path, text: str, *, source: str) -> str:
    """An operator's path as an absolute one: relative ones are from `base`, `~` is the account's home.

    Raises InvalidInput whose field is `source` for a home that nobody has.
    """
    try:
        return str(base / Path(text).expanduser())
    except RuntimeError:
        raise InvalidInput(f"{text[:80]!r} begins with the home of an account that is not here", field=source) from None


def load_server_config(path: Path, environ: Mapping[str, str] | None = None) -> ServerConfig:
    """`server.yaml` with its environment, all checked, its paths absolute; raises InvalidInput naming the source.

    Nothing but the file itself is read: whether addresses are free and files are there is the server's to find out.
    """
    environ = os.environ if environ is None else environ
    config = load_config(path, ServerConfig)
    sources = dict.fromkeys(("listen", "admin", "agents", "mirror"), str(path))
    changes: dict[str, object] = {}
    for key, variable in LISTEN_VARIABLES.items():
        if variable in environ:
            changes[key], sources[key] = environ[variable], variable
    base = path.absolute().parent
    for key in ("data", "database_file", "hf_token_file", "wheelhouse"):
        if getattr(config, key):
            changes[key] = path_from(base, getattr(config, key), source=f"{path}: {key}")
    changes["admin_tokens"] = tuple(
        msgspec.structs.replace(
            token, token_file=path_from(base, token.token_file, source=f"{path}: admin_tokens.{token.name}")
        )
        for token in config.admin_tokens
    )
    if (tls := config.client.tls) is not None:
        here = ClientTls(
            certificate=path_from(base, tls.certificate, source=f"{path}: client.tls.certificate"),
            key=path_from(base, tls.key, source=f"{path}: client.tls.key"),
        )
        changes["client"] = msgspec.structs.replace(config.client, tls=here)
    config = msgspec.structs.replace(config, **changes)
    _check(config, sources, str(path))
    return config


def _check(config: ServerConfig, sources: Mapping[str, str], where: str) -> None:
    for key, source in sources.items():
        parse_listen(getattr(config, key), source=source if source in LISTEN_VARIABLES.values() else f"{source}: {key}")
    if not parse_listen(config.admin, source=sources["admin"]).is_loopback:
        raise InvalidInput(
            f"{config.admin!r} is not loopback; the admin API is reached from elsewhere through SSH",
            field=f"{sources['admin']}: admin",
        )
    listeners = {key: parse_listen(getattr(config, key), source=source) for key, source in sources.items()}
    check_apart(listeners, source=where)
    if config.advertise:
        check_advertised(config.advertise, source=f"{where}: advertise")
    parse_networks(config.client.trusted_proxies, source=f"{where}: client.trusted_proxies")
    if not config.data:
        raise InvalidInput("is empty; name the directory to keep everything in", field=f"{where}: data")
    if not 0 <= config.history.memory_mb <= MAX_HISTORY_MB:
        raise InvalidInput(
            f"{config.history.memory_mb} is outside 0 to {MAX_HISTORY_MB}", field=f"{where}: history.memory_mb"
        )
    if not 1 <= config.routers <= MAX_ROUTERS:
        raise InvalidInput(f"{config.routers} is outside 1 to {MAX_ROUTERS}", field=f"{where}: routers")
    if config.database and config.database_file:
        raise InvalidInput("stands beside database_file; give one of them", field=f"{where}: database")
    if config.database and not _is_url(config.database, ("postgresql", "postgres")):
        raise InvalidInput("is not a postgresql:// URL", field=f"{where}: database")
    if not _is_url(config.hf_endpoint, ("http", "https")):
        raise InvalidInput(
            f"{config.hf_endpoint[:80]!r} is not the address of a hub: write https://HOST",
            field=f"{where}: hf_endpoint",
        )
    names = [token.name for token in config.admin_tokens]
    if len(set(names)) != len(names):
        raise InvalidInput("two tokens have the same name", field=f"{where}: admin_tokens")


def _is_url(text: str, schemes: Sequence[str]) -> bool:
    """Whether it is a URL of one of the schemes. A database's may leave the host to its query."""
    try:
        url = urlsplit(text)
        return url.scheme in schemes and (bool(url.hostname) or "postgres" in url.scheme)
    except ValueError:
        return False
