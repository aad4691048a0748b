"""Addresses operators write. Refused before anything is touched, naming where it stood, what it was and what would do.

| written            | means                                                     |
|--------------------|-----------------------------------------------------------|
| `8000`             | port 8000 of this machine's loopback, `127.0.0.1`         |
| `:8000`            | port 8000 of every IPv4 address of this machine           |
| `host:8000`        | port 8000 of that IPv4 address or name                    |
| `[::1]:8000`       | port 8000 of that IPv6 address; the brackets are required |

Port 0 lets the system choose a free one. Names are not looked up here.
"""

import ipaddress
import re
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations

from llmgw.core.errors import InvalidInput

FORM = "`HOST:PORT`, `[IPv6]:PORT`, `:PORT` for every address, or `PORT` for loopback; PORT is 0 to 65535"
LOOPBACK = "127.0.0.1"
EVERY_IPV4 = "0.0.0.0"
EVERY_IPV6 = "::"
MAX_PORT = 65535
_PORT = re.compile(r"[0-9]{1,5}")
_HOST = re.compile(r"(?!-)[A-Za-z0-9-]{1,63}(?<!-)(\.(?!-)[A-Za-z0-9-]{1,63}(?<!-))*")
_SHOWN_CHARS = 80


@dataclass(frozen=True, kw_only=True)
class Address:
    """A checked host and port."""

    host: str
    """Address literal without brackets, or a name."""
    port: int

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can reach it."""
        if self.host.lower() == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def client_url(listen: Address, advertise: str, *, tls: bool = False) -> str:
    """Where clients reach what listens at `listen`: a listener on every address is reached under `advertise`."""
    host = (advertise or LOOPBACK) if listen.host in (EVERY_IPV4, EVERY_IPV6) else listen.host
    return f"{'https' if tls else 'http'}://{Address(host=host, port=listen.port)}"


def check_advertised(text: str, *, source: str) -> None:
    """Raise InvalidInput unless `text` is a name or an address alone, under which others reach this machine."""
    try:
        if _host(f"[{text}]" if ":" in text else text, text, source) in (EVERY_IPV4, EVERY_IPV6):
            raise _refused(text, "it is every address", source)
    except InvalidInput:
        raise InvalidInput(
            f"{text[:_SHOWN_CHARS]!r} is not the name or address of a machine: write it alone, without scheme, port or "
            "brackets, as in gateway.lan, 10.0.0.7 or fd00::7",
            field=source,
        ) from None


def check_apart(addresses: Mapping[str, Address], *, source: str) -> None:
    """Raise InvalidInput when two of the listeners, by the key that names each, would want the same port."""
    for (one, first), (other, second) in combinations(addresses.items(), 2):
        everywhere = {EVERY_IPV4, EVERY_IPV6}.intersection((first.host, second.host))
        if first.port and first.port == second.port and (first.host == second.host or everywhere):
            raise InvalidInput(f"{one} and {other} are both on port {first.port}: give each its own", field=source)


def parse_listen(text: str, *, source: str) -> Address:
    """The address in `text`.

    Raises InvalidInput whose field is `source`: `--listen`, `LLMGW_LISTEN`, `server.yaml: listen`.
    """
    if text == "":
        raise _refused(text, "it is empty", source)
    if "://" in text:
        raise _refused(text, "it is a URL, and an address has no scheme", source)
    if any(char.isspace() or not char.isprintable() for char in text):
        raise _refused(text, "it holds a blank or a control character", source)
    if text.startswith(("/", "unix:")):
        raise _refused(text, "it is a path, and this listens on a TCP port", source)
    if _PORT.fullmatch(text):
        return Address(host=LOOPBACK, port=_port(text, text, source))
    host, colon, port = text.rpartition(":")
    if not colon or text.endswith("]"):
        raise _refused(text, "it has no port", source)
    if "]" in port:
        raise _refused(text, "between ] and the port stands a colon", source)
    return Address(host=_host(host, text, source), port=_port(port, text, source))


def _port(port: str, text: str, source: str) -> int:
    if not port:
        raise _refused(text, "it has no port", source)
    if not _PORT.fullmatch(port):
        raise _refused(text, f"{port[:_SHOWN_CHARS]!r} is not a port", source)
    if int(port) > MAX_PORT:
        raise _refused(text, f"port {int(port)} is above {MAX_PORT}", source)
    return int(port)


def _host(host: str, text: str, source: str) -> str:
    if host == "":
        return EVERY_IPV4
    if host.startswith("[") and host.endswith("]"):
        try:
            return str(ipaddress.IPv6Address(host[1:-1]))
        except ValueError:
            raise _refused(text, f"{host[:_SHOWN_CHARS]} is not an IPv6 address", source) from None
    if ":" in host:
        raise _refused(text, "an IPv6 address stands in brackets", source)
    if re.fullmatch(r"[0-9.]+", host):
        try:
            return str(ipaddress.IPv4Address(host))
        except ValueError:
            raise _refused(text, f"{host[:_SHOWN_CHARS]} is not an IPv4 address", source) from None
    if len(host) > 253 or not _HOST.fullmatch(host):
        raise _refused(text, f"{host[:_SHOWN_CHARS]!r} is not a host", source)
    return host


def _refused(text: str, why: str, source: str) -> InvalidInput:
    return InvalidInput(f"{text[:_SHOWN_CHARS]!r} is not an address to listen on: {why}; write {FORM}", field=source)
