"""PostgreSQL as this server's own child: no TCP, one private directory, and no life beyond the server's.

Its data directory is handed over as an open descriptor (`/proc/self/fd/N`), so neither the length of its path, nor
odd characters in it, nor who may walk the directories above it, matters. The socket lies in the data directory, which
PostgreSQL itself keeps at 0700; whoever can reach it is already this user, hence `trust`.
"""

import contextlib
import os
import shutil
import subprocess
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import IO

import trio
from psycopg.conninfo import make_conninfo

from llmgw.core.errors import InvalidInput, Unavailable
from llmgw.core.layout import ServerLayout
from llmgw.core.sockets import SUN_PATH_SAFE
from llmgw.store import launch
from llmgw.store.leftovers import STAGES, end_leftovers

USER = "llmgw"
DATABASE = "postgres"
PORT = 5432
"""No port is opened; PostgreSQL names its socket after this number."""
INIT_TIMEOUT_S = 300.0
"""Making an empty database takes half a second; a slow disk is given this long."""
READY_TIMEOUT_S = 300.0
"""Recovery after a power cut replays at most `max_wal_size`."""
READY_POLL_S = 0.01
"""How often PostgreSQL's state file is read while it starts."""
LOG_LIMIT_BYTES = 8 * 1024 * 1024
"""`postgres.log` starts over above this size."""
LOG_CHECK_S = 60.0
"""How often the log's size is looked at."""

SETTINGS: Mapping[str, str] = {
    "listen_addresses": "",
    "unix_socket_directories": ".",
    "unix_socket_permissions": "0700",
    "max_connections": "40",
    "shared_buffers": "32MB",
    "maintenance_work_mem": "32MB",
    "max_wal_size": "256MB",
    "jit": "off",
    "max_worker_processes": "2",
    "max_parallel_workers": "0",
    "autovacuum_max_workers": "1",
    # In files of the data directory: shared memory objects would outlive a killed PostgreSQL.
    "dynamic_shared_memory_type": "mmap",
    "huge_pages": "off",
    "logging_collector": "off",
    "log_destination": "stderr",
    "log_min_messages": "warning",
    "log_checkpoints": "off",
    # A failed statement may carry what it was to store.
    "log_min_error_statement": "panic",
    "timezone": "UTC",
}
"""Small in memory, silent in the log; durability is PostgreSQL's own default (`fsync` on)."""


class EmbeddedPostgres:
    """One PostgreSQL on `layout.database`. The caller holds `layout.lock` from before `start` until after `stop`.

    `account` runs it under another existing account (root only). `settings` are further PostgreSQL settings.
    """

    def __init__(
        self, layout: ServerLayout, *, account: str | None = None, settings: Mapping[str, str] | None = None
    ) -> None:
        self._layout = layout
        self._account = account
        self._settings = {**SETTINGS, **(settings or {})}
        self._child: subprocess.Popen[bytes] | None = None
        self._directory: int | None = None

    @property
    def pid(self) -> int:
        """Pid of the running (or last) PostgreSQL; 0 before the first start."""
        return self._child.pid if self._child else 0

    @property
    def log_path(self) -> Path:
        """PostgreSQL's own log, at most about LOG_LIMIT_BYTES long."""
        return self._layout.log / "postgres.log"

    async def start(self) -> str:
        """Make the database if there is none, start PostgreSQL and answer its connection string once it serves.

        Ends what a killed server left running there first. May be called again once PostgreSQL has exited; the
        connection string stays the same and is good in this process until `stop`. Called from the main thread,
        because the death signal follows the starting thread. Raises InvalidInput for an account or directory that
        cannot work, Unavailable with PostgreSQL's own words when it does not start.
        """
        if threading.current_thread() is not threading.main_thread():
            raise RuntimeError("EmbeddedPostgres.start runs in the main thread")
        if self._child is not None and self._child.poll() is None:
            raise RuntimeError("PostgreSQL runs already")
        _forget_variables()
        identity = launch.choose_identity(self._account)
        self._prepare_directories()
        await end_leftovers(self._layout.database)
        installation = launch.choose_installation(identity, major=self._existing_major(identity))
        with self.log_path.open("ab") as log:
            if not self._layout.database.exists():
                await self._initialise(identity, installation, log)
            await self._launch(identity, installation, log)
        return self._conninfo()

    async def stop(self) -> None:
        """End PostgreSQL: a fast shutdown, an immediate one when that takes over ten seconds. Leaves nothing behind."""
        with trio.CancelScope(shield=True):
            await self._end_child()
            await end_leftovers(self._layout.database)
        self._close_directory()

    async def wait_exit(self) -> int:
        """Wait until PostgreSQL is gone and answer its exit status (negative: the signal); trims its log meanwhile."""
        if self._child is None:
            raise RuntimeError("PostgreSQL was not started")
        while True:
            with trio.move_on_after(LOG_CHECK_S):
                return await _wait(self._child)
            self._trim_log()

    def _prepare_directories(self) -> None:
        for directory in (self._layout.data, self._layout.log):
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._trim_log()

    def _trim_log(self) -> None:
        # Every writer appends, so a shortened file is simply written on from its new end.
        with contextlib.suppress(FileNotFoundError):
            if self.log_path.stat().st_size > LOG_LIMIT_BYTES:
                os.truncate(self.log_path, 0)

    def _existing_major(self, identity: launch.Identity) -> int | None:
        """Version of the database that is there; raises InvalidInput for a directory PostgreSQL could not take over."""
        database = self._layout.database
        if not database.exists():
            return None
        try:
            major = int((database / "PG_VERSION").read_text())
        except (OSError, ValueError):
            raise InvalidInput(
                f"{database} is there and holds no PostgreSQL database: move it away, or restore it from a backup"
            ) from None
        owner = database.stat().st_uid
        if owner != identity.uid:
            raise InvalidInput(
                f"{database} belongs to uid {owner}, and PostgreSQL would run as {identity.label}: run the server as "
                f"before, or hand the directory over with chown -R {identity.uid}:{identity.gid}",
                field="postgres_account",
            )
        return major

    async def _initialise(self, identity: launch.Identity, installation: launch.Installation, log: IO[bytes]) -> None:
        """Make the database beside its place and rename it there: a cut-off attempt is never taken for a database."""
        fresh = self._layout.database.with_name("db.new")
        await end_leftovers(fresh)
        if fresh.exists():
            shutil.rmtree(fresh)
        fresh.mkdir(mode=0o700)
        if identity.uid != os.geteuid():
            os.chown(fresh, identity.uid, identity.gid)
        begin = log.tell()
        descriptor = os.open(fresh, os.O_PATH | os.O_DIRECTORY)
        try:
            arguments = [
                *("-D", f"/proc/self/fd/{descriptor}", f"--username={USER}", "--auth=trust"),
                *("--locale=C", "--encoding=UTF8", "--no-instructions"),
            ]
            argv = launch.command(identity, installation.bin / "initdb", arguments)
            child = launch.spawn(argv, directory=descriptor, output=log)
            status = await _finish(child, INIT_TIMEOUT_S)
        finally:
            os.close(descriptor)
        if status != 0:
            raise Unavailable(f"making the database in {fresh.parent} failed: {self._last_words(begin)}")
        fresh.rename(self._layout.database)
        _sync_directory(self._layout.data)

    async def _launch(self, identity: launch.Identity, installation: launch.Installation, log: IO[bytes]) -> None:
        # Kept over restarts: connection strings may name this very descriptor.
        first = self._directory is None
        if self._directory is None:
            self._directory = os.open(self._layout.database, os.O_PATH | os.O_DIRECTORY)
        arguments = ["-D", f"/proc/self/fd/{self._directory}"]
        settings = dict(self._settings)
        if installation.major >= 18:
            settings.setdefault("io_method", "sync")
        for key, value in settings.items():
            arguments += ["-c", f"{key}={value}"]
        begin = log.tell()
        argv = launch.command(identity, installation.bin / "postgres", arguments)
        self._child = launch.spawn(argv, directory=self._directory, output=log)
        try:
            await self._wait_ready(self._child, begin)
        except BaseException:
            with trio.CancelScope(shield=True):
                await self._end_child()
            if first:
                self._close_directory()
            raise

    async def _wait_ready(self, child: "subprocess.Popen[bytes]", begin: int) -> None:
        with trio.move_on_after(READY_TIMEOUT_S):
            while child.poll() is None:
                if self._says_ready(child.pid):
                    return
                await trio.sleep(READY_POLL_S)
            raise Unavailable(f"PostgreSQL did not start on {self._layout.database}: {self._last_words(begin)}")
        raise Unavailable(f"PostgreSQL was not ready within {READY_TIMEOUT_S:.0f} s: {self._last_words(begin)}")

    def _says_ready(self, pid: int) -> bool:
        """`postmaster.pid` holds the pid in line 1 and the state in line 8 (storage/pidfile.h)."""
        try:
            lines = (self._layout.database / "postmaster.pid").read_text().split("\n")
        except OSError:
            return False
        return len(lines) > 7 and lines[0] == str(pid) and lines[7].strip() == "ready"

    async def _end_child(self) -> None:
        if self._child is None:
            return
        for number, allowed_s in STAGES:
            if self._child.poll() is not None:
                return
            self._child.send_signal(number)
            with trio.move_on_after(allowed_s):
                await _wait(self._child)

    def _conninfo(self) -> str:
        """The directory's path where libpq can use it (people can too); else this process's descriptor of it."""
        host = os.path.abspath(self._layout.database)
        if len(os.fsencode(host)) + len("/.s.PGSQL.5432") > SUN_PATH_SAFE or not _plain(host):
            host = f"/proc/self/fd/{self._directory}"
        # An empty hostaddr keeps PGHOSTADDR of the environment out.
        return make_conninfo("", host=host, hostaddr="", port=PORT, user=USER, dbname=DATABASE)

    def _last_words(self, begin: int) -> str:
        """The end of what was logged since `begin`, on one line."""
        with self.log_path.open("rb") as log:
            log.seek(max(begin, os.fstat(log.fileno()).st_size - 2000))
            lines = log.read().decode("utf-8", "replace").split("\n")
        words = " / ".join([line.strip() for line in lines if line.strip()][-4:])
        return words[-600:] or f"it said nothing; see {self.log_path}"

    def _close_directory(self) -> None:
        if self._directory is not None:
            os.close(self._directory)
            self._directory = None


def _forget_variables() -> None:
    """Drop what the environment says of other databases: libpq would take it (PGSERVICE, PGOPTIONS) for this one."""
    for name in [name for name in os.environ if name.startswith("PG")]:
        del os.environ[name]


def _plain(host: str) -> bool:
    """Whether libpq takes it as one directory: it splits hosts at commas."""
    return "," not in host and host.isprintable()


def _sync_directory(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


async def _finish(child: "subprocess.Popen[bytes]", timeout_s: float) -> int:
    """Exit status of a child that is killed at `timeout_s` or on cancellation."""
    try:
        with trio.move_on_after(timeout_s):
            return await _wait(child)
    finally:
        if child.poll() is None:
            child.kill()
            with trio.CancelScope(shield=True):
                await _wait(child)
    return child.returncode


async def _wait(child: "subprocess.Popen[bytes]") -> int:
    """Exit status of a child. A descriptor a caller: trio lets one task wait on each."""
    if child.poll() is None:
        descriptor = os.pidfd_open(child.pid)
        try:
            await trio.lowlevel.wait_readable(descriptor)
        finally:
            os.close(descriptor)
    else:
        await trio.lowlevel.checkpoint()
    return child.wait()
