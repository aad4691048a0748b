"""A recorded day, drawn together: requests come when the trace says, whatever became of those before.

Several simulated engines, and routers before them in turn, each with engines of its own that begin empty. First it is
measured what these engines answer of the trace's prompts at most; then the trace is replayed at a share of that which
fits, and at a multiple that does not. Every figure is of the client that came at its time, so that nobody waits unseen.
"""

import contextlib
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import trio

from llmgw.core.admission import Admission, Band
from llmgw.core.routing import Scoring, UsageRow
from tests.bench.asking import ask
from tests.bench.gateways import Gateway, Maker, until
from tests.bench.native import Missing
from tests.bench.ours import router
from tests.bench.prefix import replay
from tests.bench.report import spread, table
from tests.bench.rivals import vllm_router
from tests.bench.sim_engines import loads, sim_engine
from tests.bench.traces import Arrival, at_rate

ENGINES = 4
SLOTS = 4
RATE = 50
PREFILL_PER_TOKEN_US = 1000
CACHE_KB = 768
CTX = 131_072
ENGINE_FLAGS = (
    f"--rate={RATE}",
    "--prefill-ms=5",
    f"--prefill-per-token-us={PREFILL_PER_TOKEN_US}",
    f"--prefix-cache-kb={CACHE_KB}",
    f"--ctx-size={CTX}",
    "--queue=100000",
)
FITS, FLOOD = 0.7, 2.0
"""Shares of what is answered at most, at which the trace is replayed."""
PEAK_PROMPTS = 200
QUEUE_TTL_S = 3.0
RULES = Admission(bands=(Band(name="default", queue_ttl=QUEUE_TTL_S),))
REFUSALS = (429, 503, 504)
P95 = 0.95


@dataclass(frozen=True, kw_only=True)
class Replayed:
    """One router at one load."""

    gateway: str
    share: float
    """Of the peak, that came."""
    came: int
    answered: int
    """Whole, by the time the last one came."""
    refused: int
    first_ms: tuple[float, float]
    """Median and 95th percentile of first tokens since the request came."""
    let_in_ms: float
    """95th percentile of first tokens since the router let the request in; NaN where it does not say."""
    goodput: float
    """Answers a second, in what was answered at most."""
    wrong: tuple[str, ...] = ()


@dataclass(kw_only=True)
class ReplayedFigures:
    """All loads of all routers."""

    trace: str
    peaks: list[float] = field(default_factory=list)
    """Answers a second at most, each round."""
    rounds: list[Replayed] = field(default_factory=list)
    skipped: dict[str, str] = field(default_factory=dict)

    def wrong(self) -> list[str]:
        """What came wrong, by router."""
        return [f"{r.gateway}: {why}" for r in self.rounds for why in r.wrong]


@dataclass(kw_only=True)
class _Seen:
    """What the clients of one load saw."""

    until: float = math.inf
    """When the last request came."""
    ended_at: list[float] = field(default_factory=list)
    """When each whole answer ended."""
    first_ms: list[float] = field(default_factory=list)
    refused: int = 0
    wrong: list[str] = field(default_factory=list)


def lineup(names: Sequence[str], ports: Sequence[int]) -> dict[str, Maker]:
    """The routers of these names before engines at these ports; ours also taking turns and letting everybody in."""
    others, turns = tuple(ports[1:]), Scoring(load=False, sticky=False, prefix=False)
    says = partial(loads, ports, SLOTS)
    known: dict[str, dict[str, Maker]] = {
        "router": {
            "llmgw": partial(router, others=others, admission=RULES, loads=says),
            "llmgw, turns": partial(router, others=others, scoring=turns),
        },
        "vllm-router": {
            "vllm-router, cache_aware": partial(vllm_router, others=others, policy="cache_aware"),
            "vllm-router, turns": partial(vllm_router, others=others),
        },
    }
    return {title: make for name in names for title, make in known.get(name, {}).items()}


def measure_replayed(
    names: Sequence[str], rounds: int, seconds: float, found: Sequence[Arrival], trace: str, directory: Path
) -> ReplayedFigures:
    """Interleaved rounds of about so many seconds a load; routers that do not start are skipped. Raises Missing."""
    figures = ReplayedFigures(trace=trace)
    for number in range(rounds):
        figures.peaks.append(peak := _peak(found, directory / f"peak-{number}"))
        for share in (FITS, FLOOD):
            load = at_rate(found[: max(2, round(share * peak * seconds))], share * peak)
            for title in lineup(names, [0]):
                if title in figures.skipped:
                    continue
                made = directory / f"{number}-{share:g}-{title.replace(' ', '').replace(',', '-')}"
                try:
                    with _running(title, names, made) as gateway:
                        figures.rounds.append(_replayed(title, gateway, load, share, peak))
                except Missing as error:
                    figures.skipped[title] = str(error)
    order = list(lineup(names, [0]))
    figures.rounds.sort(key=lambda r: (r.share, order.index(r.gateway)))
    return figures


@contextlib.contextmanager
def _running(title: str, names: Sequence[str], made: Path) -> Iterator[Gateway]:
    """That router, before engines that begin empty."""
    with contextlib.ExitStack() as stack:
        ports = [stack.enter_context(sim_engine(*ENGINE_FLAGS, slots=SLOTS)) for _ in range(ENGINES)]
        yield lineup(names, ports)[title](stack, made, ports[0])


def _peak(found: Sequence[Arrival], made: Path) -> float:
    """Answers a second of clients that keep every slot busy and no more, through our router."""
    with contextlib.ExitStack() as stack:
        ports = [stack.enter_context(sim_engine(*ENGINE_FLAGS, slots=SLOTS)) for _ in range(ENGINES)]
        gateway = router(stack, made, ports[0], others=tuple(ports[1:]))
        asked = [one.prompt for one in found[:PEAK_PROMPTS]]
        seen = replay("peak", gateway, ports, asked, clients=ENGINES * SLOTS)
    if not seen.requests:
        raise Missing(f"no request of the trace was answered: {' '.join(seen.wrong)}")
    return seen.requests / seen.seconds


def _replayed(title: str, gateway: Gateway, load: Sequence[Arrival], share: float, peak: float) -> Replayed:
    rows: list[UsageRow] = []
    if gateway.feed is not None:
        gateway.feed.keep = rows
    seen = _Seen()
    trio.run(_all, gateway, load, seen)
    if gateway.feed is not None:
        until(lambda: len(rows) >= len(seen.first_ms), "the router's usage")
    span = load[-1].at_s
    answered = sum(at <= seen.until for at in seen.ended_at)
    let_in = [r.first_token_ms - r.waited_ms for r in rows if r.status == 200 and r.first_token_ms is not None]
    return Replayed(
        gateway=title,
        share=share,
        came=len(load),
        answered=answered,
        refused=seen.refused,
        first_ms=(percentile(seen.first_ms, 0.5), percentile(seen.first_ms, P95)),
        let_in_ms=percentile(let_in, P95),
        goodput=answered / span / peak,
        wrong=tuple(seen.wrong[:3]),
    )


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest value that so many are not above; NaN of none."""
    return sorted(values)[max(1, math.ceil(share * len(values))) - 1] if values else math.nan


async def _all(gateway: Gateway, load: Sequence[Arrival], seen: _Seen) -> None:
    began = trio.current_time()
    seen.until = began + load[-1].at_s
    async with trio.open_nursery() as nursery:
        for one in load:
            await trio.sleep_until(began + one.at_s)
            nursery.start_soon(_ask, gateway, one, began + one.at_s, seen)


async def _ask(gateway: Gateway, one: Arrival, due_at: float, seen: _Seen) -> None:
    document = {"max_tokens": one.prompt.tokens, "messages": [{"role": "user", "content": one.prompt.text}]}
    asked = await ask(gateway.port, gateway.key, document)
    if asked.whole:
        seen.ended_at.append(trio.current_time())
        seen.first_ms.append((asked.first_at - due_at) * 1000)
    elif asked.status in REFUSALS:
        seen.refused += 1
    else:
        seen.wrong.append(asked.why)


def replayed_text(figures: ReplayedFigures) -> str:
    """A row for each router at each load, medians over its rounds."""
    head = [
        "",
        "load",
        "came",
        "answered",
        "refused",
        "of the peak",
        "first token p50 ms",
        "p95 ms",
        "since let in p95 ms",
    ]
    rows = []
    for share, name in dict.fromkeys((r.share, r.gateway) for r in figures.rounds):
        rounds = [r for r in figures.rounds if (r.share, r.gateway) == (share, name)]
        told = not any(math.isnan(r.let_in_ms) for r in rounds)
        rows.append(
            [
                name,
                f"{share:g}×",
                str(sum(r.came for r in rounds)),
                str(sum(r.answered for r in rounds)),
                str(sum(r.refused for r in rounds)),
                spread([r.goodput * 100 for r in rounds], 0) + "%",
                spread([r.first_ms[0] for r in rounds], 0),
                spread([r.first_ms[1] for r in rounds], 0),
                spread([r.let_in_ms for r in rounds], 0) if told else "–",
            ]
        )
    title = (
        f"replay: {figures.trace}; {ENGINES} engines of {SLOTS} slots, {spread(figures.peaks, 1)} answers/s at most;"
    )
    notes = [f"skipped: {name}: {why}" for name, why in figures.skipped.items()]
    return "\n".join([f"{title} medians (lowest–highest)", table([head, *rows]), *notes])
