"""Work and busy of one card over the last 15 minutes, drawn by plotext. Imported when first shown: it loads slowly."""

import math

from rich.style import Style
from rich.text import Text
from textual.app import RenderResult
from textual.color import Color
from textual_plotext import PlotextPlot

from console.state.history import NODE_SAMPLE_S, NODE_SAMPLES

MINUTES = round(NODE_SAMPLES * NODE_SAMPLE_S / 60)
FEWEST = 2
"""Samples a line needs."""


class CardPlot(PlotextPlot):
    """Two lines from 0 to 100 percent."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._series: tuple[tuple[str, str, tuple[float, ...]], ...] = ()

    def set_series(self, *series: tuple[str, str, list[float]]) -> None:
        """Lines as (name, theme variable of the colour, samples oldest first); the same ones again paint nothing."""
        fresh = tuple((name, colour, tuple(samples)) for name, colour, samples in series)
        # NaN is not equal to itself: the text of the samples is.
        if repr(fresh) != repr(self._series):
            self._series = fresh
            self.refresh()

    def render(self) -> RenderResult:
        """The plot at the size there is, in the theme's colours."""
        columns, rows = self.size.width, self.size.height
        plot = self.plt
        plot.clear_figure()
        plot.plotsize(columns, rows)
        # The figure keeps a size of its own besides the one that it is asked for.
        plot._set_size(columns, rows)
        plot.ylim(0, 100)
        plot.yticks([0, 50, 100])
        plot.xlim(-MINUTES, 0)
        plot.xticks([-MINUTES, -MINUTES / 2, 0], [f"-{MINUTES} min", f"-{MINUTES / 2:g}", "now"])
        plot.canvas_color(self._rgb("background"))
        plot.axes_color(self._rgb("background"))
        plot.ticks_color(self._rgb("tone-dim"))
        if not any(_runs(samples) for _, _, samples in self._series):
            # Without a line there would be no axes either.
            return Text(
                f"a sample every {NODE_SAMPLE_S:g} s; two make a line", style=Style(color=self._ink("tone-dim"))
            )
        for name, variable, samples in self._series:
            self._draw(name, self._rgb(variable), samples)
        return Text.from_ansi(plot.build())

    def _ink(self, variable: str) -> str:
        return Color.parse(self.app.theme_variables[variable]).hex

    def _rgb(self, variable: str) -> tuple[int, int, int]:
        return Color.parse(self.app.theme_variables[variable]).rgb

    def _draw(self, name: str, colour: tuple[int, int, int], samples: tuple[float, ...]) -> None:
        label: str | None = name
        for start, run in _runs(samples):
            minutes = [(start + step - len(samples) + 1) * NODE_SAMPLE_S / 60 for step in range(len(run))]
            self.plt.plot(minutes, run, color=colour, marker="braille", label=label)
            label = None


def _runs(samples: tuple[float, ...]) -> list[tuple[int, list[float]]]:
    """Stretches of known samples with the number of their first: no line is drawn over a gap."""
    runs: list[tuple[int, list[float]]] = []
    for number, value in enumerate(samples):
        if not math.isfinite(value):
            continue
        if runs and runs[-1][0] + len(runs[-1][1]) == number:
            runs[-1][1].append(value)
        else:
            runs.append((number, [value]))
    return [run for run in runs if len(run[1]) >= FEWEST]
