"""Weights on their way to this node: who waits for what, told to the control plane a few times a second at most."""

import logging
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

import trio

from agent.state import Outbox
from llmgw.core.cluster import FetchProgress
from llmgw.core.errors import LlmgwError
from llmgw.wire.llmgw import v1 as wire

log = logging.getLogger("agent.fetches")

REPORT_EVERY_S = 0.5
"""Progress within one phase is told no oftener."""
PHASE_CHECKING = "checking"
PHASE_DONE = "done"
PHASE_FAILED = "failed"


class LocalSet(Protocol):
    """Weights on this node's disk, complete and checked."""

    @property
    def path(self) -> Path:
        """What an engine is given: a file or a directory."""


class WeightsCache(Protocol):
    """The node's cache of weights. Fetches of one source at one time are one download."""

    async def fetch(self, source: str, progress: Callable[[FetchProgress], None]) -> LocalSet:
        """Return once the set is here; raises LlmgwError with a sentence. Safe to cancel: what came is kept."""


class Fetches:
    """The cache as shards see it."""

    def __init__(self, cache: WeightsCache, outbox: Outbox) -> None:
        self._cache = cache
        self._outbox = outbox
        self._waiting: defaultdict[str, list[str]] = defaultdict(list)
        self._told: dict[str, tuple[str, float]] = {}

    async def fetch(self, source: str, *, shard_id: str = "", on_phase: Callable[[str], None] | None = None) -> Path:
        """Where the set is, once it is whole; raises LlmgwError. Without a shard it is fetched ahead of need."""
        waiting = self._waiting[source]
        waiting.append(shard_id)

        def progress(now: FetchProgress) -> None:
            if on_phase is not None:
                on_phase(now.phase)
            self._tell(source, now)

        try:
            found = await self._cache.fetch(source, progress)
        except LlmgwError as error:
            self._tell(source, FetchProgress(phase=PHASE_FAILED), message=error.message)
            raise
        else:
            self._tell(source, FetchProgress(phase=PHASE_DONE))
            return found.path
        finally:
            waiting.remove(shard_id)
            if not waiting:
                self._waiting.pop(source, None)
                self._told.pop(source, None)

    async def prefetch(self, source: str) -> None:
        """Fetch without a shard waiting; a failure is told and logged, never raised."""
        try:
            await self.fetch(source)
        except LlmgwError as error:
            log.warning("Fetching ahead failed: %s", error.message, extra={"source": source})

    def _tell(self, source: str, now: FetchProgress, *, message: str = "") -> None:
        phase, at = self._told.get(source, ("", 0.0))
        if phase == now.phase and trio.current_time() - at < REPORT_EVERY_S:
            return
        self._told[source] = (now.phase, trio.current_time())
        self._outbox.progress(
            wire.FetchProgress(
                source=source,
                phase=now.phase,
                done_bytes=max(0, now.done_bytes),
                total_bytes=max(0, now.total_bytes),
                shard_ids=sorted(filter(None, set(self._waiting[source]))),
                message=message,
            )
        )
