"""TLS of the client port: as `run/client-tls.json` has it, followed while the router runs, without ending a connection.

Who connected keeps the certificate it was shown; whoever connects next is shown the newest one that could be read. A
port that is meant to be secure is never served in the clear: without a usable certificate it turns clients away.
"""

import logging
import os
import signal
import ssl
from pathlib import Path

import msgspec
import trio

from llmgw.router.tls import TlsFailure, server_context

LOOK_S = 2.0
"""How often the files are looked at; SIGHUP looks at once."""

log = logging.getLogger(__name__)
_Marks = tuple[tuple[int, int, int], ...]


class ClientTlsFiles(msgspec.Struct, frozen=True, kw_only=True):
    """`run/client-tls.json`: absolute paths of the certificate and its key."""

    certificate: str
    key: str


class FrontTls:
    """Whether clients speak TLS, and the context for the next one."""

    def __init__(self, path: Path | None) -> None:
        """Follow the file at `path`; none is plain HTTP for good."""
        self._path = path
        self._files: ClientTlsFiles | None = None
        self._marks: _Marks | None = None
        self._trouble = ""
        self.on = False
        """Whether the port is a secure one."""
        self.context: ssl.SSLContext | None = None
        """TLS for the next client; none while there is no usable certificate, or no TLS."""
        self.look()

    def look(self) -> None:
        """Take over what changed. Whatever cannot be read leaves things as they are."""
        if self._path is None:
            return
        try:
            files = msgspec.json.decode(self._path.read_bytes(), type=ClientTlsFiles)
        except FileNotFoundError:
            if self.on:
                log.info("the client port speaks plain HTTP from here on")
            self.on, self.context, self._files, self._marks = False, None, None, None
            return
        except (OSError, msgspec.DecodeError) as error:
            self.on = True
            self._complain(f"{self._path} cannot be read: {error}")
            return
        self.on = True
        marks = _marks(files)
        if files == self._files and marks == self._marks:
            return
        self._files, self._marks = files, marks
        try:
            self.context = server_context(Path(files.certificate), Path(files.key))
        except TlsFailure as error:
            self._complain(str(error))
        else:
            self._trouble = ""
            log.info("clients are shown the certificate in %s", files.certificate)

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Service: follow the files, and look at once on SIGHUP."""
        if self._path is None:
            task_status.started()
            return
        with trio.open_signal_receiver(signal.SIGHUP) as hang_ups:
            task_status.started()
            while True:
                with trio.move_on_after(LOOK_S):
                    await hang_ups.__anext__()
                self.look()

    def _complain(self, trouble: str) -> None:
        if trouble != self._trouble:
            self._trouble = trouble
            then = "the one read before stays" if self.context else "clients are turned away until it can be used"
            log.error("the client port's certificate: %s; %s", trouble, then)


def _marks(files: ClientTlsFiles) -> _Marks:
    found: list[tuple[int, int, int]] = []
    for name in (files.certificate, files.key):
        try:
            status = os.stat(name)
        except OSError:
            found.append((0, 0, 0))
        else:
            found.append((status.st_mtime_ns, status.st_size, status.st_ino))
    return tuple(found)
