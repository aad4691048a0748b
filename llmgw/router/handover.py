"""A router's listening socket belongs to the machine, not to a process: whoever supervises it may have it.

A connection to the router's unix socket, made by its own user or root, is answered with one JSON line that says which
router this is, with the listening descriptor beside it (SCM_RIGHTS), and closed. Answering is also the sign that the
router's loop turns.
"""

import array
import contextlib
import logging
import os
import socket
import struct
from pathlib import Path

import msgspec
import trio

from llmgw.core.layout import ServerLayout
from llmgw.core.sockets import listen_unix, short_path

_MAX_LINE_BYTES = 4096
_SEND_S = 5.0
"""A peer that does not take the line within this time is left."""
_UCRED = struct.Struct("3i")

_log = logging.getLogger(__name__)


class RouterRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A running router, in `run/router-N.json` and over its socket."""

    pid: int
    start_time: int
    """Clock ticks after boot; with pid and boot id it names one process for ever."""
    boot_id: str
    port: int
    version: str
    index: int


def read_record(layout: ServerLayout, index: int) -> RouterRecord | None:
    """What router `index` wrote of itself; none when there is no readable file."""
    try:
        return msgspec.json.decode(layout.router_state(index).read_bytes(), type=RouterRecord)
    except (OSError, msgspec.DecodeError):
        return None


def write_record(layout: ServerLayout, record: RouterRecord) -> None:
    """Replace `run/router-N.json` whole; raises OSError."""
    path = layout.router_state(record.index)
    temporary = path.with_name(f"{path.name}.{record.pid}.tmp")
    temporary.write_bytes(msgspec.json.encode(record))
    temporary.chmod(0o600)
    temporary.replace(path)


def forget_record(layout: ServerLayout, record: RouterRecord) -> None:
    """Remove the file, unless another process has taken the router's place in it."""
    if read_record(layout, record.index) == record:
        with contextlib.suppress(FileNotFoundError):
            layout.router_state(record.index).unlink()


async def serve_handover(
    path: Path,
    listener: socket.socket,
    record: RouterRecord,
    *,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Service: hands out `listener` at `path`; removes the socket at its end, unless another process replaced it."""
    door = listen_unix(path, backlog=16)
    inode = _inode(path)
    line = msgspec.json.encode(record) + b"\n"
    try:
        with trio.socket.from_stdlib_socket(door) as accepting:
            task_status.started()
            while True:
                try:
                    connection, _ = await accepting.accept()
                except OSError as error:
                    # Out of descriptors, or the peer is gone already: neither ends the service.
                    _log.warning("a supervisor could not be answered: %s", error)
                    await trio.sleep(0.1)
                    continue
                with connection, contextlib.suppress(OSError), trio.move_on_after(_SEND_S):
                    await _answer(connection, listener, line)
    finally:
        if _inode(path) == inode:
            os.unlink(path)


async def ask_router(path: Path, *, timeout_s: float) -> tuple[RouterRecord, socket.socket]:
    """The router behind `path` and a descriptor of its listening socket, which the caller closes.

    Raises OSError (TimeoutError too) when nothing answers sensibly within `timeout_s`.
    """
    with trio.move_on_after(timeout_s), trio.socket.socket(trio.socket.AF_UNIX, trio.socket.SOCK_STREAM) as sock:
        with short_path(path) as name:
            await sock.connect(name)
        data, ancillary, _, _ = await sock.recvmsg(_MAX_LINE_BYTES, socket.CMSG_SPACE(4 * 4))
        received = _descriptors(ancillary)
        try:
            record = msgspec.json.decode(data, type=RouterRecord)
            if len(received) != 1:
                raise OSError(f"{path} handed over {len(received)} descriptors instead of one")
        except (msgspec.DecodeError, OSError) as error:
            for descriptor in received:
                os.close(descriptor)
            raise OSError(f"{path} gave no sensible answer: {error}") from error
        listener = socket.socket(fileno=received[0])
        listener.set_inheritable(False)
        return record, listener
    raise TimeoutError(f"{path} gave no answer within {timeout_s:g} s")


async def _answer(connection: trio.socket.SocketType, listener: socket.socket, line: bytes) -> None:
    _, uid, _ = _UCRED.unpack(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size))
    if uid not in (0, os.geteuid()):
        _log.warning("user %d asked for the listening socket and was refused", uid)
        return
    rights = (socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [listener.fileno()]))
    await connection.sendmsg([line], [rights])


def _inode(path: Path) -> int | None:
    with contextlib.suppress(FileNotFoundError):
        return os.stat(path).st_ino
    return None


def _descriptors(ancillary: list[tuple[int, int, bytes]]) -> list[int]:
    found = array.array("i")
    for level, kind, data in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            found.frombytes(data[: len(data) - len(data) % found.itemsize])
    return list(found)
