"""How a state looks: a mark and a tone, the same in every view."""

from collections.abc import Sequence

from console.signs import signs
from console.widgets.paint import Span

_GOOD = ("ready", "connected")
_BAD = ("failed", "lost", "pending")
_WARN = ("partial", "silent", "cordoned", "draining")
_COMING = ("fetching", "checking", "starting", "resolving")


def state_tone(state: str) -> str:
    """The tone of a model's, a replica's, a node's or a set of weights' state."""
    if state in _GOOD:
        return "good"
    if state in _BAD:
        return "bad"
    if state in _WARN:
        return "warn"
    return "info" if state in _COMING else "dim"


def state_mark(state: str) -> str:
    """Its mark, told apart without colour."""
    marks = {"good": signs().live, "bad": signs().broken, "warn": signs().warning, "info": signs().coming}
    return marks.get(state_tone(state), signs().stopped)


def state_cell(state: str) -> list[Span]:
    """Mark and word."""
    tone = state_tone(state)
    return [(f"{state_mark(state)} ", tone), (state, tone)]


def aged(spans: Sequence[Span], ago: str) -> list[Span]:
    """What a node said, as it is while it speaks (`ago` is empty); else dimmed, with how long ago that was."""
    if not ago or not spans:
        return list(spans)
    gap = "" if spans[-1][0].endswith("  ") else "  "
    return [*((text, "dim") for text, _ in spans), (f"{gap}{ago}", "dim")]


_ORDER = ("failed", "lost", "pending", "silent", "partial", "fetching", "checking", "starting", "draining", "cordoned")


def state_rank(state: str) -> float:
    """Worst first."""
    return float(_ORDER.index(state)) if state in _ORDER else float(len(_ORDER) + (state == "stopped"))
