"""One simulated replica's life: fetching, checking, starting, ready, and the end it is ordered. States as of a node.

Times are shortened: what takes an hour of downloading takes seconds here, in the same order and with the same words.
"""

import dataclasses
from collections.abc import Callable

import trio

from llmgw.core.errors import InvalidInput
from llmgw.core.figures import EngineLoad, ToldLoad
from llmgw.core.sources import SimSource, parse_source
from llmgw.core.units import GB, size
from llmgw.sim.fleet.cards import CardModel
from llmgw.sim.fleet.hall import Hall
from llmgw.sim.metrics import kv_used
from llmgw.sim.options import KEY_VARIABLE, EngineOptions, engine_argv, parse_options
from llmgw.sim.service import Engine
from llmgw.wire.llmgw.v1 import FetchProgress, ShardSpec, ShardState, ShardStatus

FETCH_GB_PER_S = 12.0
MAX_FETCH_S = 10.0
"""No simulated download takes longer."""
CHECK_GB_PER_S = 60.0
PROGRESS_EVERY_S = 0.5
"""How often a download says how far it is."""
START_GB_PER_S = 30.0
MAX_START_S = 5.0
"""No simulated start takes longer."""
DECODE_EFFICIENCY = 0.4
"""Part of its memory's bandwidth that a card turns into tokens of one stream."""
MAX_RATE = 180.0
"""Tokens a second of one stream, however small the model."""
SLOW_PREFILL_MS = 1500.0
SLOW_JITTER = 0.6
SLOW_RATE_PART = 0.3
"""A slow node's replicas make tokens at this part of the usual rate."""

ENDED = (ShardState.STOPPED, ShardState.FAILED)


class SimReplica:
    """A replica on a simulated node; `run` is its life."""

    def __init__(
        self,
        spec: ShardSpec,
        *,
        key: str,
        hall: Hall,
        card: CardModel | None,
        slow: bool,
        pid: int,
        changed: Callable[["SimReplica"], None],
        progressed: Callable[[FetchProgress], None],
        write: Callable[[str], None],
    ) -> None:
        """`card` is the kind of card it runs on, none on CPU."""
        self.spec = spec
        self.state = ShardState.PENDING
        self.engine: Engine | None = None
        self.weights_bytes = 0
        """What its source says it weighs, once it comes up."""
        self._key = key
        self._hall = hall
        self._card = card
        self._slow = slow
        self._pid = pid
        self._changed = changed
        self._progressed = progressed
        self._write = write
        self._message = ""
        self._life = trio.CancelScope()
        self._counted = 0

    @property
    def id(self) -> str:
        """The shard's id."""
        return self.spec.shard_id

    def status(self, *, with_spec: bool = False) -> ShardStatus:
        """Its state in the protocol's words."""
        open_ = self.engine is not None
        return ShardStatus(
            shard_id=self.id,
            state=self.state,
            endpoint=self._hall.endpoint(self.spec.replica_id) if open_ else "",
            pid=self._pid if open_ else 0,
            message=self._message,
            spec=self.spec if with_spec else None,
        )

    def streams(self, elapsed_s: float) -> float:
        """Answers worked on since it was last asked, `elapsed_s` ago, on average: tokens made by tokens possible."""
        if self.engine is None:
            return 0.0
        counters = self.engine.counters
        made, self._counted = counters.generated_tokens - self._counted, counters.generated_tokens
        rate = self.engine.options.rate
        if not rate or elapsed_s <= 0:
            return float(counters.running)
        # An answer that is not streamed makes its tokens all at once, at its end: who is being answered now counts too.
        return min(float(self.spec.slots or 1), max(made / (rate * elapsed_s), float(counters.running)))

    def load(self) -> ToldLoad | None:
        """What its engine says of its work; none before it is ready."""
        engine = self.engine
        if engine is None or engine.loading:
            return None
        counters, options = engine.counters, engine.options
        return ToldLoad(
            load=EngineLoad(
                running=counters.running,
                waiting=engine.waiting,
                slots=options.slots,
                kv_used=round(kv_used(counters, options), 2),
            )
        )

    def drain(self, *, deadline_s: float, reason: str) -> None:
        """Finish what it has; it ends at the deadline, or when it is told to stop."""
        if self.state in (*ENDED, ShardState.DRAINING):
            return
        self._set(ShardState.DRAINING, f"draining: {reason}" if reason else "draining")
        self._life.deadline = trio.current_time() + max(0.0, deadline_s)

    def stop(self) -> None:
        """End it now."""
        self._life.cancel()

    async def run(self, *, cached: bool) -> None:
        """Come up, serve until the end, and be stopped; `cached` weights are not fetched again.

        A source or flags that no engine takes make it failed.
        """
        with self._life:
            try:
                source = parse_source(self.spec.source)
                self.weights_bytes = round(source.weights_gb * GB) if isinstance(source, SimSource) else 0
                options = self._options()
            except InvalidInput as error:
                self._set(ShardState.FAILED, error.message)
                await trio.sleep_forever()
            if not cached:
                await self._fetch()
            await self._start(options)
            if options.crash_on_start:
                self._close()
                self._set(ShardState.FAILED, "the engine ended with exit code 1 while it was starting")
            elif self.state is not ShardState.DRAINING:
                self._set(ShardState.READY, "")
            await trio.sleep_forever()
        self._close()
        self._set(ShardState.STOPPED, "")

    async def _fetch(self) -> None:
        total = self.weights_bytes
        self._set(ShardState.FETCHING, "")
        fetch_s = min(MAX_FETCH_S, total / GB / FETCH_GB_PER_S)
        began = trio.current_time()
        while (passed := trio.current_time() - began) < fetch_s:
            self._tell_progress("fetching", round(total * passed / fetch_s), total)
            await trio.sleep(PROGRESS_EVERY_S)
        if total:
            self._write(f"fetched {size(total)} of simulated weights")
            self._set(ShardState.CHECKING, "")
            self._tell_progress("checking", total, total)
            await trio.sleep(min(MAX_START_S, total / GB / CHECK_GB_PER_S))

    async def _start(self, options: EngineOptions) -> None:
        self.engine = Engine(options, pacer=self._hall.pacer)
        self._set(ShardState.STARTING, "")
        self._hall.open(self.spec.replica_id, self.engine)
        loading_s = min(MAX_START_S, self.weights_bytes / GB / max(1, self.spec.tp) / START_GB_PER_S)
        await trio.sleep(max(loading_s, options.start_delay_s))
        self._write(
            f"sim engine ready: {options.slots} slots of {options.ctx_size} tokens, {options.rate:.0f} tokens/s"
        )

    def _close(self) -> None:
        self._hall.close(self.spec.replica_id)
        self.engine = None

    def _options(self) -> EngineOptions:
        """The engine's options as the agent of a real node would pass them. Raises InvalidInput."""
        spec = self.spec
        argv = engine_argv(
            host="127.0.0.1",
            port=0,
            model=spec.model,
            slots=max(1, spec.slots),
            ctx_size=max(8, spec.context_length),
            source=spec.source,
            args=spec.args,
        )
        options = parse_options(argv, environment={KEY_VARIABLE: self._key})
        if not any(argument.startswith("--rate") for argument in argv):
            options = dataclasses.replace(options, rate=self._rate(options.rate), jitter=max(options.jitter, 0.1))
        if self._slow:
            options = dataclasses.replace(
                options,
                prefill_ms=max(options.prefill_ms, SLOW_PREFILL_MS),
                rate=options.rate * SLOW_RATE_PART,
                jitter=max(options.jitter, SLOW_JITTER),
            )
        return options

    def _rate(self, default: float) -> float:
        """Tokens a second of one stream: every token reads all weights once."""
        if self._card is None or not self.weights_bytes:
            return default
        bandwidth = self._card.bandwidth_gb_s * max(1, self.spec.tp) * DECODE_EFFICIENCY
        return min(MAX_RATE, bandwidth / (self.weights_bytes / GB))

    def _tell_progress(self, phase: str, done: int, total: int) -> None:
        self._progressed(
            FetchProgress(source=self.spec.source, phase=phase, done_bytes=done, total_bytes=total, shard_ids=[self.id])
        )

    def _set(self, state: ShardState, message: str) -> None:
        # A replica that drains goes on draining until it ends.
        if self.state is not ShardState.DRAINING or state in ENDED:
            self.state = state
        self._message = message
        word = (state.name or "").lower()
        self._write(f"{word}: {message}" if message else word)
        self._changed(self)
