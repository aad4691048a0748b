"""What a folded group of nodes is made of, as lines: a name, and how its cards' figures are spread."""

from console.figures import plural, watts
from console.signs import signs
from console.state.cards import Mode, figures_of
from console.state.cluster import ClusterState
from console.state.folding import GroupLine
from console.state.loads import drawing_words, total_load
from console.widgets.card_facts import Named, wrapped
from console.widgets.gpu_cells import mode_figure
from console.widgets.lines import Line
from console.widgets.paint import Span

_NAMES = {Mode.WORK: "work", Mode.BUSY: "busy", Mode.MEMORY: "memory", Mode.TEMPERATURE: "heat"}
NAMED = 6
"""Nodes that are named."""


def group_lines(state: ClusterState, group: GroupLine, columns: int) -> list[Line]:
    """How many, which, and what their cards do."""
    nodes = len(group.nodes)
    more = f" and {nodes - NAMED:,} more" if nodes > NAMED else ""
    facts: list[Named] = [
        ("nodes", [(f"{nodes:,}", "strong"), (f" of {plural(group.cards, 'card')} each, all {group.word}", "")]),
        ("class", [(group.gpu_class, "")]),
        ("names", [(", ".join(group.nodes[:NAMED]), ""), (more, "dim")]),
    ]
    figures: dict[Mode, list[float]] = {mode: [] for mode in Mode}
    for name in group.nodes:
        for mode, known in figures.items():
            known += figures_of(state, name, mode)
    facts += [(_NAMES[mode], _range(known, mode)) for mode, known in figures.items()]
    load = total_load(state.node_load(name) for name in group.nodes)
    facts.append(("power", [(watts(load.power_w), ""), *((words, "dim") for words in drawing_words(load))]))
    return [line for name, spans in facts for line in wrapped(name, spans, columns)]


def _range(figures: list[float], mode: Mode) -> list[Span]:
    if not figures:
        return [(signs().dash, "dim")]
    mean = mode_figure(sum(figures) / len(figures), mode)
    return [(mean, "strong"), (f"  {mode_figure(min(figures), mode)} to {mode_figure(max(figures), mode)}", "dim")]
