"""A chart of a few lines over time, drawn by plotext. Imported when first shown: it loads slowly.

The first line is whole, the second dashed, the third dotted, and the title says so with marks: colour alone tells
nothing. Colours are put in afterwards, from the
theme: plotext knows numbers that stand for them and nothing else.
"""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from rich.style import Style
from rich.text import Text
from textual.app import RenderResult
from textual.color import Color
from textual_plotext import PlotextPlot

from console.signs import signs

COLOURS = ("primary", "accent", "tone-info")
"""Theme variables of the first, second and third line."""
MARKERS_ASCII = ("*", "+", ".")
KEYS = ("━", "╍", "┈")
"""What stands for each in a title."""
_STROKES = ((1, 0), (5, 4), (1, 3))
"""Dots drawn and left out, in turn."""
_AXES = (255, 255, 254)
_STANDINS = {(place, 255, 253): colour for place, colour in enumerate(COLOURS)} | {_AXES: "tone-dim"}
_ASCII = str.maketrans("┌┐└┘├┤┬┴┼─│", "+++++++++-|")
LEAST_COLUMNS = 24
LEAST_ROWS = 4
COLUMNS_A_TICK = 14
_ROUND_S = frozenset((60, 300, 600, 900, 1800, 3600, 7200, 10800, 14400, 21600, 86400))
_DATES_FROM_S = 36 * 3600.0
_CLOCKS_FROM_S = 2 * 3600.0


@dataclass(frozen=True, kw_only=True)
class Drawn:
    """What a chart shows. Points are NaN where nothing was reported."""

    lines: tuple[tuple[float, ...], ...] = ()
    start: float = 0.0
    """Unix seconds at which the first point begins."""
    step_s: float = 1.0
    span_s: float = 60.0
    """What its width stands for; it ends with the last point."""
    floor: float = 0.0
    """Bottom, unless a point is lower."""
    top: float | None = None
    empty: str = ""
    """What stands there in place of lines."""


def key_of(place: int) -> str:
    """The mark of a line in a title."""
    return (MARKERS_ASCII if signs().ascii else KEYS)[place]


class TimeChart(PlotextPlot):
    """Lines over time in the theme's colours."""

    def __init__(self, figure: Callable[[float], str]) -> None:
        """`figure` writes a figure at the axis."""
        super().__init__()
        self._figure = figure
        self._drawn = Drawn()

    def show_lines(self, drawn: Drawn) -> None:
        """Show these; the same ones again paint nothing."""
        # NaN is not equal to itself: the text of the points is.
        if repr(drawn) != repr(self._drawn):
            self._drawn = drawn
            self.refresh()

    def render(self) -> RenderResult:
        """The chart at the size there is."""
        columns, rows = self.size.width, self.size.height
        drawn = self._drawn
        if columns < LEAST_COLUMNS or rows < LEAST_ROWS or not any(map(_reported, drawn.lines)):
            return Text(drawn.empty[: max(0, columns)], style=self._ink("tone-dim"))
        plot = self.plt
        plot.clear_figure()
        plot.plotsize(columns, rows)
        # The figure keeps a size of its own besides the one that it is asked for.
        plot._set_size(columns, rows)
        for colour in (plot.canvas_color, plot.axes_color):
            colour("default")
        plot.ticks_color(_AXES)
        plot.xaxes(True, False)
        plot.yaxes(True, False)
        self._axes(columns, rows)
        # The first line is worth most and is drawn over the others.
        for place, points in reversed(list(enumerate(drawn.lines))):
            self._line(place, _thinned(points, 2 * columns), len(points), columns)
        text = plot.build().rstrip("\n")
        return self._coloured(Text.from_ansi(text.translate(_ASCII) if signs().ascii else text))

    def _axes(self, columns: int, rows: int) -> None:
        drawn, plot = self._drawn, self.plt
        top = drawn.top or _ceiling(max(map(_highest, drawn.lines)))
        low = drawn.floor if drawn.floor <= min(map(_lowest, drawn.lines)) else 0.0
        heights = [low, (low + top) / 2, top] if rows >= 6 else [low, top]
        plot.ylim(low, top)
        plot.yticks(heights, [self._figure(height) for height in heights])
        plot.xlim(-drawn.span_s, 0)
        parts = _parts(drawn.span_s, max(1, columns // COLUMNS_A_TICK))
        places = [-drawn.span_s * (1 - part / parts) for part in range(parts + 1)]
        end = drawn.start + drawn.step_s * max(map(len, drawn.lines))
        plot.xticks(places, [_moment(end, back, drawn.span_s) for back in places])

    def _line(self, place: int, points: Sequence[tuple[float, float]], count: int, columns: int) -> None:
        drawn, colour = self._drawn, (place, 255, 253)
        marker = MARKERS_ASCII[place] if signs().ascii else "braille"
        # Two dots stand side by side in a column: a stroke is as long at every span.
        dot_s = drawn.span_s / (2 * columns)
        for run in _runs([((at - count + 0.5) * drawn.step_s, value) for at, value in points]):
            if place == 0 and len(run) > 1:
                self.plt.plot(*zip(*run, strict=True), color=colour, marker=marker)
                continue
            dots = _dots(run, dot_s, _STROKES[0] if signs().ascii else _STROKES[place])
            self.plt.scatter(*zip(*dots, strict=True), color=colour, marker=marker)

    def _coloured(self, text: Text) -> Text:
        """The theme's colours in place of what stands for them."""
        for number, span in enumerate(text.spans):
            style = span.style
            colour = style.color if isinstance(style, Style) else None
            name = _STANDINS.get(colour.triplet) if colour is not None and colour.triplet is not None else None
            text.spans[number] = span._replace(style=self._ink(name) if name is not None else Style.null())
        text.no_wrap = True
        return text

    def _ink(self, variable: str) -> Style:
        return Style(color=Color.parse(self.app.theme_variables[variable]).hex)


def _reported(points: Sequence[float]) -> bool:
    return any(map(math.isfinite, points))


def _highest(points: Sequence[float]) -> float:
    return max((point for point in points if math.isfinite(point)), default=0.0)


def _lowest(points: Sequence[float]) -> float:
    return min((point for point in points if math.isfinite(point)), default=math.inf)


def _parts(span_s: float, most: int) -> int:
    """Into how many parts of a round length a span falls, at most `most`."""
    return next((parts for parts in range(most, 1, -1) if span_s / parts in _ROUND_S), 1 if most < 4 else 2)


def _ceiling(highest: float) -> float:
    """A round figure that is no lower, for the end of the axis."""
    if highest <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(highest))
    return next(power * step for step in (1, 1.5, 2, 3, 4, 5, 6, 8, 10) if power * step >= highest * (1 - 1e-9))


def _thinned(points: Sequence[float], most: int) -> list[tuple[float, float]]:
    """Places and points, means of neighbours where there are more than can be seen."""
    each = max(1, -(-len(points) // most))
    found: list[tuple[float, float]] = []
    for at in range(0, len(points), each):
        known = [point for point in points[at : at + each] if math.isfinite(point)]
        found.append((at + (each - 1) / 2, sum(known) / len(known) if known else math.nan))
    return found


def _runs(points: Sequence[tuple[float, float]]) -> list[list[tuple[float, float]]]:
    """Stretches of known points: no line is drawn over a gap."""
    runs: list[list[tuple[float, float]]] = [[]]
    for place, value in points:
        if math.isfinite(value):
            runs[-1].append((place, value))
        elif runs[-1]:
            runs.append([])
    return [run for run in runs if run]


def _dots(run: Sequence[tuple[float, float]], dot_s: float, stroke: tuple[int, int]) -> list[tuple[float, float]]:
    """Points along a line, a dot wide each, some of them left out."""
    drawn, left_out = stroke
    found: list[tuple[float, float]] = [run[-1]]
    for (before, low), (after, high) in pairwise(run):
        for dot in range(math.ceil(before / dot_s), math.ceil(after / dot_s)):
            if dot % (drawn + left_out) < drawn:
                share = (dot * dot_s - before) / (after - before)
                found.append((dot * dot_s, low + (high - low) * share))
    return found


def _moment(end: float, back: float, span_s: float) -> str:
    """`-5 min` and `now` of what is short, else the local time or day."""
    if span_s >= _DATES_FROM_S:
        return time.strftime("%a %d", time.localtime(end + back))
    if span_s >= _CLOCKS_FROM_S:
        return time.strftime("%H:%M", time.localtime(end + back))
    minutes = -back / 60
    return "now" if minutes < 0.01 else f"-{minutes:.2g} min" if minutes < 100 else f"-{minutes / 60:.2g} h"
