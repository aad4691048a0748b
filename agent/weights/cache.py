"""The node's cache: one fetch a source, shared by all who wait for it. A waiter that leaves takes nobody with it.

Order of one fetch: the mirror is asked until it has the set (phase `mirror`), what is missing is downloaded
(`fetching`), everything with a checksum is read back (`checking`), and only then is the set marked whole.
"""

import hashlib
import logging
import ssl
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import trio

from agent.weights.meter import Meter
from agent.weights.mirror import MirrorClient
from agent.weights.shelf import Shelf
from llmgw.core.cluster import FetchProgress
from llmgw.core.errors import InvalidInput, LlmgwError, Unavailable
from llmgw.core.sources import SimSource, format_source, parse_source, shown_source, source_id
from llmgw.core.weights import Manifest, SetFile, SetState
from llmgw.transfer.download import Policy, Wanted, download
from llmgw.transfer.errors import Refused, WrongContent, disk_error
from llmgw.transfer.hashing import hash_step, open_binary
from llmgw.transfer.parallel import each
from llmgw.transfer.room import Claim, Room

FILES_AT_ONCE = 4
"""Files of one set downloaded or checked at the same time."""
POLL_S = 1.0
"""The mirror is asked this often how far it is."""
ProgressHandler = Callable[[FetchProgress], None]
_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class LocalSet:
    """Weights that are on this node, whole and checked."""

    path: Path
    """What an engine is given: the one file, the first part of a split GGUF, or the directory."""
    manifest: Manifest


@dataclass(eq=False)
class _Fetch:
    """One fetch on its way and who waits for it."""

    source: str
    id: str
    scope: trio.CancelScope = field(default_factory=trio.CancelScope)
    done: trio.Event = field(default_factory=trio.Event)
    waiters: int = 0
    listeners: list[ProgressHandler] = field(default_factory=list)
    last: FetchProgress | None = None
    result: LocalSet | None = None
    error: LlmgwError | None = None

    def tell(self, progress: FetchProgress) -> None:
        self.last = progress
        for listener in tuple(self.listeners):
            listener(progress)


class Cache:
    """Weights under `root`, fetched from the mirror at `mirror_url` as a node (`tls`) or with a `token`."""

    def __init__(
        self,
        root: Path,
        *,
        mirror_url: str,
        tls: ssl.SSLContext | None = None,
        token: str | None = None,
        policy: Policy | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._policy = policy or Policy()
        self._shelf = Shelf(root)
        self._room = Room(root, self._policy.free_bytes)
        self._client = MirrorClient(mirror_url, tls=tls, token=token, policy=self._policy)
        self._clock = clock
        self._fetches: dict[str, _Fetch] = {}
        self._locks: dict[str, trio.Lock] = {}
        self._nursery: trio.Nursery | None = None

    @property
    def mirror_url(self) -> str:
        """`https://host:9470`; may be set when a server names another."""
        return self._client.url

    @mirror_url.setter
    def mirror_url(self, url: str) -> None:
        self._client.url = url

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Own the fetches. Never returns."""
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            try:
                task_status.started()
                await trio.sleep_forever()
            finally:
                self._nursery = None

    async def held(self, source: str) -> LocalSet | None:
        """The set if it is here and whole, without asking anybody. Raises InvalidInput."""
        parsed = parse_source(source)
        set_id = source_id(parsed)
        if isinstance(parsed, SimSource):
            return LocalSet(path=self._shelf.root, manifest=Manifest(id=set_id, source=format_source(parsed)))
        manifest = await trio.to_thread.run_sync(self._shelf.load, set_id)
        return self._local(manifest) if manifest is not None and manifest.complete else None

    async def fetch(self, source: str, progress: ProgressHandler | None = None) -> LocalSet:
        """The set, brought here unless it is. Raises LlmgwError with a sentence for the operator.

        `progress` is called in this thread and must not block; it first hears where a fetch already on its way is.
        """
        held = await self.held(source)
        if held is not None:
            return held
        fetch = self._join(source)
        fetch.waiters += 1
        if progress is not None:
            fetch.listeners.append(progress)
            if fetch.last is not None:
                progress(fetch.last)
        try:
            await fetch.done.wait()
        finally:
            self._leave(fetch, progress)
        if fetch.result is not None:
            return fetch.result
        raise fetch.error or Unavailable("the agent is stopping; the fetch carries on when it is back")

    async def remove(self, source: str) -> int:
        """Remove the set from this node, ending a fetch on its way; gives the bytes freed."""
        set_id = source_id(parse_source(source))
        if fetch := self._fetches.get(set_id):
            fetch.error = Unavailable(f"{shown_source(source)} was removed while it was fetched")
            fetch.scope.cancel()
        async with self._lock(set_id):
            return await trio.to_thread.run_sync(self._shelf.remove, set_id)

    def _join(self, source: str) -> _Fetch:
        set_id = source_id(parse_source(source))
        fetch = self._fetches.get(set_id)
        if fetch is None:
            if self._nursery is None:
                raise Unavailable("the node's cache of weights is not running")
            fetch = self._fetches[set_id] = _Fetch(source=source, id=set_id)
            self._nursery.start_soon(self._work, fetch)
        return fetch

    def _leave(self, fetch: _Fetch, progress: ProgressHandler | None) -> None:
        fetch.waiters -= 1
        if progress is not None:
            fetch.listeners.remove(progress)
        if not fetch.waiters and not fetch.done.is_set():
            self._forget(fetch)
            fetch.scope.cancel()

    def _forget(self, fetch: _Fetch) -> None:
        if self._fetches.get(fetch.id) is fetch:
            del self._fetches[fetch.id]

    def _lock(self, set_id: str) -> trio.Lock:
        """Held by whoever changes the set's files: a fetch that is being cancelled may still be writing."""
        return self._locks.setdefault(set_id, trio.Lock())

    async def _work(self, fetch: _Fetch) -> None:
        try:
            with fetch.scope:
                async with self._lock(fetch.id):
                    fetch.result = await self._bring(fetch)
        except LlmgwError as error:
            fetch.error = error
        except OSError as error:
            fetch.error = disk_error(error, self._shelf.root)
        # A border of supervision: whatever one fetch does, the node's others go on.
        except Exception as error:
            _LOG.exception("fetching set %s failed", fetch.id)
            fetch.error = Refused(f"fetching {shown_source(fetch.source)} failed: {type(error).__name__}: {error}")
        finally:
            self._forget(fetch)
            fetch.done.set()

    async def _bring(self, fetch: _Fetch) -> LocalSet:
        meter = Meter(fetch.tell, self._clock)
        with self._room.claim(shown_source(fetch.source)) as claim:
            manifest = await self._from_mirror(fetch, meter, claim)
            await trio.to_thread.run_sync(self._shelf.begin, manifest)
            await self._download(manifest, meter, claim)
        await self._check(manifest, meter)
        await trio.to_thread.run_sync(self._shelf.finish, manifest)
        return self._local(manifest)

    async def _from_mirror(self, fetch: _Fetch, meter: Meter, claim: Claim) -> Manifest:
        """Ask until the mirror has the set; raises Unavailable with the mirror's reason when it failed.

        Its space is claimed as soon as its size is known: a set that will not fit is not waited for.
        """
        kept = await trio.to_thread.run_sync(self._shelf.kept_bytes, fetch.id)
        while True:
            answer = await self._client.ensure(fetch.source)
            status, manifest = answer.status, answer.manifest
            if status.state is SetState.FAILED:
                raise Unavailable(f"the mirror could not fetch {shown_source(fetch.source)}: {status.message}")
            if manifest is not None:
                if manifest.id != fetch.id or any(file.bytes is None for file in manifest.files):
                    raise InvalidInput(
                        f"the mirror answers with a manifest that is not of {shown_source(fetch.source)}"
                    )
                return manifest
            if status.total_bytes:
                claim.need(self._shelf.directory(fetch.id), max(0, status.total_bytes - kept))
            meter.begin("mirror", status.total_bytes, done=status.done_bytes)
            meter.at(status.done_bytes, status.total_bytes)
            await self._policy.sleep(POLL_S)

    async def _download(self, manifest: Manifest, meter: Meter, claim: Claim) -> None:
        """Bring what is missing. A file already of the manifest's size is not fetched again."""
        held = {file.name: self._shelf.held_bytes(manifest, file) for file in manifest.files}
        missing = [file for file in manifest.files if not self._shelf.has(manifest, file)]
        total = manifest.total_bytes
        claim.need(self._shelf.directory(manifest.id), total - sum(held.values()))
        policy = replace(self._policy, room=claim.need)
        meter.begin("fetching", total, done=sum(held.values()))

        async def one(file: SetFile) -> None:
            def report(done: int, _total: int) -> None:
                held[file.name] = done
                claim.still(total - sum(held.values()))
                meter.at(sum(held.values()), total)

            # Hashing waits for the checking phase, which reads what the disk really holds.
            wanted = Wanted(target=self._shelf.path(manifest, file.name), size=file.bytes, hashed=False)
            await download(self._client.remote(manifest.id, file.name), wanted, report=report, policy=policy)

        await each(FILES_AT_ONCE, missing, one)
        meter.end()

    async def _check(self, manifest: Manifest, meter: Meter) -> None:
        """Read back every file that has a checksum; one that does not match is removed and named."""
        checked = [file for file in manifest.files if file.sha256 is not None]
        if not checked:
            return
        done = dict.fromkeys((file.name for file in checked), 0)
        total = sum(file.bytes or 0 for file in checked)
        meter.begin("checking", total)

        async def one(file: SetFile) -> None:
            path = self._shelf.path(manifest, file.name)
            digest = hashlib.sha256()
            with await trio.to_thread.run_sync(open_binary, path) as stream:
                while step := await trio.to_thread.run_sync(hash_step, stream, digest):
                    done[file.name] += step
                    meter.at(sum(done.values()), total)
            if digest.hexdigest() != file.sha256:
                await trio.to_thread.run_sync(path.unlink)
                raise WrongContent(
                    f"{file.name} does not have the sha256 of its manifest; it was removed, "
                    "and the next fetch brings it again"
                )

        await each(FILES_AT_ONCE, checked, one)
        meter.end()

    def _local(self, manifest: Manifest) -> LocalSet:
        return LocalSet(path=self._shelf.path(manifest, manifest.main), manifest=manifest)
