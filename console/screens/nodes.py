"""Nodes: the machines, what they do, and when they were last heard."""

from typing import ClassVar

from console.figures import count, pair, percent, short_age, watts
from console.screens.states import state_cell, state_rank
from console.screens.table_view import TableView
from console.state.cluster import ClusterState
from console.state.diff import Diff
from console.widgets.columns import Cell, Column, Seen, TableSpec
from console.widgets.paint import Span
from llmgw.api.actions import Target
from llmgw.api.card_uses import UNHEARD
from llmgw.api.watch import FiguresRow, NodeRow

LOW_DISK_PARTS = 20
"""A disk of which less than one in so many parts is free is nearly full."""
LOW_DISK = "its disk is nearly full"
QUIET_S = 8.0
"""Agents speak every 5 s: a longer silence is shown in another tone."""


def figures_of(node: NodeRow, seen: Seen) -> FiguresRow | None:
    """Its newest figures."""
    return seen.state.figures.get(node.name)


def heard_cell(node: NodeRow, seen: Seen) -> Span:
    """How long ago its agent spoke."""
    figures = figures_of(node, seen)
    if figures is None:
        return ("never", "warn")
    silence = max(0.0, seen.now - figures.heard)
    return (short_age(silence), "dim" if silence < QUIET_S else "warn")


def _cards(node: NodeRow, _: Seen) -> Cell:
    if not node.cards:
        return ("none", "dim")
    classes = list(dict.fromkeys(card.gpu_class for card in node.cards))
    more = f" +{len(classes) - 1}" if len(classes) > 1 else ""
    return [(f"{len(node.cards)} × ", "dim"), (classes[0] + more, "")]


def _held(node: NodeRow, seen: Seen) -> Cell:
    load = seen.state.node_load(node.name)
    if not load.cards:
        return (f"{len(seen.state.replicas_on(node.name))} repl.", "dim")
    worn: list[Span] = [(f" {load.worn} worn", "warn")] if load.worn else []
    return [(f"{load.held}/{load.cards}", ""), (f" {load.idle} idle" if load.idle else "", "warn"), *worn]


def _tone(node: NodeRow) -> str:
    """A figure's tone: dim beside `heard` where the node does not speak."""
    return "dim" if node.state in UNHEARD else ""


def _memory(node: NodeRow, seen: Seen) -> Cell:
    figures = figures_of(node, seen)
    free = figures.memory_available_bytes if figures else None
    return (pair(node.memory_total_bytes - free if free is not None else None, node.memory_total_bytes), _tone(node))


def _disk(node: NodeRow, seen: Seen) -> Cell:
    figures = figures_of(node, seen)
    free = figures.disk_free_bytes if figures else None
    used = node.disk_total_bytes - free if free is not None else None
    return (pair(used, node.disk_total_bytes), "warn" if _disk_low(node, seen) else "dim")


def _disk_low(node: NodeRow, seen: Seen) -> bool:
    figures = None if node.state in UNHEARD else figures_of(node, seen)
    free = figures.disk_free_bytes if figures else None
    return free is not None and free < node.disk_total_bytes / LOW_DISK_PARTS


def _engines(node: NodeRow, _: Seen) -> Cell:
    spans: list[Span] = []
    for engine in node.engines:
        tone = "" if engine.usable else "warn"
        spans.append((f"{engine.engine} {engine.version}{'' if engine.usable else '!'}  ", tone))
    return spans or ("none", "warn")


def _trouble(node: NodeRow, seen: Seen) -> Span:
    problems = [*([LOW_DISK] if _disk_low(node, seen) else []), *node.problems]
    return ("; ".join(problems), "warn")


def _said(node: NodeRow, seen: Seen) -> Cell:
    trouble = _trouble(node, seen)
    return trouble if trouble[0] or not node.simulated else ("simulated", "dim")


SPEC: TableSpec[NodeRow] = TableSpec(
    columns=(
        Column(
            key="name",
            title="node",
            width=12,
            grow=1,
            most=28,
            cell=lambda node, _: (node.name, "strong"),
        ),
        Column(
            key="state",
            title="state",
            width=11,
            cell=lambda node, _: state_cell(node.state),
            sort=lambda node, _: state_rank(node.state),
        ),
        Column(key="heard", title="heard", width=5, align="right", cell=heard_cell),
        Column(
            key="cards",
            title="cards",
            width=12,
            grow=1,
            most=18,
            cell=_cards,
            sort=lambda node, _: len(node.cards),
            descending=True,
        ),
        Column(
            key="held",
            title="held",
            width=17,
            grow=4,
            most=18,
            cell=_held,
            sort=lambda node, seen: seen.state.node_load(node.name).held,
            descending=True,
        ),
        Column(
            key="work",
            title="work",
            width=5,
            align="right",
            cell=lambda node, seen: (percent(seen.state.node_load(node.name).mean_work_percent), ""),
            sort=lambda node, seen: seen.state.node_load(node.name).mean_work_percent,
            descending=True,
            priority=1,
        ),
        Column(
            key="power",
            title="power",
            width=7,
            align="right",
            cell=lambda node, seen: (watts(seen.state.node_load(node.name).power_w), ""),
            sort=lambda node, seen: seen.state.node_load(node.name).power_w,
            descending=True,
            priority=5,
        ),
        Column(
            key="cpu",
            title="cpu",
            width=5,
            align="right",
            cell=lambda node, seen: (percent(_cpu(node, seen)), _tone(node)),
            sort=lambda node, seen: None if node.state in UNHEARD else _cpu(node, seen),
            descending=True,
            priority=3,
        ),
        Column(
            key="load",
            title="load",
            width=5,
            align="right",
            cell=lambda node, seen: (count(f.load_1m if (f := figures_of(node, seen)) else None), "dim"),
            priority=8,
        ),
        Column(key="memory", title="memory", width=12, align="right", cell=_memory, priority=4),
        Column(key="disk", title="disk", width=13, align="right", cell=_disk, priority=6),
        Column(key="engines", title="engines", width=16, grow=1, most=34, cell=_engines, priority=7),
        Column(
            key="version",
            title="agent",
            width=7,
            cell=lambda node, _: (node.agent_version, "dim"),
            sort=lambda node, _: node.agent_version,
            priority=9,
        ),
        Column(key="problem", title="last word", width=22, grow=8, cell=_said, whole=_trouble, priority=2),
    ),
    words=lambda node: " ".join(
        (node.name, node.state, node.address, node.cpu_model, *node.problems, *(card.name for card in node.cards))
    ),
    facts=lambda node: {
        "state": node.state,
        "gpu": " ".join(card.gpu_class for card in node.cards) or "none",
        "engine": " ".join(engine.engine for engine in node.engines),
        "version": node.agent_version,
    },
)


def _cpu(node: NodeRow, seen: Seen) -> float | None:
    figures = figures_of(node, seen)
    return figures.cpu_percent if figures else None


class Nodes(TableView[NodeRow]):
    """The machines."""

    NOUN: ClassVar[str] = "nodes"
    TARGET: ClassVar[Target] = Target.NODE
    TOPIC: ClassVar[str] = "nodes"
    ALSO: ClassVar[tuple[str, ...]] = ("figures",)
    EMPTY: ClassVar[tuple[str, str]] = ("No node has joined.", "n makes a join token and the command to paste on one")

    def table_spec(self) -> TableSpec[NodeRow]:
        """Its columns."""
        return SPEC

    def changed_keys(self, state: ClusterState, diff: Diff) -> frozenset[str]:
        """Replicas show in their nodes' rows only where there are no cards."""
        keys = super().changed_keys(state, diff)
        if diff.touches("replicas"):
            return keys | frozenset(name for name, node in state.nodes.items() if not node.cards)
        return keys & (state.nodes.keys() | diff.keys("nodes"))

    def summary(self, state: ClusterState) -> list[tuple[str, str]]:
        """How many are there, and how many are not."""
        states = [node.state for node in state.nodes.values()]
        away = states.count("silent") + states.count("lost")
        cordoned = states.count("cordoned")
        load = state.load
        cards = f"{load.cards:,} cards, {load.at_work:,} at work" if load.cards else ""
        return [
            (cards, "") if cards else ("", ""),
            (f"{cordoned} cordoned", "$warning") if cordoned else ("", ""),
            (f"{away} not heard", "bold $error") if away else ("", ""),
            ("simulated", "$warning") if any(node.simulated for node in state.nodes.values()) else ("", ""),
        ]
