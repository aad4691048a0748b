"""Ports for engines: one nobody listens on now, and none that another shard of this node was given."""

import errno
import socket
import zlib
from collections.abc import Collection

from llmgw.core.addresses import LOOPBACK
from llmgw.core.errors import Unavailable


def free_port(host: str, ports: range, *, taken: Collection[int], hint: str) -> int:
    """A port of `ports` that can be bound on `host`; raises Unavailable when there is none, or the host is not ours.

    The search begins at a place that depends on `hint` (the shard's id), so that a shard tends to keep its port and
    two agents on one machine seldom try the same. Another process may still take it first; then the engine ends with
    "address in use" and is started again with another.
    """
    first = zlib.crc32(hint.encode()) % len(ports)
    for offset in range(len(ports)):
        port = ports[(first + offset) % len(ports)]
        # An engine that knows no key listens on loopback instead, where another program may have the port.
        if port not in taken and _can_bind(host, port) and _can_bind(LOOPBACK, port):
            return port
    raise Unavailable(f"all ports from {ports[0]} to {ports[-1]} are in use on {host}; widen engine_ports")


def free_ports(host: str, ports: range, count: int, *, taken: Collection[int], hint: str) -> tuple[int, ...]:
    """So many ports, found as `free_port` finds one; raises Unavailable."""
    found: list[int] = []
    for _ in range(count):
        found.append(free_port(host, ports, taken={*taken, *found}, hint=hint))
    return tuple(found)


def _can_bind(host: str, port: int) -> bool:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        # As engines do: a connection of an earlier engine in TIME_WAIT is no hindrance, a listener is.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            if error.errno in (errno.EADDRINUSE, errno.EACCES):
                return False
            raise Unavailable(
                f"engines cannot listen on {host}: {error.strerror}; correct engine_host or address in agent.yaml"
            ) from error
    return True
