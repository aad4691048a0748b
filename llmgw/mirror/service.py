"""The mirror: one fetch a source, whoever asks and however often. A whole set is served without asking anybody."""

import logging
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import msgspec
import trio

from llmgw.core.catalog import ModelFacts
from llmgw.core.errors import Conflict, LlmgwError, NotFound, Unavailable
from llmgw.core.sources import SimSource, parse_source, shown_source, source_id
from llmgw.core.weights import Manifest, SetAnswer, SetFile, SetState, SetStatus
from llmgw.mirror.bring import FILES_AT_ONCE, Bringer, OnFetched
from llmgw.mirror.entry import Entry
from llmgw.mirror.sets import Kept, SetStore
from llmgw.mirror.source import MirrorConfig
from llmgw.mirror.verify import Verification, differing, verdict
from llmgw.transfer.errors import DiskFull, Interrupted, Unwritable, disk_error
from llmgw.transfer.limit import Limit

USED_EVERY_S = 600.0
"""That a node copies from a set is noted no oftener."""
FIRST_RETRY_S = 5.0
"""A failed set asked for again this soon after its failure is answered with the failure; doubles with each."""
LONGEST_RETRY_S = 300.0
SIM_FACTS = ModelFacts(architecture="sim", trained_context=32768, vocabulary=32000)
_PASSES_BY_ITSELF = (Interrupted, DiskFull, Unwritable)
"""Failures that say nothing of what the source was resolved to."""
_LOG = logging.getLogger(__name__)


class Mirror:
    """Sets of weights under `root`. What is not async is immediate and belongs to the trio thread.

    `on_change` is called with the canonical source whenever a set's state changes, and `on_fetched` when a try at one
    is over; neither must block or raise.
    """

    def __init__(
        self,
        root: Path,
        *,
        config: MirrorConfig | None = None,
        on_change: Callable[[str], None] | None = None,
        on_fetched: OnFetched = lambda _fetched: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store = SetStore(root)
        self._root = root
        self._on_change = on_change or (lambda _source: None)
        self._clock = clock
        self._entries: dict[str, Entry] = {}
        self._nursery: trio.Nursery | None = None
        config = config or MirrorConfig()
        self.downloads: Limit = config.policy.limit
        """How fast sets come from outside, all together; may be set while they come."""
        self.serving: Limit = config.serving
        """How fast nodes take them from here, all together; may be set while they do."""
        self._bringer = Bringer(root, store=self._store, config=config, told=self._change, on_fetched=on_fetched)
        # One set at a time: a check reads as fast as the disk gives, and nodes read from it too.
        self._checks = trio.Semaphore(1)

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
            entry = self._entries[source_id(parsed)] = Entry(source=parsed, id=source_id(parsed))
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

    def verify(self, source: str) -> SetStatus:
        """Read a ready set back against its manifest, while it is served; a check on its way is joined.

        The status says how far it is and what it found. A file that differs is removed, and the set fetched again.
        Raises NotFound, or Conflict while the set is not whole.
        """
        entry, manifest = self._whole(source)
        if self._nursery is None:
            raise Unavailable("the mirror is not running")
        if entry.check is None or not entry.check.running:
            entry.check = Verification()
            self._nursery.start_soon(self._verify, entry, manifest, entry.check)
        return entry.status()

    def whole(self, source: str) -> SetStatus:
        """Where a set stands that can be read back; raises NotFound, or Conflict while it is not whole."""
        return self._whole(source)[0].status()

    def _whole(self, source: str) -> tuple[Entry, Manifest]:
        entry = self._entries.get(source_id(parse_source(source)))
        if entry is None or isinstance(entry.source, SimSource):
            raise NotFound(f"{shown_source(source)} is not on the mirror; `llmgw ctl weights list` shows what is")
        if entry.state is not SetState.READY or entry.manifest is None:
            raise Conflict(f"{shown_source(source)} is {entry.state.value} on the mirror: it is checked as it arrives")
        return entry, entry.manifest

    async def mark_used(self, set_id: str) -> None:
        """Note that a node copies from the set now."""
        entry, now = self._entries.get(set_id), time.time()
        if entry is not None and now - (entry.used or 0.0) >= USED_EVERY_S:
            entry.used = now
            await trio.to_thread.run_sync(self._store.mark_used, set_id)

    async def kept(self, set_id: str) -> Kept | None:
        """What removing the set would free; none when nothing of it is on disk."""
        return await trio.to_thread.run_sync(self._store.kept, set_id)

    async def strays(self) -> list[Kept]:
        """Directories no set it knows of belongs to; none before it has learned what is on disk."""
        if self._nursery is None:
            return []
        return await trio.to_thread.run_sync(self._store.strays, frozenset(self._entries))

    async def remove_stray(self, set_id: str) -> int | None:
        """Remove a directory that `strays` names; gives the bytes freed, none when its set was asked for meanwhile."""
        if set_id not in {stray.id for stray in await self.strays()} or set_id in self._entries:
            return None
        return await trio.to_thread.run_sync(self._store.remove, set_id)

    async def remove(self, source: str) -> int:
        """End a fetch or check on its way, forget the set and remove what is kept of it; gives the bytes freed."""
        set_id = source_id(parse_source(source))
        entry = self._entries.get(set_id)
        while entry is not None and entry.check is not None and entry.check.running:
            entry.check.scope.cancel()
            await entry.check.over.wait()
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
            entry = Entry(source=source, id=manifest.id, manifest=manifest)
            if source_id(source) != manifest.id:
                return
            if manifest.complete:
                entry.facts = await trio.to_thread.run_sync(self._store.facts, manifest)
                entry.state = SetState.READY
                entry.fetched, entry.used = await trio.to_thread.run_sync(self._store.times, manifest.id)
        except (LlmgwError, OSError) as error:
            _LOG.warning("set %s on disk cannot be used: %s", manifest.id, error)
            return
        self._entries[manifest.id] = entry

    def _changed_in_place(self, entry: Entry) -> bool:
        """Whether a `file:` source is not what was hashed any more."""
        return entry.manifest is not None and not self._store.unchanged(entry.manifest)

    def _start(self, entry: Entry) -> None:
        if self._nursery is None:
            raise Unavailable("the mirror is not running")
        entry.scope, entry.idle = trio.CancelScope(), trio.Event()
        self._change(entry, SetState.RESOLVING)
        self._nursery.start_soon(self._work, entry, entry.scope)

    async def _work(self, entry: Entry, scope: trio.CancelScope) -> None:
        try:
            with scope:
                await self._bringer.bring(entry)
                entry.failures = 0
                entry.fetched, entry.used = time.time(), None
                self._change(entry, SetState.READY)
                _LOG.info("set %s is ready", entry.id)
        except LlmgwError as error:
            await self._failed(entry, error.message, resolve_again=not isinstance(error, _PASSES_BY_ITSELF))
        except OSError as error:
            await self._failed(entry, disk_error(error, self._root).message, resolve_again=False)
        # A border of supervision: whatever one set does, the others go on.
        except Exception as error:
            _LOG.exception("set %s failed", entry.id)
            await self._failed(entry, f"{type(error).__name__}: {error}", resolve_again=True)
        finally:
            entry.scope = None
            entry.idle.set()

    async def _verify(self, entry: Entry, manifest: Manifest, check: Verification) -> None:
        """Read the set back, and have fetched again what differs."""
        self._on_change(entry.name)
        try:
            with check.scope:
                async with self._checks:
                    path_of = partial(self._store.file_path, manifest)
                    found = await differing(manifest.files, path_of, check.done.__setitem__, at_once=FILES_AT_ONCE)
                if found and not entry.in_place:
                    await trio.to_thread.run_sync(self._store.discard, manifest, found)
                check.verdict, check.intact = verdict(entry.source, manifest.files, found), not found
                _LOG.log(logging.WARNING if found else logging.INFO, "set %s checked: %s", entry.id, check.verdict)
                if found and entry.scope is None:
                    self._start(entry)
        except OSError as error:
            check.verdict = f"it could not be read back: {disk_error(error, self._root).message}"
        # A border of supervision: whatever one check does, the mirror goes on.
        except Exception as error:
            _LOG.exception("checking set %s failed", entry.id)
            check.verdict = f"the check failed: {type(error).__name__}: {error}"
        finally:
            check.over.set()
            self._on_change(entry.name)

    async def _failed(self, entry: Entry, message: str, *, resolve_again: bool) -> None:
        if resolve_again:
            try:
                await trio.to_thread.run_sync(self._store.forget_manifest, entry.id)
            except OSError as error:
                message += f"; and {disk_error(error, self._root).message}"
        entry.failures += 1
        pause = min(FIRST_RETRY_S * 2 ** min(entry.failures - 1, 10), LONGEST_RETRY_S)
        entry.retry_at = self._clock() + pause
        _LOG.warning("set %s failed: %s", entry.id, message)
        self._change(entry, SetState.FAILED, message)

    def _change(self, entry: Entry, state: SetState, message: str = "") -> None:
        entry.state, entry.message = state, message
        self._on_change(entry.name)
