"""Which lines the map has: a node each, and where there are many, one line for all nodes with nothing to tell.

Pure: the same state, order and folds give the same lines. Nodes that need somebody are never folded.
"""

from collections.abc import Container, Iterable
from dataclasses import dataclass

from console.state.cluster import ClusterState
from console.state.index import nodes_of
from llmgw.api.watch import NodeRow

FOLD_OVER = 40
"""Clusters of more nodes are folded until somebody unfolds them: fewer fit on a large screen as they are."""
LEAST_FOLDED = 4
"""Fewer alike nodes are not worth a line of their own."""


@dataclass(frozen=True, kw_only=True)
class NodeLine:
    """Cards of one node; a node with more than fit across has several lines."""

    node: str
    first: int = 0
    """Place of its first card on this line."""

    @property
    def key(self) -> str:
        """Unique among the lines."""
        return f"n\0{self.node}\0{self.first}"


@dataclass(frozen=True, kw_only=True)
class GroupLine:
    """Nodes alike, folded into one line."""

    word: str
    """`free` or `at work`."""
    gpu_class: str
    cards: int
    """Cards of each node."""
    nodes: tuple[str, ...]

    @property
    def key(self) -> str:
        """Stable while nodes come and go."""
        return group_key(self.word, self.gpu_class, self.cards)


MapLine = NodeLine | GroupLine


def group_key(word: str, gpu_class: str, cards: int) -> str:
    """Key of a group."""
    return f"g\0{word}\0{gpu_class}\0{cards}"


@dataclass(frozen=True, kw_only=True)
class Folds:
    """How the lines are arranged."""

    worst_first: bool = False
    fold: bool | None = None
    """Whether quiet nodes are folded; none decides by their number."""
    unfolded: frozenset[str] = frozenset()
    """Groups whose nodes are shown all the same."""

    def folds(self, nodes: int) -> bool:
        """Whether `nodes` nodes are folded."""
        return nodes > FOLD_OVER if self.fold is None else self.fold


def quiet_kind(state: ClusterState, node: NodeRow, unsteady: Container[str]) -> str:
    """`free` where nobody holds a card, `at work` where all are held and work; empty where there is more to tell.

    `unsteady` are the nodes with a replica that is not ready.
    """
    if node.state != "connected" or node.problems or not node.cards:
        return ""
    load = state.node_load(node.name)
    if load.worn:
        return ""
    if load.free == load.cards:
        return "free"
    return "at work" if load.working == load.cards and node.name not in unsteady else ""


def rank(state: ClusterState, node: NodeRow) -> int:
    """How much somebody should look at it, worst first."""
    load = state.node_load(node.name)
    if node.state in ("lost", "silent"):
        return 0
    if load.worn or node.problems:
        return 1
    if load.idle:
        return 2
    if any(replica.state not in ("ready", "stopped") for replica in state.replicas_on(node.name)):
        return 3
    if node.state == "cordoned":
        return 4
    return 5 if load.held else 6


def arrange(state: ClusterState, names: Iterable[str], folds: Folds, across: int) -> list[MapLine]:
    """The lines for the nodes `names`, which come in their order, with `across` cards on each."""
    names = list(names)
    groups = _groups(state, names) if folds.folds(len(names)) else {}
    if folds.worst_first:
        names.sort(key=lambda name: rank(state, state.nodes[name]))
    shut = {node for group in groups.values() if group.key not in folds.unfolded for node in group.nodes}
    lines: list[MapLine] = []
    for name in names:
        if name not in shut:
            cards = len(state.nodes[name].cards)
            lines += [NodeLine(node=name, first=first) for first in range(0, max(1, cards), max(1, across))]
    # What is folded has nothing to tell: it comes last, and the largest group first.
    folded = [group for group in groups.values() if group.key not in folds.unfolded]
    folded.sort(key=lambda group: (group.word != "at work", -len(group.nodes), group.key))
    return [*lines, *folded]


def _groups(state: ClusterState, names: Iterable[str]) -> dict[str, GroupLine]:
    members: dict[tuple[str, str, int], list[str]] = {}
    unsteady = {name for row in state.replicas.values() if row.state != "ready" for name in nodes_of(row)}
    for name in names:
        node = state.nodes[name]
        kind = quiet_kind(state, node, unsteady)
        if kind:
            members.setdefault((kind, node.cards[0].gpu_class, len(node.cards)), []).append(name)
    return {
        group_key(*what): GroupLine(word=what[0], gpu_class=what[1], cards=what[2], nodes=tuple(nodes))
        for what, nodes in members.items()
        if len(nodes) >= LEAST_FOLDED
    }
