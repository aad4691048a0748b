"""What a router keeps on disk of what it heard: a router started while the control plane is away serves from it.

All routers of a machine share one file, so writing merges: each key's newest word wins, and "forgotten" is a word. The
file holds digests and records, never a key; it is 0600 and replaced whole. A file that cannot be read counts as none.
"""

import contextlib
import fcntl
import logging
import os
import time
from pathlib import Path

import msgspec
import trio

from llmgw.core.routing import KeyRecord, Routing, ScopeTable

SAVE_EVERY_S = 3.0
"""Changes are written at most this often."""
FORGET_WITHIN_S = 0.5
"""That a key must be forgotten is written sooner."""
MAX_KEYS = 10_000
"""Keys kept in the file, newest first."""
MAX_FILE_BYTES = 64 * 1024 * 1024
"""A longer file is not ours."""

_log = logging.getLogger(__name__)


class _SavedKey(msgspec.Struct, frozen=True, kw_only=True):
    """The word on a key at `at` (Unix seconds): its record, or none for forgotten."""

    at: float
    record: KeyRecord | None = None


class _Saved(msgspec.Struct, frozen=True, kw_only=True):
    """The file."""

    routing: Routing | None = None
    scopes: ScopeTable | None = None
    keys: dict[str, _SavedKey] = {}


_decoder = msgspec.msgpack.Decoder(_Saved)
_encoder = msgspec.msgpack.Encoder()


class SavedState:
    """The file at `path`, and what is to be written to it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.scopes: ScopeTable | None = None
        """Teams and tenants as `load` found them."""
        self._routing: Routing | None = None
        self._scopes: ScopeTable | None = None
        self._keys: dict[str, _SavedKey] = {}
        self._changed = trio.Event()
        self._hurry = trio.Event()

    def load(self) -> tuple[Routing | None, dict[str, KeyRecord]]:
        """The last routing and the key records by digest, as far as there is a readable file."""
        saved = self._read()
        self.scopes = saved.scopes
        return saved.routing, {digest: key.record for digest, key in saved.keys.items() if key.record is not None}

    def heard(self, routing: Routing) -> None:
        """`routing` is the newest."""
        self._routing = routing
        self._changed.set()

    def heard_scopes(self, table: ScopeTable) -> None:
        """`table` holds every team and tenant."""
        self._scopes = table
        self._changed.set()

    def learned(self, digest: str, record: KeyRecord) -> None:
        """The control plane said whose key this is."""
        self._keys[digest] = _SavedKey(at=time.time(), record=record)
        self._changed.set()

    def forgotten(self, digest: str) -> None:
        """What was known of this key is not to be used again."""
        self._keys[digest] = _SavedKey(at=time.time())
        self._changed.set()
        self._hurry.set()

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Service: writes what changed, soon but seldom. A full disk is said and survived."""
        task_status.started()
        while True:
            await self._changed.wait()
            await trio.sleep(FORGET_WITHIN_S)
            with trio.move_on_after(SAVE_EVERY_S - FORGET_WITHIN_S):
                await self._hurry.wait()
            await trio.to_thread.run_sync(self._store, *self._take())

    def write(self) -> None:
        """Write what changed, now; only while `run` does not run."""
        self._store(*self._take())

    def _take(self) -> tuple[Routing | None, ScopeTable | None, dict[str, _SavedKey]]:
        taken = self._routing, self._scopes, self._keys
        self._routing, self._scopes, self._keys = None, None, {}
        self._changed, self._hurry = trio.Event(), trio.Event()
        return taken

    def _store(self, routing: Routing | None, scopes: ScopeTable | None, keys: dict[str, _SavedKey]) -> None:
        if routing is None and scopes is None and not keys:
            return
        try:
            self._merge(routing, scopes, keys)
        except OSError as error:
            _log.error("what routers heard cannot be kept in %s: %s", self._path, error)

    def _merge(self, routing: Routing | None, scopes: ScopeTable | None, keys: dict[str, _SavedKey]) -> None:
        lock = os.open(self._path.with_name(self._path.name + ".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            saved = self._read()
            merged = dict(saved.keys)
            for digest, key in keys.items():
                known = merged.get(digest)
                if known is None or known.at <= key.at:
                    merged[digest] = key
            if len(merged) > MAX_KEYS:
                newest = sorted(merged.items(), key=lambda item: item[1].at, reverse=True)
                merged = dict(newest[:MAX_KEYS])
            whole = _Saved(routing=routing or saved.routing, scopes=scopes or saved.scopes, keys=merged)
            self._replace(_encoder.encode(whole))
        finally:
            os.close(lock)

    def _replace(self, data: bytes) -> None:
        temporary = self._path.with_name(f"{self._path.name}.{os.getpid()}.tmp")
        try:
            file = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
            with open(file, "wb") as stream:
                stream.write(data)
            temporary.replace(self._path)
        except OSError:
            with contextlib.suppress(OSError):
                temporary.unlink(missing_ok=True)
            raise

    def _read(self) -> _Saved:
        try:
            with open(self._path, "rb") as stream:
                data = stream.read(MAX_FILE_BYTES + 1)
            if len(data) <= MAX_FILE_BYTES:
                return _decoder.decode(data)
            _log.error("%s is longer than %d bytes and is ignored", self._path, MAX_FILE_BYTES)
        except FileNotFoundError:
            pass
        except (OSError, msgspec.DecodeError) as error:
            _log.error("%s cannot be read and is ignored: %s", self._path, error)
        return _Saved()
