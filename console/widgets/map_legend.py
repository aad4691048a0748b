"""What the work map's figures, colours and signs mean, in the mode it is in."""

from console.signs import signs
from console.state.cards import COOL_C, HOT_C, TOP_C, Mode, scale
from console.widgets.gpu_cells import HOT_MARK, SPLIT, THROTTLE_MARK, WORN_MARK
from console.widgets.lines import Line
from console.widgets.paint import Span, heat

STEPS = 5
"""Cells of the scale."""
_SAYS = {
    Mode.WORK: "is the share of time the SMs had work where that is counted, else power against its limit.",
    Mode.BUSY: "is the share of time any kernel ran, however little of the chip it used: 100% may be little work.",
    Mode.MEMORY: "is the share of the card's memory in use, by whomever.",
    Mode.TEMPERATURE: f"is degrees Celsius. Cards slow down from about {HOT_C:.0f}.",
}


def legend_lines(mode: Mode, *, heard: bool) -> list[Line]:
    """The mode's word, its scale, and the signs; before anything was heard no figure stands on the screen."""
    hot: list[Span] = [(f" 91{HOT_MARK}", "worn"), (" hot", "dim")] if mode is Mode.TEMPERATURE else []
    return [
        [(mode.value, "strong"), (f" {_SAYS[mode]}", "dim")],
        *([_scale(mode)] if heard else []),
        [(f" {signs().free} ", "unused"), (" no replica holds it  ", "dim"), (f"{SPLIT:>4}", "dim"), (" split", "dim")],
        [
            (f" 35{WORN_MARK}", "worn"),
            (" wearing out  ", "dim"),
            (f" 72{THROTTLE_MARK}", heat(72.0)),
            (" held back", "dim"),
        ],
        [(f"  {signs().dash} ", "unused"), (" held, and not told  ", "dim"), *hot],
    ]


def _scale(mode: Mode) -> Line:
    low, high = (COOL_C, TOP_C) if mode is Mode.TEMPERATURE else (0.0, 100.0)
    line: Line = []
    for step in range(STEPS):
        value = low + step * (high - low) / (STEPS - 1)
        line += [(f"{value:3.0f} ", heat(scale(value, mode))), (" ", "")]
    return [*line, ("percent" if mode is not Mode.TEMPERATURE else "degrees", "dim")]
