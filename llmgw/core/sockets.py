"""Listening sockets, TCP's and unix', and unix socket paths of any length.

A path over the kernel's 108 bytes goes through its directory's descriptor.
"""

import contextlib
import os
import socket
import stat
from collections.abc import Iterator
from pathlib import Path

SUN_PATH_SAFE = 100


@contextlib.contextmanager
def short_path(path: Path) -> Iterator[str]:
    """`path` itself, or an equal one short enough for `bind` and `connect` while the context is open."""
    if len(os.fsencode(path)) <= SUN_PATH_SAFE:
        yield str(path)
        return
    directory = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{directory}/{path.name}"
    finally:
        os.close(directory)


def listen_unix(path: Path, *, backlog: int = 1024) -> socket.socket:
    """A listening stream socket at `path`, replacing a dead one. Non-blocking, mode 0600.

    The caller holds the directory's lock, so whatever socket stands at `path` has no living owner.
    """
    with contextlib.suppress(FileNotFoundError):
        if not stat.S_ISSOCK(path.lstat().st_mode):
            raise FileExistsError(f"{path} is there and is not a socket")
        path.unlink()
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    try:
        with short_path(path) as name:
            sock.bind(name)
        path.chmod(0o600)
        sock.listen(backlog)
        sock.setblocking(False)
    except BaseException:
        sock.close()
        raise
    return sock


def listen_tcp(host: str, port: int, *, backlog: int) -> socket.socket:
    """A listening stream socket at a name or an address, shared with no other process. Non-blocking; raises OSError."""
    family, kind, protocol, _, where = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[
        0
    ]
    sock = socket.socket(family, kind | socket.SOCK_CLOEXEC, protocol)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(where)
        sock.listen(backlog)
        sock.setblocking(False)
    except BaseException:
        sock.close()
        raise
    return sock


def connect_unix(path: Path, *, timeout_s: float) -> socket.socket:
    """A connected blocking stream socket; raises OSError."""
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    try:
        sock.settimeout(timeout_s)
        with short_path(path) as name:
            sock.connect(name)
    except BaseException:
        sock.close()
        raise
    return sock
