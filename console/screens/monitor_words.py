"""What Monitor says in words: what its charts are of and over which span, what stands against them, what lines mean."""

import math

from console.figures import count, millis, percent, watts
from console.signs import signs
from console.state.monitored import SPANS, Chart, Points, Span
from console.widgets.lines import Line
from llmgw.api.series import Of

AFTER_ERROR_S = 15.0
"""What could not be told is asked for again after this long."""
BRIEFLY = ("work: how much of the chip works. busy: share of time any kernel ran.",)
MEANING = (
    "work: how much of the chip works; multiprocessors active where they are counted, else power against its limit",
    "busy: share of time in which any kernel ran, however small; 100% busy with little work waits for something",
)
TONES = ("$primary", "$accent", "$tone-info")
"""Of the first, second and third line of a chart."""


def head(of: Of, here: Span, *, asking: bool, live: bool) -> Line:
    """What the charts are of, the spans there are, and whether the feed goes on with them."""
    what: Line = [(f" {of.scope.value} ", "dim"), (of.name, "accent"), ("  ", "")] if of.name else []
    spans: Line = []
    for span in SPANS:
        spans += [(f" {span.name} ", "tab" if span is here else "dim"), (" ", "")]
    state: Line = [(f"asking{signs().ellipsis}", "dim")] if asking else [("live", "good")] if live else []
    return [*(what or [(" cluster  ", "accent")]), *spans, *state]


def refused(sentence: str) -> list[Line]:
    """What stands where the charts would be."""
    again = f"asking again every {AFTER_ERROR_S:g} s; "
    return [[(sentence, "bad")], [(again, "dim"), ("a", "key"), (" asks at once", "dim")]]


def gone(sentence: str) -> list[Line]:
    """Likewise, when what they are of is not there."""
    return [[(sentence, "warn"), (". ", ""), ("esc", "key"), (" goes back.", "")]]


def facts(chart: Chart, points: Points, marks: tuple[str, ...]) -> list[tuple[str, str]]:
    """A chart's lines for its title, each with its mark and newest figure; one that nobody reports is left out."""
    return [
        (" ".join((mark, *(() if word == chart.name else (word,)), written(chart.unit, newest(points, figure)))), tone)
        for (figure, word), mark, tone in zip(chart.lines, marks, TONES, strict=False)
        if not points.of or points.known(figure)
    ]


def newest(points: Points, figure: str) -> float | None:
    """The newest point of a figure."""
    found = points.of.get(figure)
    return found[-1] if found else None


def written(unit: str, value: float | None) -> str:
    """A figure with its unit, as short as it can be."""
    if value is None or not math.isfinite(value):
        return signs().dash
    if unit == "%":
        return percent(value)
    if unit == "W":
        return watts(value)
    if unit == "ms":
        return millis(value)
    degrees = "C" if signs().ascii else "°C"
    return f"{count(value)}{'' if unit in ('/s', '/Wh') else ' '}{degrees if unit == '°C' else unit}".strip()
