"""Monitor: charts of the cluster, a model, a node or a card, over five minutes to a week.

The server is asked for the past; at the shortest span the feed goes on from there, a point every five seconds. When
the past cannot be told, a line says so where the charts would be.
"""

import math
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Protocol, cast

from textual.app import ComposeResult
from textual.containers import Container, VerticalScroll

from console.commands import Command
from console.figures import moment
from console.monitoring import chart_place, of_place
from console.places import Place, Subject
from console.screens import monitor_words as words
from console.screens.view import View, row_of, title, waiting_lines
from console.signs import signs
from console.state.cluster import ClusterState
from console.state.diff import Diff
from console.state.monitored import CHARTS, SPANS, Chart, Points, card_of, figures_shown, points_of, values_of
from console.widgets.columns import Seen
from console.widgets.lines import Line
from console.widgets.text_block import TextBlock
from console.widgets.titles import set_title
from llmgw.api.actions import Target
from llmgw.api.problems import ClientError
from llmgw.api.series import Of, Scope, SeriesAnswer

if TYPE_CHECKING:
    from console.widgets.chart import Drawn, TimeChart

LEAST_ROWS = 9
"""Of a chart with its frame."""
MOST_ROWS = 18
FLOOR_C = 20.0
"""Bottom of charts of temperatures: no room with machines is colder."""
TWO_FROM, THREE_FROM = 100, 170
"""Columns from which charts stand side by side."""
CHART_S = 0.02
"""Time between two charts that go on: all of them at once would keep a key waiting."""
MEANING_FROM, BRIEFLY_FROM = 30, 16
"""Rows of the screen from which two lines, and one, say what busy and work mean."""


class PromptScreen(Protocol):
    """What Monitor needs of the frame around it."""

    def open_monitor_line(self) -> None:
        """Open the `:` line where it asks what to monitor."""


class Monitor(View):
    """A page of charts."""

    def __init__(self, place: Place) -> None:
        super().__init__(place)
        self.of = of_place(place)
        self.span = next((span for span in SPANS if span.name in place.turned), SPANS[0])
        self.points = Points()
        self.said = ""
        """Why nothing can be shown."""
        self.note = ""
        """What is not as it was asked for."""
        self._since: float | None = None
        self._epoch = ""
        self._asked_at = -math.inf
        self._asking = False
        self._line = TextBlock(id="monitor-line")
        self._state = TextBlock(wrapped=True, id="monitor-state")
        self._grid = VerticalScroll(id="monitor-charts")
        self._meaning = TextBlock(wrapped=True, id="monitor-meaning")
        self._brought = False
        """Whether the charts are there and were drawn once."""
        self._charts: dict[str, tuple[Container, TimeChart]] = {}
        self._due: dict[TimeChart, Drawn] = {}
        self._laid_out = (0, "")

    def compose(self) -> ComposeResult:
        yield self._line
        yield self._state
        yield self._grid
        yield self._meaning

    # -- life

    def show(self, seen: Seen) -> None:
        """Ask, and show what is there meanwhile."""
        if seen.state.epoch != self._epoch:
            # Another cluster's past, or another run's.
            self._epoch, self.points, self.note, self.said = seen.state.epoch, Points(), "", ""
        self._say_meaning(seen)
        self.call_after_refresh(self._bring_charts)
        self._ask()
        self.update(seen, None)

    def update(self, seen: Seen, diff: Diff | None) -> None:
        """The feed says more; points come with the clock."""
        if diff is None or not self.points.of:
            self._paint(seen)

    def tick(self, seen: Seen) -> None:
        """A second has passed: a point may be due, and the server's word old."""
        if self.desk.link.live and self.span.live and not self.said and self._go_on(seen):
            self._draw(one_by_one=True)
        self._line.set_lines([self._head()])
        again_s = words.AFTER_ERROR_S if self.said else self.span.again_s
        if self.desk.link.live and seen.now - self._asked_at >= again_s:
            self._ask()

    def on_resize(self) -> None:
        """Other rows and columns."""
        self._say_meaning(self.desk.seen())
        self.call_after_refresh(self._lay_out)

    def _say_meaning(self, seen: Seen) -> None:
        # The terminal's size: the view has none yet when it is shown for the first time.
        roomy = self.app.size.width >= TWO_FROM and self.app.size.height >= MEANING_FROM
        texts = words.MEANING if roomy else words.BRIEFLY
        self._meaning.set_lines([[(text, "dim")] for text in texts] if self._has_cards(seen.state) else [])

    def _go_on(self, seen: Seen) -> bool:
        return self.points.go_on(seen.now, values_of(seen.state, self.of), self.span.seconds)

    def _has_cards(self, state: ClusterState) -> bool:
        if self.of.scope is Scope.NODE:
            node = state.nodes.get(self.of.name)
            return node is None or bool(node.cards)
        return True

    # -- asking

    def _ask(self) -> None:
        if not self.desk.seen().state.heard and not self.desk.link.live:
            return
        self._asking = True
        self._asked_at = self.desk.seen().now
        # Given as a function: one that is overtaken before it begins leaves nothing behind.
        work: Callable[[], Awaitable[None]] = partial(self._load, self._asked_at)
        self.run_worker(work, exclusive=True, group="series")

    async def _load(self, now: float) -> None:
        figures, of, start = figures_shown(self.of.scope), str(self.of), now - self.span.seconds
        step = 5.0 if self.span.live else None
        try:
            answer = await self.desk.admin.call(lambda api: api.series(figures, [of], start=start, step_s=step))
        except ClientError as error:
            self.said, self.points = error.message, Points()
        else:
            self._take(answer)
        self._asking = False
        self._paint(self.desk.seen())

    @property
    def settled(self) -> bool:
        """Whether all that was asked has come and is drawn."""
        return self._brought and not self._asking and not self._due

    def _take(self, answer: SeriesAnswer) -> None:
        self.said, self.note = "", answer.note
        self._since = answer.since if answer.source == "own" else None
        self.points = points_of(answer)

    # -- what is seen

    def _paint(self, seen: Seen) -> None:
        gone = self._gone(seen.state)
        lines = self._what_stands_against(seen, gone)
        self._line.set_lines([self._head()])
        self._state.set_lines(lines)
        blocked = bool(self.said or gone) or not seen.state.heard
        self._grid.display = not blocked
        self._meaning.display = not blocked and self.app.size.height >= BRIEFLY_FROM
        if not blocked:
            self._draw()

    def _what_stands_against(self, seen: Seen, gone: str) -> list[Line]:
        if not seen.state.heard:
            return waiting_lines(self.desk)
        if gone:
            return words.gone(gone)
        if self.said:
            return words.refused(self.said)
        lines: list[Line] = []
        if self.note:
            lines.append([(self.note, "warn")])
        begins = self.points.start + self.points.step_s
        if self._since is not None and self._since > begins and self.points.of:
            lines.append([(f"this server has figures since {moment(self._since)}", "dim")])
        return lines

    def _gone(self, state: ClusterState) -> str:
        subject = self.place.subject
        if subject is None or not state.heard:
            return ""
        there = card_of(state, subject.key) if subject.target == Target.CARD else row_of(state, subject)
        return "" if there is not None else f"{subject.target} {subject.key} is not there any more"

    def _head(self) -> Line:
        live = self.span.live and self.desk.link.live and not self.said
        return words.head(self.of, self.span, asking=self._asking, live=live)

    def _draw(self, *, one_by_one: bool = False) -> None:
        from console.widgets.chart import Drawn, key_of

        wanted = {chart.name: chart for chart in self._wanted()}
        for name, (panel, plot) in self._charts.items():
            chart = wanted.get(name)
            panel.display = chart is not None
            if chart is None:
                continue
            lines = tuple(tuple(self.points.of.get(figure, ())) for figure, _ in chart.lines)
            marks = tuple(map(key_of, range(len(chart.lines))))
            set_title(panel, title(chart.name, *words.facts(chart, self.points, marks)))
            self._due[plot] = Drawn(
                lines=lines,
                start=self.points.start,
                step_s=self.points.step_s,
                span_s=self._width_s(),
                floor=FLOOR_C if chart.unit == "°C" else 0.0,
                top=chart.top,
                empty=f"asking{signs().ellipsis}" if self._asking else "not reported in this time",
            )
        self._lay_out()
        # What stands above and below may have taken or given rows in the same moment.
        self.call_after_refresh(self._lay_out)
        self._show_due(len(self._due) if not one_by_one else 1)

    def _show_due(self, count: int) -> None:
        """Show this many of the charts that have something new, and the others one after the other."""
        for plot in list(self._due)[:count]:
            plot.show_lines(self._due.pop(plot))
        if self._due:
            self.set_timer(CHART_S, partial(self._show_due, 1))

    def _width_s(self) -> float:
        """What the charts' width stands for: the span, or as much of it as could be told."""
        told = self.points.step_s * self.points.count
        return told if 0 < told < self.span.seconds - 2 * self.points.step_s else self.span.seconds

    def _wanted(self) -> list[Chart]:
        """Charts with something in them; before anything came, all of them."""
        charts = CHARTS[self.of.scope]
        if not self.points.of:
            return list(charts)
        told = [chart for chart in charts if any(self.points.known(figure) for figure, _ in chart.lines)]
        return told or list(charts[:1])

    async def _bring_charts(self) -> None:
        """The charts' code takes a tenth of a second to load: it comes after the frame of the view is drawn."""
        if self._charts or not self.is_mounted:
            return
        make = import_module("console.widgets.chart").TimeChart
        panels: list[Container] = []
        for chart in CHARTS[self.of.scope]:
            plot = cast("TimeChart", make(partial(words.written, chart.unit)))
            panel = Container(plot, classes="panel chart")
            panels.append(panel)
            self._charts[chart.name] = (panel, plot)
        await self._grid.mount(*panels)
        self._paint(self.desk.seen())
        self._brought = True

    def _lay_out(self) -> None:
        width, height = self.size.width, self._grid.size.height
        columns = 1 if width < TWO_FROM else 2 if width < THREE_FROM else 3
        shown = sum(panel.display for panel, _ in self._charts.values())
        seen_rows = max(1, min(-(-shown // columns), height // LEAST_ROWS))
        # A window holds whole charts: what is left over makes the upper ones higher.
        room, more = divmod(max(LEAST_ROWS, min(MOST_ROWS * seen_rows, height)), seen_rows)
        laid_out = (columns, " ".join(str(room + (place < more)) for place in range(seen_rows)))
        if laid_out != self._laid_out:
            self._laid_out = laid_out
            self._grid.styles.grid_size_columns, self._grid.styles.grid_rows = laid_out

    # -- keys

    def subjects(self) -> tuple[Subject, ...]:
        """What it is of; of a card, who holds it, else its node."""
        subject = self.place.subject
        if subject is None or subject.target != Target.CARD:
            return () if subject is None else (subject,)
        card = card_of(self.desk.seen().state, subject.key)
        if card is None:
            return ()
        if card.card.replica:
            return (Subject(target=Target.REPLICA, key=card.card.replica),)
        return (Subject(target=Target.NODE, key=card.node.name),)

    def commands(self) -> list[Command]:
        """Spans, what it is of, and asking again."""

        def command(id_: str, label: str, key: str, run: Callable[[], None], footer: int, help_: str = "") -> Command:
            return Command(
                id=f"monitor.{id_}", label=label, key=key, run=run, footer=footer, help=help_, group="charts"
            )

        names = ", ".join(span.name for span in SPANS)
        found = [
            command("longer", "longer", "p", partial(self._turn, 1), 90, f"{names}, in turn"),
            command("shorter", "shorter", "P", partial(self._turn, -1), 89),
            command("of", "of what…", "o", self._pick, 85, "the cluster, a model, a node or a card"),
            command("again", "ask again", "a", self._ask, 60),
        ]
        if self.of.scope in (Scope.NODE, Scope.CARD) and self._cards():
            found.append(command("next", "next card", ".", partial(self._walk, 1), 80))
            found.append(command("before", "card before", ",", partial(self._walk, -1), 79))
        return found

    def turned(self) -> tuple[str, ...]:
        """Over how long."""
        return (self.span.name,)

    def focus_keys(self) -> None:
        """The charts scroll."""
        self.give_keys(self._grid)

    def _turn(self, by: int) -> None:
        self.span = SPANS[(SPANS.index(self.span) + by) % len(SPANS)]
        self.points, self.note, self.said = Points(), "", ""
        self._ask()
        self._paint(self.desk.seen())

    def _pick(self) -> None:
        cast("PromptScreen", self.screen).open_monitor_line()

    def _cards(self) -> list[str]:
        node = self.of.name if self.of.scope is Scope.NODE else self.of.name.rpartition("/")[0]
        row = self.desk.seen().state.nodes.get(node)
        return [f"{node}/{card.index}" for card in row.cards] if row is not None else []

    def _walk(self, by: int) -> None:
        cards = self._cards()
        here = cards.index(self.of.name) if self.of.name in cards else -1 if by > 0 else 0
        card = chart_place(Of(Scope.CARD, cards[(here + by) % len(cards)]))
        self.desk.go(replace(card, turned=self.turned()))
