"""Which nodes there are and what ails them: a function of the options alone, so that a second start finds the same."""

from dataclasses import dataclass

import msgspec

from llmgw.core.cluster import GIB
from llmgw.core.wear import CardWear
from llmgw.sim.fleet.cards import MIX, CardModel
from llmgw.sim.fleet.options import FleetOptions

SLOW_NODE = 1
"""Index of the node that answers late."""
WORN_NODES = (2, 9)
"""Indexes of nodes with a card that wears out; in a large fleet one in WORN_EVERY more."""
WORN_EVERY = 50
ECC_PROBLEM = "uncorrectable memory errors, no spare rows left to remap: replace it (simulated)"
BUS_PROBLEM = "fell off the bus twice since boot (Xid 79): reseat or replace it (simulated)"


NEW_CARD = CardWear(
    pcie_replays=0, remapped_rows=0, remap_pending=False, remap_failed=False, nvlink_recovery_errors=0, xid_count=0
)
_WORN = {
    ECC_PROBLEM: msgspec.structs.replace(NEW_CARD, remapped_rows=512, remap_failed=True, xid_count=9, xid_last=64),
    BUS_PROBLEM: msgspec.structs.replace(NEW_CARD, pcie_replays=48_210, xid_count=2, xid_last=79),
}


@dataclass(frozen=True, kw_only=True)
class CardPlan:
    """One simulated card."""

    uuid: str
    index: int
    model: CardModel
    problem: str = ""
    """Why it is wearing out, if it is."""
    wear: CardWear = NEW_CARD
    bus_id: str = ""
    numa_node: int = 0
    nvlink_peers: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class NodePlan:
    """One simulated node."""

    name: str
    index: int
    cards: tuple[CardPlan, ...]
    cpus: int
    cpu_model: str
    memory_bytes: int
    disk_bytes: int
    slow: bool = False
    """Answers late, tells late."""
    silent: bool = False
    """Loses its line from time to time."""


def roster(options: FleetOptions) -> tuple[NodePlan, ...]:
    """Every node of the fleet, by index."""
    return tuple(_node(options, index) for index in range(options.nodes))


def _node(options: FleetOptions, index: int) -> NodePlan:
    model = MIX[index % len(MIX)]
    name = f"{options.prefix}-{model.gpu_class.partition('-')[0]}-{index + 1:0{max(2, len(str(options.nodes)))}d}"
    troubled = not options.steady
    worn = troubled and (index in WORN_NODES or index % WORN_EVERY == WORN_EVERY - 1)
    # One card of the node, and not the first: a model that needs one card still finds it there.
    worn_card = options.cards - 1 if worn and options.cards > 1 else None
    return NodePlan(
        name=name,
        index=index,
        cards=tuple(
            CardPlan(
                uuid=_uuid(name, card),
                index=card,
                model=model,
                problem=problem,
                wear=_WORN.get(problem, NEW_CARD),
                bus_id=f"0000:{card + 16:02x}:00.0",
                numa_node=2 * card // options.cards,
                nvlink_peers=tuple(_uuid(name, peer) for peer in range(options.cards) if peer != card)
                if model.nvlink
                else (),
            )
            for card in range(options.cards)
            for problem in [(ECC_PROBLEM, BUS_PROBLEM)[index % 2] if card == worn_card else ""]
        ),
        cpus=16 * max(1, options.cards),
        cpu_model="AMD EPYC 9554 (simulated)",
        memory_bytes=128 * max(1, options.cards) * GIB,
        disk_bytes=7_680 * 10**9,
        slow=troubled and index == SLOW_NODE,
        silent=troubled and options.nodes >= 3 and index == options.nodes - 1,
    )


def _uuid(node: str, card: int) -> str:
    return f"GPU-sim-{node}-{card}"
