"""One shard's life: its engine is started, watched, started again, and ended; every transition is told at once.

    pending → fetching → checking → starting ⇄ ready → draining → stopped
A shard that failed stays failed until it is told to stop.
"""

import logging
from dataclasses import dataclass
from pathlib import Path

import trio

from agent.engine_run import EngineRun
from agent.engines.base import Engine
from agent.fetches import PHASE_CHECKING
from agent.journal import Entry
from agent.loads import Serving
from agent.output import last_lines
from agent.probing import Probe
from agent.process import EngineProcess
from agent.rally import Rally
from agent.readiness import Target
from agent.restarts import RestartPolicy
from agent.site import Site
from llmgw.core.cluster import RUNTIME
from llmgw.core.errors import InvalidInput, LlmgwError
from llmgw.wire.llmgw.v1 import ShardSpec, ShardState, ShardStatus

log = logging.getLogger("agent.shard")

STUCK_GRACE_S = 5.0
"""A hung engine gets so long after SIGTERM."""
FAILED_GRACE_S = 5.0
WAITS_FOR_OTHERS = "its weights are here; it waits for the other shards"
MAX_MESSAGE_CHARS = 2000
LAST_LINES = 8
"""Lines of output in the message of a failed shard."""


class EngineGaveUp(LlmgwError):
    """The engine cannot be kept running; the message has its last words."""

    code = "engine_failed"


@dataclass(frozen=True, kw_only=True)
class _Ended:
    """How one run of the engine ended."""

    why: str
    ready_s: float | None
    """How long it had been ready; none: never."""


class Shard:
    """A shard and its engine. `run()` is its life; the other methods are orders and questions, and never wait."""

    def __init__(self, site: Site, spec: ShardSpec, *, key: str) -> None:
        self._site = site
        self.spec = spec
        self._key = key
        self._run = EngineRun(site, spec, key=key)
        self._state = ShardState.PENDING
        self._message = ""
        self._restarts = 0
        self._adopted = False
        self._rally = Rally()
        self._ready_at: float | None = None
        self._runtime_port = 0
        """Of a head of several shards: where the others may come in, once they may."""
        self._life = trio.CancelScope()
        self._stop_grace_s: float | None = None
        self._drain_until: float | None = None

    @classmethod
    def adopted(cls, site: Site, entry: Entry, process: EngineProcess, *, key: str) -> "Shard":
        """A shard whose engine an earlier agent started."""
        shard = cls(site, entry.shard_spec(), key=key)
        shard._run.take_over(entry, process)
        shard._restarts, shard._adopted = entry.restarts, True
        shard._rally.go("")
        shard._state = ShardState.READY if entry.ready else ShardState.STARTING
        shard._message = "taken over from an earlier agent"
        return shard

    @classmethod
    def lost(cls, site: Site, entry: Entry, why: str) -> "Shard":
        """A shard whose engine is gone: failed from the start, until it is told to stop."""
        shard = cls(site, entry.shard_spec(), key="")
        shard._restarts, shard._state, shard._message = entry.restarts, ShardState.FAILED, why
        return shard

    @property
    def id(self) -> str:
        """The shard's id."""
        return self.spec.shard_id

    @property
    def state(self) -> ShardState:
        """Where in its life it is."""
        return self._state

    def status(self, *, with_spec: bool = False) -> ShardStatus:
        """Its state in the protocol's words."""
        return ShardStatus(
            shard_id=self.id,
            state=self._state,
            endpoint=self._run.endpoint,
            pid=self._run.process.pid if self._run.process else 0,
            message=self._message,
            adopted=self._adopted,
            spec=self.spec if with_spec else None,
            restarts=self._restarts,
            prepared=self._rally.waiting,
            runtime_port=self._runtime_port,
            compute=self._run.compute,
        )

    def serving(self) -> Serving | None:
        """Its engine while it is ready, draining or not, and can say how busy it is; else none."""
        engine = self._site.engines.get(self.spec.engine)
        process, entry = self._run.process, self._run.entry
        if process is None or self._ready_at is None or entry is None or engine is None or self.spec.rank:
            return None
        if engine.load_metrics is None:
            return None
        return Serving(
            shard_id=self.id,
            pid=process.pid,
            target=Target(host=entry.host, port=entry.port, key=self._key),
            metrics=engine.load_metrics,
            slots=self.spec.slots,
        )

    def stop(self, *, grace_s: float, reason: str = "") -> None:
        """End it: SIGTERM, after `grace_s` SIGKILL. Again: the first order stands."""
        if self._stop_grace_s is None:
            self._stop_grace_s = max(0.0, grace_s)
            self._message = f"stopping: {reason}" if reason else "stopping"
            self._life.cancel()

    def drain(self, *, deadline_s: float, reason: str = "") -> None:
        """Let it finish what it has: routers send nothing more. It ends at the deadline, or when it is told to stop."""
        if self._state in (ShardState.STOPPED, ShardState.FAILED) or self._stop_grace_s is not None:
            return
        self._drain_until = trio.current_time() + max(0.0, deadline_s)
        self._life.deadline = self._drain_until
        self._set(ShardState.DRAINING, f"draining: {reason}" if reason else "draining")

    def rally(self, head: str) -> None:
        """One of several shards: the others' weights are there too, and the head takes this one in at `head`."""
        self._rally.go(head)

    async def run(self) -> None:
        """The whole life. Returns when it has ended and been told so; on cancellation the engine goes on."""
        try:
            with self._life:
                if self._state is not ShardState.FAILED:
                    await self._live_or_fail()
                await trio.sleep_forever()
            await self._finish()
        finally:
            self._run.let_go()

    async def _live_or_fail(self) -> None:
        try:
            await self._live()
        except LlmgwError as error:
            why = error.message
        except Exception as error:
            # A supervised border: one shard's trouble, foreseen or not, is that shard's and nobody else's.
            log.exception("A shard failed unexpectedly", extra={"shard": self.id})
            why = f"the agent could not run it: {type(error).__name__}: {error}"
        await self._run.end(FAILED_GRACE_S)
        await self._run.forget()
        self._set(ShardState.FAILED, why)

    async def _live(self) -> None:
        engine = self._engine()
        policy = RestartPolicy()
        if self._run.process is None:
            # Before weights are fetched for nothing. What runs already is not judged again by newer rules.
            engine.check_args(self.spec.args, self.spec.env)
            await self._start(engine)
        while True:
            ended = await self._attend(engine)
            if self._drain_until is not None:
                self.stop(grace_s=0.0, reason=ended.why)
                await trio.lowlevel.checkpoint()
            wait_s = policy.wait_after(ended.ready_s)
            lines = await trio.to_thread.run_sync(last_lines, self._site.output(self.id), LAST_LINES)
            log.warning("An engine ended: %s", ended.why, extra={"shard": self.id, "last_line": lines[-1:]})
            words = "\n".join(lines) or "it printed nothing"
            if self.spec.places:
                # It means nothing without the other shards, which end with it: the replica starts again as one.
                raise EngineGaveUp(f"{ended.why}. Its output: {words}")
            if wait_s is None:
                raise EngineGaveUp(
                    f"it failed {policy.failures} times in a row, last: {ended.why}. Its output: {words}"
                )
            last = f"; it said: {lines[-1]}" if lines else ""
            again = f"starting again in {wait_s:g} s" if wait_s else "starting again"
            self._restarts += 1
            self._set(ShardState.STARTING, f"{ended.why}, {again}{last}")
            await trio.sleep(wait_s)
            await self._start(engine)

    def _engine(self) -> Engine:
        engine = self._site.engines.get(RUNTIME if self.spec.rank else self.spec.engine)
        if engine is None:
            known = ", ".join(sorted(self._site.engines.keys() - {RUNTIME}))
            raise InvalidInput(
                f"engine {self.spec.engine[:80]!r} is not one this node can start: {known}", field="engine"
            )
        return engine

    async def _fetch(self, engine: Engine) -> Path | None:
        if not engine.needs_weights:
            return None
        if not self.spec.source:
            raise InvalidInput("a model path is required, and the shard has no source", field="source")
        if self._restarts == 0:
            self._set(ShardState.FETCHING, "")
        return await self._site.fetches.fetch(self.spec.source, shard_id=self.id, on_phase=self._on_phase)

    def _on_phase(self, phase: str) -> None:
        if self._state in (ShardState.FETCHING, ShardState.CHECKING):
            wanted = ShardState.CHECKING if phase == PHASE_CHECKING else ShardState.FETCHING
            if wanted is not self._state:
                self._set(wanted, "")

    async def _start(self, engine: Engine) -> None:
        """Start the engine once; one of several shards, when the others are there too."""
        weights = await self._fetch(engine)
        if self.spec.places:
            await self._rally.wait(lambda: self._set(ShardState.STARTING, WAITS_FOR_OTHERS))
        await self._run.start(engine, weights=weights, restarts=self._restarts, head=self._rally.head)
        self._adopted = False
        self._set(ShardState.STARTING, self._message if self._restarts else "")
        await self._run.note()

    async def _attend(self, engine: Engine) -> _Ended:
        """Watch one run of the engine to its end, which is ours when it is hung or never ready."""
        process, entry = self._run.process, self._run.entry
        assert process is not None
        assert entry is not None
        probe = Probe(self.spec, engine, entry, key=self._key, address=self._run.address)
        stuck = why = ""
        self._ready_at = None

        async def watch(scope: trio.CancelScope) -> None:
            nonlocal stuck
            stuck = await self._watch(probe, engine, was_ready=entry.ready)
            scope.cancel()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(watch, nursery.cancel_scope)
            why = f"the engine ended with {await process.wait()}"
            nursery.cancel_scope.cancel()
        # What it started besides must not outlive it, whoever ended it: it may hold cards, and would meet the next.
        await self._run.end(STUCK_GRACE_S)
        return _Ended(
            why=stuck or why, ready_s=None if self._ready_at is None else trio.current_time() - self._ready_at
        )

    async def _watch(self, probe: Probe, engine: Engine, *, was_ready: bool) -> str:
        """Wait for readiness, then for the engine to stop answering; why it has to be ended."""
        if not was_ready and (why := await probe.until_ready(self._on_open)):
            return why
        await self._run.read_compute(engine)
        await self._is_ready()
        return await probe.until_silent()

    def _on_open(self, port: int) -> None:
        self._runtime_port = port
        self._set(ShardState.STARTING, "the other shards may come in")

    async def _is_ready(self) -> None:
        self._ready_at = trio.current_time()
        if self._state is not ShardState.DRAINING:
            self._set(ShardState.READY, "taken over from an earlier agent" if self._adopted else "")
        await self._run.note_ready()

    async def _finish(self) -> None:
        """The end that was ordered, or the drain's deadline."""
        grace_s = FAILED_GRACE_S if self._stop_grace_s is None else self._stop_grace_s
        if self._run.process is not None:
            self._set(ShardState.DRAINING, self._message)
            await self._run.end(grace_s)
        await self._run.forget()
        self._set(ShardState.STOPPED, "")

    def _set(self, state: ShardState, message: str) -> None:
        self._message = message if len(message) <= MAX_MESSAGE_CHARS else message[: MAX_MESSAGE_CHARS - 1] + "…"
        # A shard that drains goes on draining, whatever its engine does.
        keeps = self._drain_until is not None and state not in (ShardState.STOPPED, ShardState.FAILED)
        self._state = ShardState.DRAINING if keeps else state
        log.info("Shard %s is %s", self.id, self._state.name, extra={"shard": self.id, "why": self._message})
        self._site.outbox.shard(self.status())
