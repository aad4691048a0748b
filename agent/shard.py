"""One shard's life: its engine is started, watched, started again, and ended; every transition is told at once.

    pending → fetching → checking → starting ⇄ ready → draining → stopped
A shard that failed stays failed until it is told to stop. Whatever happens to the agent, the journal says what runs.
"""

import logging
from dataclasses import dataclass
from pathlib import Path

import msgspec
import trio

from agent.engines.base import Engine
from agent.fetches import PHASE_CHECKING
from agent.journal import Entry
from agent.loads import Serving
from agent.output import last_lines
from agent.ports import free_port
from agent.process import EngineProcess
from agent.readiness import Target, why_not_alive, why_not_ready
from agent.restarts import RestartPolicy
from agent.site import Site, prepare
from llmgw.core.errors import InvalidInput, LlmgwError, Unavailable
from llmgw.wire.llmgw.v1 import ShardSpec, ShardState, ShardStatus

log = logging.getLogger("agent.shard")

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
STUCK_GRACE_S = 5.0
"""A hung engine gets so long after SIGTERM."""
FAILED_GRACE_S = 5.0
RETRY_END_S = 1.0
"""Pause before an engine that could not be signalled is signalled again."""
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
        self._state = ShardState.PENDING
        self._message = ""
        self._restarts = 0
        self._adopted = False
        self._process: EngineProcess | None = None
        self._entry: Entry | None = None
        self._port: int | None = None
        self._ready_at: float | None = None
        self._life = trio.CancelScope()
        self._stop_grace_s: float | None = None
        self._drain_until: float | None = None

    @classmethod
    def adopted(cls, site: Site, entry: Entry, process: EngineProcess, *, key: str) -> "Shard":
        """A shard whose engine an earlier agent started."""
        shard = cls(site, entry.shard_spec(), key=key)
        shard._entry, shard._process, shard._restarts, shard._adopted = entry, process, entry.restarts, True
        shard._take_port(entry.port)
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
        host = f"[{self._site.address}]" if ":" in self._site.address else self._site.address
        return ShardStatus(
            shard_id=self.id,
            state=self._state,
            endpoint=f"http://{host}:{self._entry.port}" if self._entry else "",
            pid=self._process.pid if self._process else 0,
            message=self._message,
            adopted=self._adopted,
            spec=self.spec if with_spec else None,
            restarts=self._restarts,
        )

    def serving(self) -> Serving | None:
        """Its engine while it is ready, draining or not; else none."""
        engine = self._site.engines.get(self.spec.engine)
        if self._process is None or self._ready_at is None or self._entry is None or engine is None:
            return None
        return Serving(
            shard_id=self.id,
            pid=self._process.pid,
            target=Target(host=self._entry.host, port=self._entry.port, key=self._key),
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

    async def run(self) -> None:
        """The whole life. Returns when it has ended and been told so; on cancellation the engine goes on."""
        try:
            with self._life:
                if self._state is not ShardState.FAILED:
                    await self._live_or_fail()
                await trio.sleep_forever()
            await self._finish()
        finally:
            if self._process is not None:
                self._process.close()

    async def _live_or_fail(self) -> None:
        try:
            await self._live()
        except LlmgwError as error:
            why = error.message
        except Exception as error:
            # A supervised border: one shard's trouble, foreseen or not, is that shard's and nobody else's.
            log.exception("A shard failed unexpectedly", extra={"shard": self.id})
            why = f"the agent could not run it: {type(error).__name__}: {error}"
        await self._end_process(FAILED_GRACE_S)
        self._forget()
        self._set(ShardState.FAILED, why)

    async def _live(self) -> None:
        engine = self._engine()
        policy = RestartPolicy()
        if self._process is None:
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
            if wait_s is None:
                words = "\n".join(lines) or "it printed nothing"
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
        engine = self._site.engines.get(self.spec.engine)
        if engine is None:
            known = ", ".join(sorted(self._site.engines))
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
        """Start the engine once, the intent journalled before and the process after."""
        weights = await self._fetch(engine)
        # Chosen and noted without a checkpoint between, so that no two shards choose the same.
        self._take_port(None)
        port = free_port(self._site.host, self._site.ports, taken=self._site.ports_in_use, hint=self.id)
        self._take_port(port)
        prepared = await trio.to_thread.run_sync(
            lambda: prepare(
                self._site,
                self.spec,
                engine,
                key=self._key,
                weights=weights,
                port=port,
                restarts=self._restarts,
            )
        )
        self._entry = prepared.entry
        await self._write_journal()
        # No checkpoint between these lines: a process that runs is known to the shard, whatever is cancelled after.
        self._process = prepared.spawn()
        self._adopted = False
        self._entry = msgspec.structs.replace(self._entry, process=self._process.name)
        self._set(ShardState.STARTING, self._message if self._restarts else "")
        await self._write_journal()

    async def _write_journal(self) -> None:
        assert self._entry is not None
        try:
            await trio.to_thread.run_sync(self._site.journal.write, self._entry)
        except OSError as error:
            raise Unavailable(f"the journal cannot be written, so no engine is started: {error.strerror}") from error

    async def _attend(self, engine: Engine) -> _Ended:
        """Watch one run of the engine to its end, which is ours when it is hung or never ready."""
        process = self._process
        assert process is not None
        assert self._entry is not None
        target = Target(host=self._entry.host, port=self._entry.port, key=self._key)
        stuck = ""
        why = ""
        self._ready_at = None

        async def probe(scope: trio.CancelScope) -> None:
            nonlocal stuck
            stuck = await self._probe(engine, target)
            scope.cancel()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(probe, nursery.cancel_scope)
            why = f"the engine ended with {await process.wait()}"
            nursery.cancel_scope.cancel()
        if stuck:
            await process.stop(grace_s=STUCK_GRACE_S)
            why = stuck
        process.close()
        self._process = None
        return _Ended(why=why, ready_s=None if self._ready_at is None else trio.current_time() - self._ready_at)

    async def _probe(self, engine: Engine, target: Target) -> str:
        """Wait for readiness, then for the engine to stop answering; why it has to be ended."""
        names = engine.served_names(self.spec)
        pause_s, began, reason = FIRST_PROBE_S, trio.current_time(), ""
        was_ready = self._entry is not None and self._entry.ready
        limit_s = START_TIMEOUT_S + self.spec.memory_bytes * max(1, self.spec.tp) / SLOW_DISK_BYTES_PER_S
        while not was_ready and (reason := await why_not_ready(target, health_path=engine.health_path, names=names)):
            if trio.current_time() - began > limit_s:
                return f"the engine was not ready within {limit_s:.0f} s: {reason}"
            await trio.sleep(pause_s)
            pause_s = min(SLOWEST_PROBE_S, pause_s * 2)
        await self._is_ready()
        failures = 0
        while failures < LIVENESS_FAILURES:
            await trio.sleep(LIVENESS_EVERY_S)
            reason = await why_not_alive(target, health_path=engine.health_path)
            failures = failures + 1 if reason else 0
        return f"the engine was ended because it stopped answering: {reason}"

    async def _is_ready(self) -> None:
        self._ready_at = trio.current_time()
        if self._state is not ShardState.DRAINING:
            self._set(ShardState.READY, "taken over from an earlier agent" if self._adopted else "")
        if self._entry is not None and not self._entry.ready:
            self._entry = msgspec.structs.replace(self._entry, ready=True)
            try:
                await self._write_journal()
            except Unavailable as error:
                # It runs and serves; at worst the next agent takes a moment longer to call it ready.
                log.warning("%s", error.message, extra={"shard": self.id})

    async def _finish(self) -> None:
        """The end that was ordered, or the drain's deadline."""
        grace_s = FAILED_GRACE_S if self._stop_grace_s is None else self._stop_grace_s
        if self._process is not None:
            self._set(ShardState.DRAINING, self._message)
            await self._end_process(grace_s)
        self._forget()
        self._set(ShardState.STOPPED, "")

    async def _end_process(self, grace_s: float) -> None:
        while self._process is not None:
            try:
                await self._process.stop(grace_s=grace_s)
            except OSError as error:
                # Out of descriptors or the like: what runs is not forgotten, its end is tried again.
                log.warning("An engine could not be ended yet: %s", error, extra={"shard": self.id})
                await trio.sleep(RETRY_END_S)
            else:
                self._process.close()
                self._process = None

    def _forget(self) -> None:
        """Nothing runs any more: the journal and the key go, the output stays for those who ask why."""
        try:
            self._site.journal.remove(self.id)
            self._site.key_file(self.id).unlink(missing_ok=True)
        except OSError as error:
            # An entry without a process behind it is found out at the next start.
            log.warning("The journal could not be tidied: %s", error, extra={"shard": self.id})
        self._entry = None
        self._take_port(None)

    def _take_port(self, port: int | None) -> None:
        """Give back the port it had and note the one it has now."""
        if self._port is not None:
            self._site.ports_in_use.discard(self._port)
        self._port = port
        if port is not None:
            self._site.ports_in_use.add(port)

    def _set(self, state: ShardState, message: str) -> None:
        self._message = message if len(message) <= MAX_MESSAGE_CHARS else message[: MAX_MESSAGE_CHARS - 1] + "…"
        # A shard that drains goes on draining, whatever its engine does.
        keeps = self._drain_until is not None and state not in (ShardState.STOPPED, ShardState.FAILED)
        self._state = ShardState.DRAINING if keeps else state
        log.info("Shard %s is %s", self.id, self._state.name, extra={"shard": self.id, "why": self._message})
        self._site.outbox.shard(self.status())
