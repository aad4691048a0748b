"""How much later the first token comes through a gateway than from the engine, and how much that varies."""

from dataclasses import dataclass, field
from pathlib import Path

from tests.bench.gateways import Gateway, Maker, clients_for, gateways
from tests.bench.load import LoadPlan
from tests.bench.native import Timed, engine, time_load
from tests.bench.proc import tree_cpu_ms
from tests.bench.report import spread, table
from tests.bench.streams import MAX_STREAMS, WARM_S, Effort

CLIENTS = 32
TOKENS = 16
GAP_US = 5000
SPREAD_US = TOKENS * GAP_US // CLIENTS
"""Clients begin evenly over one stream's time, so that their requests do not come in one heap."""


@dataclass(frozen=True, kw_only=True)
class Round:
    """One gateway in one round."""

    gateway: str
    clients: int
    seen: Timed
    cores: float
    """That the gateway kept busy."""


@dataclass(kw_only=True)
class FirstTokenFigures:
    """All rounds of all gateways."""

    rounds: list[Round] = field(default_factory=list)
    skipped: dict[str, str] = field(default_factory=dict)

    def wrong(self) -> list[str]:
        """What came wrong, by gateway."""
        return [f"{r.gateway}: {r.seen.wrong} streams, {r.seen.why}" for r in self.rounds if r.seen.wrong]


def measure_first_token(
    makers: dict[str, Maker], effort: Effort, programs: tuple[Path, Path], directory: Path
) -> FirstTokenFigures:
    """Interleaved rounds; `programs` are the engine and the client."""
    figures = FirstTokenFigures()
    with (
        engine(programs[0], gap_us=GAP_US, tokens=TOKENS) as (_, engine_port),
        gateways(makers, directory, engine_port) as (running, figures.skipped),
    ):
        for gateway in running:
            _round(gateway, WARM_S, programs[1])
        for number in range(effort.rounds):
            for gateway in running[number % len(running) :] + running[: number % len(running)]:
                figures.rounds.append(_round(gateway, effort.seconds, programs[1]))
        figures.rounds.sort(key=lambda r: [gateway.name for gateway in running].index(r.gateway))
    return figures


def _round(gateway: Gateway, seconds: float, client: Path) -> Round:
    clients = clients_for(gateway, CLIENTS)
    plan = LoadPlan(
        port=gateway.port, clients=clients, streams=MAX_STREAMS, seconds=seconds, tokens=TOKENS, key=gateway.key
    )
    cpu = tree_cpu_ms(gateway.roots)
    seen = time_load(client, plan, spread_us=SPREAD_US)
    cores = (tree_cpu_ms(gateway.roots) - cpu) / 1000 / seen.seconds
    return Round(gateway=gateway.name, clients=clients, seen=seen, cores=cores)


def first_token_text(figures: FirstTokenFigures) -> str:
    """A row a gateway: its own first token, and by how much it is later than the engine's."""
    head = [
        "",
        "rounds",
        "clients",
        "streams",
        "p50 ms",
        "p99 ms",
        "added p50 ms",
        "added p99 ms",
        "its cores",
        "wrong",
    ]
    rows = []
    base = [r.seen.first_us for r in figures.rounds if r.gateway == "direct"]
    for name in dict.fromkeys(r.gateway for r in figures.rounds):
        rounds = [r for r in figures.rounds if r.gateway == name]
        row = [name, str(len(rounds)), str(rounds[0].clients), str(sum(r.seen.right for r in rounds))]
        row += [spread([r.seen.first_us[i] / 1000 for r in rounds], 2) for i in (0, 1)]
        added = [[(r.seen.first_us[i] - b[i]) / 1000 for r, b in zip(rounds, base, strict=False)] for i in (0, 1)]
        row += ["–", "–"] if name == "direct" else [spread(values, 2) for values in added]
        row += [spread([r.cores for r in rounds], 2), str(sum(r.seen.wrong for r in rounds))]
        rows.append(row)
    title = f"first-token: {CLIENTS} streams at once, a token every {GAP_US / 1000:g} ms, {TOKENS} tokens each;"
    notes = [f"skipped: {name}: {why}" for name, why in figures.skipped.items()]
    return "\n".join([f"{title} medians (lowest–highest)", table([head, *rows]), *notes])
