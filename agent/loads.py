"""Engines are asked how busy they are, each for itself: one that hangs, lies or answers without end delays nobody.

What an engine said last stands, with its age, until it says something else or is silent for LOAD_HOLDS_S: an engine in
the middle of a long batch does not answer, and is as busy as it was.
"""

import logging
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import trio

from agent.columns import loads_message
from agent.engines.loads import LoadMetrics, read_load
from agent.readiness import Answer, NoAnswer, Target, get
from agent.state import Outbox
from llmgw.core.figures import LOAD_HOLDS_S, LOAD_TOLD_EVERY_S, EngineLoad, ToldLoad
from llmgw.wire.llmgw.v1 import EngineLoads

log = logging.getLogger("agent.loads")

ASK_EVERY_S = 1.0
"""Pause between two questions to one engine."""
ASK_TIMEOUT_S = 1.0
"""For the whole answer."""
LONGEST_PAUSE_S = 8.0
"""An engine that does not say is asked less often: the pause doubles to this."""
PAGE_MAX_BYTES = 1024 * 1024
"""A longer page is not read: an engine's has some ten to hundred kilobytes."""
SETTLE_S = 0.25
"""A round's answers are waited for so long before they are told; later ones are told with the next."""
COMPLAIN_AFTER = 3
"""So many failures in a row are worth a line in the log."""


@dataclass(frozen=True, kw_only=True)
class Serving:
    """A ready engine, by the process it is: one that was started again is another."""

    shard_id: str
    pid: int
    target: Target
    metrics: LoadMetrics
    slots: int
    """Of the profile; 0 is not said."""


class Teller:
    """Decides when there is something to tell: at a change, and now and then without one."""

    def __init__(self) -> None:
        self._said: Mapping[str, EngineLoad] = {}
        self._told_at = -math.inf

    def forget(self) -> None:
        """The next loads are told whatever they are: a new connection knows nothing."""
        self._told_at = -math.inf

    def message(self, loads: Mapping[str, ToldLoad], now: float) -> EngineLoads | None:
        """All `loads`, by shard id; none when there are none, or when they were told a moment ago."""
        said = {shard_id: told.load for shard_id, told in loads.items()}
        if said == self._said and now - self._told_at < LOAD_TOLD_EVERY_S:
            return None
        self._said, self._told_at = said, now
        return loads_message(loads) if loads else None


class LoadService:
    """Asks every ready engine for ever, and tells the control plane."""

    def __init__(self, serving: Callable[[], Iterable[Serving]], outbox: Outbox) -> None:
        """`serving` is asked before every round."""
        self._serving = serving
        self._outbox = outbox
        self._engines: dict[str, _Asked] = {}
        self._teller = Teller()
        self._answered = trio.Event()

    def tell_again(self) -> None:
        """Tell everything with the next round, changed or not."""
        self._teller.forget()

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Ask and tell, round after round."""
        async with trio.open_nursery() as nursery:
            task_status.started()
            while True:
                began = trio.current_time()
                self._look()
                due = [engine for engine in self._engines.values() if engine.ask_at <= began and not engine.asking]
                for engine in due:
                    engine.asking = True
                    nursery.start_soon(self._ask, engine)
                with trio.move_on_after(SETTLE_S):
                    while any(engine.asking for engine in due):
                        await self._answered.wait()
                now = trio.current_time()
                message = self._teller.message({id_: e.told(now) for id_, e in self._engines.items()}, now)
                if message is not None:
                    self._outbox.loads(message)
                await trio.sleep_until(began + ASK_EVERY_S)

    def _look(self) -> None:
        """Who is there to be asked; what is not any more is forgotten, and an answer still to come is nobody's."""
        there = {serving.shard_id: serving for serving in self._serving()}
        known = self._engines
        self._engines = {
            shard_id: known[shard_id] if shard_id in known and known[shard_id].serving == serving else _Asked(serving)
            for shard_id, serving in there.items()
        }

    async def _ask(self, engine: "_Asked") -> None:
        """One question, at most ASK_TIMEOUT_S long."""
        try:
            answer = await get(
                engine.serving.target,
                engine.serving.metrics.path,
                max_bytes=PAGE_MAX_BYTES,
                timeout_s=ASK_TIMEOUT_S,
            )
            engine.hear(answer, trio.current_time())
        except NoAnswer as error:
            engine.fail(str(error), trio.current_time())
        finally:
            engine.asking = False
            self._answered.set()
            self._answered = trio.Event()


class _Asked:
    """An engine and what it said."""

    def __init__(self, serving: Serving) -> None:
        self.serving = serving
        self.asking = False
        self.ask_at = -math.inf
        self._load = EngineLoad()
        self._said_at = -math.inf
        self._failures = 0
        self._in_a_row = 0

    def told(self, now: float) -> ToldLoad:
        """What it said last, if that still counts."""
        age_s = now - self._said_at
        if age_s >= LOAD_HOLDS_S:
            return ToldLoad(failures=self._failures)
        return ToldLoad(load=self._load, age_s=age_s, failures=self._failures)

    def hear(self, answer: Answer, now: float) -> None:
        """Take in a page, or count it as none."""
        where = self.serving.metrics.path
        if answer.status != 200:
            self.fail(f"answers {answer.status}", now)
            return
        if answer.cut:
            self.fail(f"answers more than {PAGE_MAX_BYTES} bytes", now)
            return
        if answer.broken:
            self.fail("breaks its answer off", now)
            return
        load = read_load(answer.body.decode(errors="replace"), self.serving.metrics, slots=self.serving.slots)
        if load.silent:
            self.fail("says nothing of what the engine works on", now)
            return
        if self._in_a_row >= COMPLAIN_AFTER:
            log.info("%s of an engine can be read again", where, extra={"shard": self.serving.shard_id})
        self._load, self._said_at, self._in_a_row, self.ask_at = load, now, 0, now

    def fail(self, why: str, now: float) -> None:
        """It did not say; it goes on serving, and is asked again after a while."""
        self._failures += 1
        self._in_a_row += 1
        self.ask_at = now + min(LONGEST_PAUSE_S, ASK_EVERY_S * 2 ** min(self._in_a_row - 1, 10))
        if self._in_a_row == COMPLAIN_AFTER:
            shown = f"{self.serving.metrics.path} {why}"
            log.warning("How busy an engine is cannot be read: %s", shown, extra={"shard": self.serving.shard_id})
