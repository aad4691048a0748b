"""Twice the load that an engine takes: what is still answered, and how long who goes first waits for a first token.

One simulated engine with a fixed number of slots, one router, keys of two bands. Both figures are compared with the
same router's own: the most it answered of a load that fits, and the first tokens of the higher band alone. The flood
comes at a fixed rate, whatever becomes of it. Once more without figures of the engine, so that nothing is held back.
"""

import contextlib
import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import trio

from llmgw.core.admission import Admission, Band
from llmgw.core.routing import KeyRecord
from tests.bench.asking import ask
from tests.bench.gateways import Gateway
from tests.bench.ours import router
from tests.bench.report import spread, table
from tests.bench.sim_engines import loads, sim_engine

SLOTS = 8
RATE = 100
TOKENS = 32
PREFILL_MS = 40
CLIENTS = 2 * SLOTS
"""That keep the engine busy without overloading it."""
GOLD_CLIENTS = 2
TIMES = 2.0
"""The flood, in what was answered at most."""
QUEUE_TTL_S = 5.0
KEYS = {"sk-overload-gold": "gold", "sk-overload-bronze": "bronze"}
RULES = Admission(bands=(Band(name="gold", priority=10), Band(name="bronze", priority=-10, queue_ttl=QUEUE_TTL_S)))


@dataclass(frozen=True, kw_only=True)
class Overload:
    """One round."""

    title: str
    peak_per_s: float
    """Answers a second of a load that fits."""
    flood_per_s: float
    """Answers a second under the flood, of both bands."""
    alone_ms: float
    """95th percentile of first tokens of the higher band alone."""
    flooded_ms: float
    """The same under the flood."""
    refused: int
    waited_in_vain: int
    wrong: tuple[str, ...] = ()

    @property
    def goodput(self) -> float:
        """Share of the peak that was still answered."""
        return self.flood_per_s / max(self.peak_per_s, 0.001)

    @property
    def times(self) -> float:
        """How much longer the higher band waited for a first token."""
        return self.flooded_ms / max(self.alone_ms, 0.001)


@dataclass(kw_only=True)
class OverloadFigures:
    """All rounds."""

    rounds: list[Overload] = field(default_factory=list)

    def wrong(self) -> list[str]:
        """What came wrong."""
        return [f"{r.title}: {why}" for r in self.rounds for why in r.wrong]


@dataclass(kw_only=True)
class _Seen:
    """What the clients of one load saw."""

    answered: int = 0
    first_ms: list[float] = field(default_factory=list)
    statuses: dict[int, int] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)

    def p95_ms(self) -> float:
        ordered = sorted(self.first_ms)
        return ordered[math.ceil(0.95 * len(ordered)) - 1] if ordered else math.nan


def measure_overload(rounds: int, seconds: float, directory: Path) -> OverloadFigures:
    """Interleaved rounds, with and without what the engine says; raises Missing when something does not start."""
    figures = OverloadFigures()
    for number in range(rounds):
        for title, tells in (("admission", True), ("nothing held back", False)):
            made = directory / f"{number}-{tells}"
            made.mkdir()
            with contextlib.ExitStack() as stack:
                port = stack.enter_context(_engine())
                keys = {key: KeyRecord(id=band, name=band, band=band) for key, band in KEYS.items()}
                says = partial(loads, (port,), SLOTS) if tells else None
                gateway = router(stack, made / "gateway", port, admission=RULES, keys=keys, loads=says)
                figures.rounds.append(trio.run(_round, title, gateway, seconds))
    figures.rounds.sort(key=lambda r: r.title)
    return figures


async def _round(title: str, gateway: Gateway, seconds: float) -> Overload:
    peak, alone, gold, bronze = _Seen(), _Seen(), _Seen(), _Seen()
    gold_key, bronze_key = KEYS
    await _loaded(gateway, seconds, [(bronze_key, peak, CLIENTS)])
    await _loaded(gateway, seconds, [(gold_key, alone, GOLD_CLIENTS)])
    peak_per_s = peak.answered / seconds
    flood = (bronze_key, bronze, TIMES * peak_per_s)
    await _loaded(gateway, seconds, [(gold_key, gold, GOLD_CLIENTS)], flood)
    return Overload(
        title=title,
        peak_per_s=peak_per_s,
        flood_per_s=(gold.answered + bronze.answered) / seconds,
        alone_ms=alone.p95_ms(),
        flooded_ms=gold.p95_ms(),
        refused=bronze.statuses.get(429, 0) + gold.statuses.get(429, 0),
        waited_in_vain=bronze.statuses.get(504, 0) + gold.statuses.get(504, 0),
        wrong=tuple((peak.wrong + alone.wrong + gold.wrong + bronze.wrong)[:3]),
    )


async def _loaded(
    gateway: Gateway,
    seconds: float,
    steady: list[tuple[str, _Seen, int]],
    flood: tuple[str, _Seen, float] | None = None,
) -> None:
    """Steady clients that ask one request after another, and a flood at a fixed rate; counted is what ends in time."""
    until = trio.current_time() + seconds
    with trio.move_on_at(until):
        async with trio.open_nursery() as nursery:
            for key, seen, clients in steady:
                for _ in range(clients):
                    nursery.start_soon(_again_and_again, gateway.port, key, seen)
            if flood is not None:
                key, seen, per_s = flood
                begun = trio.current_time()
                for number in range(math.ceil(per_s * seconds)):
                    await trio.sleep_until(begun + number / per_s)
                    nursery.start_soon(_ask, gateway.port, key, seen)
            await trio.sleep_forever()


async def _again_and_again(port: int, key: str, seen: _Seen) -> None:
    while True:
        await _ask(port, key, seen)


async def _ask(port: int, key: str, seen: _Seen) -> None:
    began = trio.current_time()
    asked = await ask(port, key, {"max_tokens": TOKENS, "messages": [{"role": "user", "content": "go on"}]})
    seen.statuses[asked.status] = seen.statuses.get(asked.status, 0) + 1
    if asked.whole:
        seen.answered += 1
        seen.first_ms.append((asked.first_at - began) * 1000)
    elif asked.status not in (429, 504):
        seen.wrong.append(asked.why)


@contextlib.contextmanager
def _engine() -> Iterator[int]:
    """A simulated engine that lets everybody wait; its port."""
    with sim_engine("--rate", str(RATE), "--prefill-ms", str(PREFILL_MS), "--queue", "100000", slots=SLOTS) as port:
        yield port


def overload_text(figures: OverloadFigures) -> str:
    """A row for each way, medians over its rounds."""
    head = ["", "answers/s at most", f"at {TIMES:g} times that", "share", "gold p95 first ms alone", "flooded", "times"]
    head += ["429", "504"]
    rows = []
    for title in dict.fromkeys(r.title for r in figures.rounds):
        rounds = [r for r in figures.rounds if r.title == title]
        rows.append(
            [
                title,
                spread([r.peak_per_s for r in rounds], 1),
                spread([r.flood_per_s for r in rounds], 1),
                spread([100 * r.goodput for r in rounds], 1) + "%",
                spread([r.alone_ms for r in rounds], 1),
                spread([r.flooded_ms for r in rounds], 1),
                spread([r.times for r in rounds], 1),
                str(sum(r.refused for r in rounds)),
                str(sum(r.waited_in_vain for r in rounds)),
            ]
        )
    return f"overload: one engine with {SLOTS} slots, {GOLD_CLIENTS} clients of band gold\n" + table([head, *rows])
