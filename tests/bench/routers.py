"""One and two router processes on one port (SO_REUSEPORT): what each costs a request, and how much they do.

Two have twice the clients of one: with the same, each would find half as many tokens at a look, which costs more.
"""

import statistics
import time
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from tests.bench.gateways import Gateway, gateways
from tests.bench.native import engine, load
from tests.bench.ours import router
from tests.bench.proc import cpu_ms
from tests.bench.report import spread, table
from tests.bench.streams import MODES, TOKENS, USAGE_WAIT_S, WARM_S, Effort, check, plan_for

SHAPE = MODES["paced"]
COUNTS = (1, 2)


@dataclass(frozen=True, kw_only=True)
class Share:
    """One router process in one round."""

    routers: int
    """How many there were."""
    index: int
    requests: int
    """That it answered, by its own report."""
    cpu_ms: float
    """A request."""
    cores: float
    per_s: float
    """Of all routers together, as the load saw it."""


@dataclass(kw_only=True)
class RoutersFigures:
    """All shares of all rounds."""

    shares: list[Share] = field(default_factory=list)
    checked: dict[int, str] = field(default_factory=dict)
    """What the stream check found, by the number of routers."""

    def of(self, routers: int, index: int | None = None) -> list[Share]:
        """Of so many routers, all or one."""
        return [s for s in self.shares if s.routers == routers and index in (None, s.index)]

    def mean_cpu_ms(self, routers: int) -> float:
        """A request, over all processes and rounds."""
        shares = self.of(routers)
        requests = sum(s.requests for s in shares)
        return sum(s.cpu_ms * s.requests for s in shares) / max(1, requests)


def measure_routers(effort: Effort, program: Path, directory: Path) -> RoutersFigures:
    """Interleaved rounds with one router and with two; raises Missing when they do not start."""
    figures = RoutersFigures()
    makers = {str(n): partial(router, processes=n, name=f"{n} routers") for n in COUNTS}
    with (
        engine(program, gap_us=SHAPE.gap_us, tokens=TOKENS) as (_, engine_port),
        gateways(makers, directory, engine_port) as (running, skipped),
    ):
        if skipped:
            figures.checked = {int(name): why for name, why in skipped.items()}
            return figures
        for gateway in running:
            figures.checked[len(gateway.roots)] = check(gateway, _clients(gateway))
            load(directory, plan_for(gateway, _clients(gateway), WARM_S))
        for _ in range(effort.rounds):
            for gateway in running:
                figures.shares += _round(gateway, effort.seconds, directory)
    return figures


def _clients(gateway: Gateway) -> int:
    return SHAPE.clients * len(gateway.roots)


def _round(gateway: Gateway, seconds: float, directory: Path) -> list[Share]:
    before, cpu = _settled(gateway), [cpu_ms([pid]) for pid in gateway.roots]
    began = time.monotonic()
    seen = load(directory, plan_for(gateway, _clients(gateway), seconds))
    took_ms = (time.monotonic() - began) * 1000
    cpu = [cpu_ms([pid]) - was for pid, was in zip(gateway.roots, cpu, strict=True)]
    after = _settled(gateway, at_least=sum(before.values()) + seen.requests)
    return [
        Share(
            routers=len(gateway.roots),
            index=index,
            requests=(requests := after[index] - before[index]),
            cpu_ms=used / max(1, requests),
            cores=used / took_ms,
            per_s=seen.requests / seen.seconds,
        )
        for index, used in enumerate(cpu)
    ]


def _settled(gateway: Gateway, at_least: int = 0) -> dict[int, int]:
    """Requests by router once they have told of so many, and of no more for as long as they may be silent."""
    assert gateway.feed is not None
    seen: dict[int, int] = {}
    deadline, quiet_until = time.monotonic() + USAGE_WAIT_S, 0.0
    while time.monotonic() < deadline:
        if gateway.feed.answered != seen or sum(seen.values()) < at_least:
            seen, quiet_until = dict(gateway.feed.answered), time.monotonic() + REPORT_S
        elif time.monotonic() >= quiet_until:
            break
        time.sleep(0.05)
    return seen


REPORT_S = 2.5
"""A router speaks at least every two seconds."""


def routers_text(figures: RoutersFigures) -> str:
    """A row a process, and the ratio of two's cost to one's."""
    head = ["", "rounds", "requests", "CPU ms/request", "its cores", "requests/s together"]
    rows = []
    for count in COUNTS:
        for index in range(count):
            shares = figures.of(count, index)
            row = [f"{count} {'router' if count == 1 else 'routers'}, {index}", str(len(shares))]
            row += [spread([float(s.requests) for s in shares], 0), spread([s.cpu_ms for s in shares], 3)]
            row += [spread([s.cores for s in shares], 2), spread([s.per_s for s in shares], 0)]
            rows.append(row)
    one, two = (figures.mean_cpu_ms(count) for count in COUNTS)
    shape = f"a token every {SHAPE.gap_us / 1000:g} ms, {SHAPE.clients} clients a router"
    title = f"routers-2: {shape}; medians (lowest–highest)"
    lines = [title, table([head, *rows])]
    if one and two:
        work = [statistics.median(s.per_s for s in figures.of(count, 0)) for count in COUNTS]
        lines.append(
            f"a request costs {one:.3f} ms with one router, {two:.3f} ms with two: {two / one:.2f}×, "
            f"for {work[1] / work[0]:.2f}× the work"
        )
    return "\n".join([*lines, f"checked: {figures.checked}"])
