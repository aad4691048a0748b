"""What a cluster of 1,000 nodes of 8 cards costs its leader: a simulated fleet over the real protocol, at rest.

The nodes are one process that speaks for each over mutual TLS, tells its sensors and runs its simulated replicas.
Nobody asks the models anything, so what is measured is nodes being heard, figures being kept and decisions being made.
"""

import time
from dataclasses import dataclass
from pathlib import Path

from llmgw.api.client import AdminClient
from llmgw.api.targets import ServerTarget
from tests.bench.demo import READY_S, running
from tests.bench.native import Missing
from tests.bench.proc import Memory, cpu_ms, family, memory
from tests.bench.report import MIB, table

NODES, CARDS = 1000, 8
JOINED_S = 400.0
"""For all nodes to join and their replicas to come up, on a machine that does other things too."""
LOOK_S = 4.0
"""Between two looks at what is up: each makes the leader write all of it down."""
SETTLE_S = 15.0
PROCESSES = {"leader": " server ", "simulated fleet": " sim-fleet "}
"""By what their command lines hold."""


@dataclass(frozen=True, kw_only=True)
class Cost:
    """One process over the measured time."""

    name: str
    core_percent: float
    held: Memory


@dataclass(frozen=True, kw_only=True)
class FleetFigures:
    """One fleet."""

    nodes: int
    cards: int
    replicas: int
    """That were ready."""
    up_s: float
    """From READY until no more came."""
    seconds: float
    costs: tuple[Cost, ...]


def measure_fleet(seconds: float, directory: Path, nodes: int = NODES, cards: int = CARDS) -> FleetFigures:
    """One demo with such a fleet, looked at for so long; raises Missing when it does not come up."""
    data = directory / "fleet"
    options = ("--fleet", f"{nodes}x{cards}", "--no-visitors")
    with running("sim", data, READY_S + JOINED_S, *options) as started:
        client = AdminClient(ServerTarget(socket=Path(started.said["admin"].removeprefix("unix:"))))
        replicas, up_s = _up(client, nodes)
        time.sleep(SETTLE_S)
        pids = {name: _pid(str(data), mark) for name, mark in PROCESSES.items()}
        before = {name: cpu_ms([pid]) for name, pid in pids.items()}
        began = time.monotonic()
        time.sleep(seconds)
        took = time.monotonic() - began
        costs = tuple(
            Cost(name=name, core_percent=(cpu_ms([pid]) - before[name]) / took / 10, held=memory([pid]))
            for name, pid in pids.items()
        )
    return FleetFigures(nodes=nodes, cards=nodes * cards, replicas=replicas, up_s=up_s, seconds=took, costs=costs)


def _up(client: AdminClient, nodes: int) -> tuple[int, float]:
    """Wait until every node is connected and no more replicas come up; how many are ready, and how long that took."""
    began, ready, connected = time.monotonic(), -1, 0
    while time.monotonic() - began < JOINED_S:
        looked = time.monotonic()
        connected = sum(node.simulated and node.state == "connected" for node in client.nodes())
        now = sum(replica.state == "ready" for replica in client.replicas())
        if connected == nodes and now == ready:
            return ready, looked - began
        ready = now
        time.sleep(LOOK_S)
    raise Missing(f"{connected} of {nodes} simulated nodes joined within {JOINED_S:g} s, with {ready} replicas ready")


def _pid(data: str, mark: str) -> int:
    found = [pid for pid, line in family(data).items() if mark in f" {line} "]
    if len(found) != 1:
        raise Missing(f"there are {len(found)} processes with{mark}in their command line, not one")
    return found[0]


def fleet_text(figures: FleetFigures) -> str:
    """A row a process."""
    rows = [
        [
            cost.name,
            f"{cost.core_percent:.1f}%",
            f"{cost.held.rss / MIB:.0f}",
            f"{cost.held.pss / MIB:.0f}",
        ]
        for cost in figures.costs
    ]
    fleet = f"fleet: {figures.nodes} nodes with {figures.cards} cards, {figures.replicas} replicas ready"
    title = f"{fleet} after {figures.up_s:.0f} s, over {figures.seconds:.0f} s"
    return "\n".join([title, table([["", "of a core", "RSS MiB", "PSS MiB"], *rows])])
