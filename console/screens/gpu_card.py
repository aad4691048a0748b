"""Everything of the card under the map's cursor, beside the map or below it, with what the map's words mean."""

from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, cast

from textual.app import ComposeResult
from textual.containers import Vertical

from console.figures import plural
from console.screens.view import title
from console.signs import signs
from console.state.cards import CardAt, Mode
from console.state.folding import GroupLine, MapLine
from console.widgets.card_facts import card_lines, short_card_lines
from console.widgets.columns import Seen
from console.widgets.group_facts import group_lines
from console.widgets.lines import Line
from console.widgets.map_legend import legend_lines
from console.widgets.text_block import TextBlock
from console.widgets.titles import set_title

if TYPE_CHECKING:
    from console.widgets.plot import CardPlot

PLOT_FROM = 34
"""Rows of the screen from which there is a chart."""
PLOT_ROWS = 8
"""Rows a chart needs at least, its frame included."""
FRAME_ROWS = 2
LEAST_SHORT_ROWS = 6
"""Lines about a card where they stand below the map, however low the screen is."""


class CardSide(Vertical):
    """The column beside the map; `short` is what stands below it where there is none."""

    def __init__(self, waiting: Callable[[], list[Line]], *, id: str | None = None) -> None:
        """`waiting` is what is said before anything came."""
        super().__init__(id=id)
        self.short = TextBlock(id="gpu-short-facts")
        self.short.add_class("panel")
        self._waiting = waiting
        self._facts = TextBlock(id="gpu-facts")
        self._legend = TextBlock(wrapped=True, id="gpu-meaning")
        self._card = Vertical(id="gpus-card", classes="panel")
        self._words = Vertical(id="gpus-words", classes="panel")
        self._plot: CardPlot | None = None
        self._told_group: GroupLine | None = None
        self._mode = Mode.WORK
        self._plot_fits = True

    def compose(self) -> ComposeResult:
        with self._card:
            yield self._facts
        with self._words:
            yield self._legend

    def on_mount(self) -> None:
        """The words' frame never changes."""
        self._words.border_title = title("what the words mean")

    def set_mode(self, mode: Mode) -> None:
        """Cells show another figure: other words."""
        self._mode = mode

    def forget_group(self) -> None:
        """What was told of a group may not hold any more."""
        self._told_group = None

    def show(self, seen: Seen, on: CardAt | None, line: MapLine | None) -> None:
        """Tell of a card, else of a group, else that there is none."""
        self._legend.set_lines(legend_lines(self._mode, heard=seen.state.heard))
        if isinstance(line, GroupLine) and line is self._told_group:
            # Thousands of cards are counted when the lines are arranged, and not with every figure.
            return
        self._told_group = line if isinstance(line, GroupLine) else None
        side, short = max(20, self._facts.size.width), max(20, self.short.size.width)
        name, kind = "", ""
        if on is not None:
            name = f"{on.node.name} {signs().dot} GPU {on.card.index}"
            self._set_facts(
                lambda: card_lines(seen, on, side), lambda: short_card_lines(seen, on, short, self._short_rows)
            )
        elif isinstance(line, GroupLine):
            name, kind = plural(len(line.nodes), "node"), line.gpu_class
            self._set_facts(
                lambda: group_lines(seen.state, line, side),
                lambda: group_lines(seen.state, line, short)[: self._short_rows],
            )
        else:
            nothing = [[("no card under the cursor", "dim")]] if seen.state.heard else self._waiting()
            self._set_facts(lambda: nothing, lambda: nothing)
        said = title(name or "card", (kind, "$tone-dim"))
        for panel in (self.short, self._card):
            set_title(panel, said)
        self.show_plot(seen, on)

    def _set_facts(self, side: Callable[[], list[Line]], short: Callable[[], list[Line]]) -> None:
        if self.display:
            lines = side()
            self._facts.set_lines(lines)
            self._share_rows(len(lines))
        if self.short.display:
            self.short.set_lines(short())

    @property
    def _short_rows(self) -> int:
        """Lines below the map: a third of the screen, and the map keeps the rest."""
        return max(LEAST_SHORT_ROWS, self.app.size.height // 3)

    def _share_rows(self, facts: int) -> None:
        """The card comes first; words and chart stay while there is room for them."""
        left = self.size.height - facts - FRAME_ROWS
        words = self._legend.get_content_height(self.size, self.size, max(1, self._facts.size.width)) + FRAME_ROWS
        # A chart says what the bars beside the figures say too: words go last.
        self._words.display = not self.size.height or left >= words
        self._plot_fits = left - (words if self._words.display else 0) >= PLOT_ROWS

    # -- the chart

    async def bring_plot(self, seen: Seen, on: CardAt | None) -> None:
        """A screen high enough has a chart; it loads when first shown."""
        if self._plot is None and self.is_mounted:
            make = import_module("console.widgets.plot").CardPlot
            self._plot = cast("CardPlot", make(id="gpu-plot"))
            self._plot.add_class("panel")
            self._plot.border_title = title("last 15 minutes")
            await self.mount(self._plot, before="#gpus-words")
            self.show_plot(seen, on)

    @property
    def wants_plot(self) -> bool:
        """Whether there is room for a chart that was not brought yet."""
        return self._plot is None and self.display and self.app.size.height >= PLOT_FROM and not signs().ascii

    def show_plot(self, seen: Seen, on: CardAt | None) -> None:
        """Work and busy of a card."""
        plot = self._plot
        if plot is None:
            return
        plot.display = on is not None and self._plot_fits and self.app.size.height >= PLOT_FROM
        if on is not None and plot.display:
            node, place = on.node.name, on.place
            work, busy = (seen.history.card(node, place, figure) for figure in ("work", "busy"))
            plot.set_series(("busy", "accent", busy), ("work", "primary", work))
