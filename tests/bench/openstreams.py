"""Five thousand slow streams open at once: that all come whole, and what a gateway holds in memory for them."""

import resource
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path

from tests.bench.gateways import Gateway, Maker, gateways, until
from tests.bench.load import LoadPlan
from tests.bench.native import Missing, Timed, child, client_argv, engine, time_load, timed
from tests.bench.proc import Memory, descriptors, memory, tree, tree_cpu_ms
from tests.bench.report import MIB, table

STREAMS = 5000
GAP_US = 500_000
TOKENS = 40
SPREAD_US = 1000
"""Five seconds until all are open, of the twenty that each takes."""
WARM_STREAMS = 200
WARM_SPREAD_US = 10_000
LIMIT_S = 120.0
DESCRIPTORS = 2 * STREAMS + 500
"""A gateway has a socket for the client and one for the engine a stream."""
REST_S = 3.0
"""After the last stream, before memory is taken again."""


@dataclass(kw_only=True)
class OpenStreams:
    """One gateway."""

    gateway: str
    before: Memory
    at: Memory
    """While all are open."""
    after: Memory
    descriptors: int
    """While all are open."""
    cores: float
    """That the gateway kept busy while all were open, with some ten thousand tokens a second."""
    seen: Timed


@dataclass(kw_only=True)
class OpenFigures:
    """All gateways, one after the other."""

    gateways: list[OpenStreams] = field(default_factory=list)
    skipped: dict[str, str] = field(default_factory=dict)

    def wrong(self) -> list[str]:
        """What came wrong, by gateway."""
        seen = [(g.gateway, g.seen) for g in self.gateways]
        return [f"{name}: {s.right} of {STREAMS} right; {s.why}" for name, s in seen if s.right != STREAMS]


def raise_descriptors(needed: int) -> None:
    """Let this process and its children open so many; raises Missing where the machine allows fewer."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < needed:
        raise Missing(f"a process may open {hard} descriptors here, and {needed} are needed (ulimit -Hn)")
    resource.setrlimit(resource.RLIMIT_NOFILE, (needed if hard == resource.RLIM_INFINITY else hard, hard))


def measure_open_streams(makers: dict[str, Maker], programs: tuple[Path, Path], directory: Path) -> OpenFigures:
    """Each gateway in turn; raises Missing when so many descriptors cannot be had."""
    raise_descriptors(DESCRIPTORS)
    figures = OpenFigures()
    with (
        engine(programs[0], gap_us=GAP_US, tokens=TOKENS) as (_, engine_port),
        gateways(makers, directory, engine_port) as (running, figures.skipped),
    ):
        for gateway in running:
            if gateway.few:
                figures.skipped[gateway.name] = f"{STREAMS} streams would take it far longer than they last"
            elif gateway.roots:
                figures.gateways.append(_measure(gateway, programs[1]))
    return figures


def _measure(gateway: Gateway, client: Path) -> OpenStreams:
    time_load(client, _plan(gateway, WARM_STREAMS), spread_us=WARM_SPREAD_US)
    time.sleep(REST_S)
    before = memory(tree(gateway.roots))
    argv = client_argv(client, _plan(gateway, STREAMS), spread_us=SPREAD_US)
    with child(argv, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        first = process.stdout.readline()
        began, cpu = time.monotonic(), tree_cpu_ms(gateway.roots)
        at, opened = memory(tree(gateway.roots)), descriptors(tree(gateway.roots))
        time.sleep(REST_S)
        cores = (tree_cpu_ms(gateway.roots) - cpu) / 1000 / (time.monotonic() - began)
        rest = process.stdout.read()
    until(lambda: descriptors(tree(gateway.roots)) < opened or opened <= 1, "the end of the clients' connections")
    time.sleep(REST_S)
    after = memory(tree(gateway.roots))
    return OpenStreams(
        gateway=gateway.name,
        before=before,
        at=at,
        after=after,
        descriptors=opened,
        cores=cores,
        seen=timed((first + rest).decode()),
    )


def _plan(gateway: Gateway, streams: int) -> LoadPlan:
    return LoadPlan(
        port=gateway.port, clients=streams, streams=streams, seconds=LIMIT_S, tokens=TOKENS, key=gateway.key
    )


def open_streams_text(figures: OpenFigures) -> str:
    """A row a gateway."""
    head = ["", "right", "open at once", "PSS MiB before", "all open", "after", "KiB a stream", "descriptors"]
    head += ["its cores, all open", "first token p50, p99 ms"]
    rows = []
    for g in figures.gateways:
        row = [g.gateway, f"{g.seen.right} of {STREAMS}", str(g.seen.open_most)]
        row += [f"{m.pss / MIB:.1f}" for m in (g.before, g.at, g.after)]
        row += [f"{(g.at.pss - g.before.pss) / STREAMS / 1024:.1f}", str(g.descriptors), f"{g.cores:.2f}"]
        row.append(", ".join(f"{us / 1000:.1f}" for us in g.seen.first_us))
        rows.append(row)
    title = f"streams-5000: {STREAMS} streams at once, a token every {GAP_US / 1000:g} ms, {TOKENS} tokens each"
    notes = [f"skipped: {name}: {why}" for name, why in figures.skipped.items()]
    return "\n".join([title, table([head, *rows]), *figures.wrong(), *notes])
