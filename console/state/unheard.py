"""How old the figures of a node are that does not speak: what is old is never shown as now."""

from console.figures import short_age
from console.state.cluster import ClusterState
from llmgw.api.card_uses import UNHEARD
from llmgw.api.watch import FiguresRow, NodeRow


def is_unheard(state: ClusterState, node: str) -> bool:
    """Whether a node is silent or lost."""
    row = state.nodes.get(node)
    return row is not None and row.state in UNHEARD


def silence(node: NodeRow, figures: FiguresRow | None, now: float) -> str:
    """For how long a node that is silent or lost has said nothing, `12m`; empty where it speaks, or never spoke."""
    if figures is None or node.state not in UNHEARD:
        return ""
    return short_age(max(0.0, now - figures.heard))


def ago(state: ClusterState, node: str, now: float) -> str:
    """The same as `12m ago`, to stand behind what it said then."""
    row = state.nodes.get(node)
    said = silence(row, state.figures.get(node), now) if row is not None else ""
    return f"{said} ago" if said else ""


def unheard_words(node: NodeRow, figures: FiguresRow | None, now: float) -> str:
    """`lost 12m`: the state of a node that is not heard, and for how long it was not."""
    return f"{node.state} {silence(node, figures, now)}".rstrip()
