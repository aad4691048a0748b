"""The client port's sockets: the address is proved free before it is shared, then each router gets its own."""

import contextlib
import errno
import socket
from dataclasses import dataclass

import trio

from llmgw.core.errors import Conflict, InvalidInput

BACKLOG = 4096
"""Connections that may wait for a router: at 100, 27 of 3,000 made at once waited a second for their retry."""


@dataclass(frozen=True, kw_only=True)
class Address:
    """Where to listen, resolved. `text` is what the operator wrote."""

    family: int
    host: str
    port: int
    text: str

    @property
    def both_families(self) -> bool:
        """Whether IPv4 clients are served too: the wildcard `::` means every address of the machine."""
        return self.family == socket.AF_INET6 and self.host == "::"


async def resolve(host: str, port: int) -> Address:
    """The address meant by a name, an IPv4 or IPv6 address, or an empty host (all of IPv4). Raises InvalidInput."""
    text = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    try:
        found = await trio.socket.getaddrinfo(host or "0.0.0.0", port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except OSError as error:
        raise InvalidInput(f"cannot listen on {text}: {error.strerror or error}") from error
    except (OverflowError, UnicodeError) as error:
        raise InvalidInput(f"cannot listen on {text}: {error}") from error
    family, _, _, _, address = found[0]
    return Address(family=family, host=str(address[0]), port=port, text=text)


def check_free(address: Address) -> None:
    """Raises Conflict when another program listens there; without this, SO_REUSEPORT would share its port silently."""
    with contextlib.closing(_bind(address, address.port, shared=False)):
        pass


def check_possible(address: Address) -> None:
    """Raises InvalidInput for an address that is not this machine's, Conflict for one that others have to themselves.

    Routers that outlived their server may serve there: they share it.
    """
    with contextlib.closing(_bind(address, address.port, shared=True)):
        pass


def open_listener(address: Address, port: int) -> socket.socket:
    """A socket listening at `address`, port `port`, beside others of this user (SO_REUSEPORT). Raises Conflict."""
    sock = _bind(address, port, shared=True)
    sock.listen(BACKLOG)
    sock.setblocking(False)
    return sock


def bound_to(listener: socket.socket, address: Address) -> bool:
    """Whether a socket handed over is the one wanted."""
    host, port = listener.getsockname()[:2]
    return listener.family == address.family and host == address.host and address.port in (0, port)


def _bind(address: Address, port: int, *, shared: bool) -> socket.socket:
    sock = socket.socket(address.family, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    try:
        # Connections of an earlier run that linger in TIME_WAIT are no reason not to start.
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if shared:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        if address.family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0 if address.both_families else 1)
        sock.bind((address.host, port))
    except OSError as error:
        sock.close()
        if error.errno == errno.EADDRINUSE:
            raise Conflict(
                f"cannot listen on {address.text}: another program listens there; stop it or choose another port"
            ) from error
        raise InvalidInput(f"cannot listen on {address.text}: {error.strerror}") from error
    except OverflowError as error:
        sock.close()
        raise InvalidInput(f"cannot listen on {address.text}: a port is 0 to 65535") from error
    return sock
