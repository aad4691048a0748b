"""A run of a shard's engine seen from outside: whether it becomes ready in time, and whether it still answers then."""

from collections.abc import Callable

import trio

from agent.engines.base import Engine
from agent.journal import Entry
from agent.readiness import Target, why_not_alive, why_not_listening, why_not_ready
from llmgw.wire.llmgw.v1 import ShardSpec

START_TIMEOUT_S = 600.0
"""A living engine gets so long to become ready, and besides what its memory takes to be filled from a slow disk."""
SLOW_DISK_BYTES_PER_S = 200_000_000
FIRST_PROBE_S = 0.1
"""Wait after the first failed readiness check; it doubles to SLOWEST_PROBE_S."""
SLOWEST_PROBE_S = 1.0
"""Readiness is seen at most so late."""
LIVENESS_EVERY_S = 3.0
"""Pause between two checks of a ready engine."""
LIVENESS_FAILURES = 3
"""So many failed checks in a row, and the engine is taken for hung: within 24 s with 5 s a check."""


class Probe:
    """Asks one run of an engine how it is. A worker of several shards answers no request: its port is connected to."""

    def __init__(self, spec: ShardSpec, engine: Engine, entry: Entry, *, key: str, address: str) -> None:
        """`address` is where other shards reach this one."""
        self._spec = spec
        self._engine = engine
        self._entry = entry
        self._target = Target(host=entry.host, port=entry.port, key=key)
        self._address = address
        self._opened = False

    async def until_ready(self, on_open: Callable[[int], None]) -> str:
        """Empty once the engine is ready; else why it is waited for no longer.

        `on_open` is told a head's port as soon as other shards may come in there.
        """
        names = self._engine.served_names(self._spec)
        pause_s, began = FIRST_PROBE_S, trio.current_time()
        limit_s = self._limit_s()
        while reason := await self._why_not_ready(names, on_open):
            if trio.current_time() - began > limit_s:
                return f"the engine was not ready within {limit_s:.0f} s: {reason}"
            await trio.sleep(pause_s)
            pause_s = min(SLOWEST_PROBE_S, pause_s * 2)
        return ""

    async def until_silent(self) -> str:
        """Why the engine has to be ended, once it stopped answering."""
        failures, reason = 0, ""
        while failures < LIVENESS_FAILURES:
            await trio.sleep(LIVENESS_EVERY_S)
            reason = await self._why_not_alive()
            failures = failures + 1 if reason else 0
        return f"the engine was ended because it stopped answering: {reason}"

    def _limit_s(self) -> float:
        spec = self._spec
        filled = spec.memory_bytes * max(1, spec.tp, len(spec.card_uuids)) + spec.host_bytes
        return START_TIMEOUT_S + self._entry.patience_s + filled / SLOW_DISK_BYTES_PER_S

    async def _why_not_ready(self, names: tuple[str, ...], on_open: Callable[[int], None]) -> str:
        if self._spec.rank:
            return await why_not_listening(self._address, self._target.port)
        if self._spec.places and not self._opened:
            join = self._entry.further[0]
            if not await why_not_listening(self._address, join):
                self._opened = True
                on_open(join)
        return await why_not_ready(self._target, health_path=self._engine.health_path, names=names)

    async def _why_not_alive(self) -> str:
        if self._spec.rank:
            return await why_not_listening(self._address, self._target.port)
        return await why_not_alive(self._target, health_path=self._engine.health_path)
