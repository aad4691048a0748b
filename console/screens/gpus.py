"""GPUs: the work map, all of the card under its cursor, and below what is held for nothing and what models get.

What fits is shown: on a wide screen everything, on a small one the map and one pane below it, turned over by `v`.
"""

import math
from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, ClassVar, cast

from textual import events
from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical

from console.commands import Command
from console.figures import plural
from console.places import Place, Subject
from console.screens.gpu_tables import EFFICIENCY, IDLE
from console.screens.view import View, row_of, title, waiting_lines
from console.signs import signs
from console.state.cards import Mode
from console.state.cluster import ClusterState
from console.state.diff import Diff
from console.state.filter import parse_filter
from console.state.folding import Folds, GroupLine
from console.state.holdings import Efficiency, Holdings, IdleHolding
from console.state.touched import nodes_moved, touched_nodes
from console.widgets.card_facts import card_lines, group_lines, meaning_lines, short_card_lines
from console.widgets.columns import Seen
from console.widgets.gpu_map import GpuMap
from console.widgets.lines import Line
from console.widgets.paint import LineWidget, Span
from console.widgets.table import Table
from console.widgets.text_block import TextBlock
from console.widgets.titles import set_title
from llmgw.api.actions import Target

if TYPE_CHECKING:
    from console.widgets.plot import CardPlot

SIDE_FROM = 106
"""Columns from which the card has a panel of its own beside the map."""
ROOMY_FROM = 150
"""Columns from which that panel is wider."""
TABLES_FROM, ALL_BELOW_FROM = 30, 44
"""Rows from which both tables have a place under the map, and the card as well where it has none beside it."""
PANE_FROM = 14
"""Rows below which nothing stands under the map."""
ABREAST_FROM = 220
"""Columns from which the tables stand side by side."""
PLOT_FROM = 34
"""Rows from which there is a chart."""
LIST_S = 10.0
"""Time between two counts of the tables while replicas stay: rows that change places faster cannot be read."""
SHRINK_S = 60.0
"""A table keeps rows that it no longer needs for so long: a card that rests a moment shall not move the whole view."""
LEAST_TABLE_ROWS = 5
"""A table under the map may have so many, and more on a higher screen."""
_MEANING = {
    Mode.WORK: "how much of each chip is at work",
    Mode.BUSY: "share of time any kernel ran",
    Mode.MEMORY: "percent of each card's memory in use",
    Mode.TEMPERATURE: "degrees Celsius",
}
_KEYS = {Mode.WORK: "w", Mode.BUSY: "b", Mode.MEMORY: "m", Mode.TEMPERATURE: "t"}
_LABELS = {Mode.WORK: "work", Mode.BUSY: "busy", Mode.MEMORY: "memory", Mode.TEMPERATURE: "temp"}
_IDLE_TITLE, _MODELS_TITLE = "held and doing nothing", "what each model gets from its cards"
_PANES = ("card", "idle", "models", "")
"""What `v` turns over where not all fits; the last is the map alone."""


class Gpus(View):
    """Map, card, tables."""

    NOUN: ClassVar[str] = "cards"

    def __init__(self, place: Place) -> None:
        super().__init__(place)
        self.map = GpuMap(id="gpumap")
        self.idle: Table[IdleHolding] = Table(IDLE, id="gpus-idle")
        self.models: Table[Efficiency] = Table(EFFICIENCY, id="gpus-models")
        self.pane = _PANES[0]
        self._holdings = Holdings()
        self._facts = TextBlock(id="gpu-facts")
        self._short_facts = TextBlock(id="gpu-short-facts")
        self._meaning = TextBlock(meaning_lines(), wrapped=True, id="gpu-meaning")
        self._side = Vertical(id="gpus-side")
        self._plot: CardPlot | None = None
        self._told_group: GroupLine | None = None
        self._state = ClusterState()
        """What is shown."""
        self._listed_at = -math.inf
        self._heights: tuple[int, int] = (0, 0)
        """Rows of the tables, idle and models, and since when they fit."""
        self._fitted_at = -math.inf
        self._card_panel = Vertical(id="gpus-card", classes="panel")
        self._idle_rows: dict[str, IdleHolding] = {}
        self._model_rows: dict[str, Efficiency] = {}

    def compose(self) -> ComposeResult:
        for widget in (self.map, self.idle, self.models, self._short_facts):
            widget.add_class("panel")
        with Horizontal(id="gpus"):
            with Vertical(id="gpus-main"):
                yield self.map
                yield self._short_facts
                with Horizontal(id="gpus-tables"):
                    yield self.idle
                    yield self.models
            with self._side:
                with self._card_panel:
                    yield self._facts
                with Vertical(id="gpus-words", classes="panel"):
                    yield self._meaning

    def on_mount(self) -> None:
        """The words' frame never changes."""
        self.query_one("#gpus-words").border_title = title("what the words mean")

    # -- what is shown

    def update(self, seen: Seen, diff: Diff | None) -> None:
        """What the diff touches."""
        state = seen.state
        self.map.set_notice(_notice(state) if state.heard else waiting_lines(self.desk))
        if diff is None or diff.touches("nodes", "figures", "replicas"):
            before, self._state = self._state, state
            changed = None if diff is None else touched_nodes(before, state, diff)
            self._holdings.update(state, changed)
            self._holdings.count(state)
            self.map.show(seen, changed, structural=diff is None or nodes_moved(before, state, diff))
            self._say_title(state)
            self._show_card(seen, changed)
        if diff is None:
            self._lay_out()
            self._list(seen)
        elif diff.gone.get("replicas"):
            # A row whose replica has gone leads nowhere: the next tick lists anew.
            self._listed_at = -math.inf

    def tick(self, seen: Seen) -> None:
        """Ages and samples; the tables keep a pace one can read."""
        self.map.tick(seen)
        self._say_title(seen.state)
        self._show_card(seen, None)
        if seen.now - self._listed_at >= LIST_S:
            self._list(seen)

    def _list(self, seen: Seen) -> None:
        state = seen.state
        if not self.is_mounted:
            return
        if not state.heard:
            self._list_nothing()
            return
        self._listed_at = seen.now
        idle, models = self._holdings.idle(state), self._holdings.efficiency(state)
        for table, rows, before in ((self.idle, idle, self._idle_rows), (self.models, models, self._model_rows)):
            changed = {key for key in rows.keys() | before.keys() if rows.get(key) != before.get(key)}
            cast("Table[object]", table).update_rows(rows, seen, changed)
            cast("Table[object]", table).tick(seen)
        self._idle_rows, self._model_rows = idle, models
        cards = sum(len(holding.places) for holding in idle.values())
        draw = sum(holding.draw_w for holding in idle.values())
        works: list[Span] = [(f"{signs().good} ", "good"), ("every card that is held works", "dim")]
        self.idle.set_notice([works if models else [("no card is held", "dim")]])
        self.models.set_notice([[("no model holds a card", "dim")]])
        facts = (plural(cards, "card"), "bold $warning") if cards else ("none", "$success")
        wasted = f"{draw:,.0f} W for it" if draw >= 1 else ""
        self.idle.set_title(title(_IDLE_TITLE, facts, (wasted, "$tone-dim")))
        self.models.set_title(title(_MODELS_TITLE, ("best per card first", "$tone-dim")))
        self._fit_tables()

    def _list_nothing(self) -> None:
        """Before any word came there is none of cards that are held, nor of models."""
        for table, name in ((self.idle, _IDLE_TITLE), (self.models, _MODELS_TITLE)):
            table.set_notice(waiting_lines(self.desk))
            table.set_title(title(name))

    def _fit_tables(self) -> None:
        """Tables as high as their rows, side by side as high as the higher one."""
        if not self._both():
            return
        most = max(LEAST_TABLE_ROWS, (self.app.size.height - 16) // 4)
        idle, models = (max(1, min(most, len(rows))) + 3 for rows in (self._idle_rows, self._model_rows))
        tables: tuple[LineWidget, ...] = (self.idle, self.models)
        for table, height in zip(tables, self._steady(idle, models, most + 3), strict=True):
            if table.styles.height is None or table.styles.height.value != height:
                table.styles.height = height

    def _steady(self, idle: int, models: int, most: int) -> tuple[int, int]:
        """Heights that grow at once and shrink after a while; abreast both are as high as the higher one."""
        needed = (max(idle, models),) * 2 if self.size.width >= ABREAST_FROM else (idle, models)
        grown = (max(needed[0], self._heights[0]), max(needed[1], self._heights[1]))
        if grown == needed or self._listed_at - self._fitted_at >= SHRINK_S:
            self._heights, self._fitted_at = needed, self._listed_at
        else:
            self._heights = (min(most, grown[0]), min(most, grown[1]))
        return self._heights

    def _both(self) -> bool:
        size = self.app.size
        return size.height >= (TABLES_FROM if size.width >= SIDE_FROM else ALL_BELOW_FROM)

    def _pane_shown(self, name: str) -> bool:
        return self._both() or (self.pane == name and self.app.size.height >= PANE_FROM)

    def _lay_out(self) -> None:
        """Show what fits."""
        wide, both = self.app.size.width >= SIDE_FROM, self._both()
        self._side.display = wide
        self._side.set_class(self.app.size.width >= ROOMY_FROM, "-roomy")
        self._short_facts.display = not wide and self._pane_shown("card")
        self.idle.display = self._pane_shown("idle")
        self.models.display = self._pane_shown("models")
        tables = self.query_one("#gpus-tables")
        tables.display = self.idle.display or self.models.display
        tables.set_class(self.app.size.width >= ABREAST_FROM, "-abreast")
        for table in (self.idle, self.models):
            if not both and (table.styles.height is None or table.styles.height.value != 8):
                table.styles.height = 8
        self._fit_tables()
        if wide and self.app.size.height >= PLOT_FROM and self._plot is None and not signs().ascii:
            self.call_after_refresh(self._bring_plot)
        elif self._plot is not None:
            self._plot.display = self.app.size.height >= PLOT_FROM

    async def _bring_plot(self) -> None:
        if self._plot is None and self.is_mounted:
            make = import_module("console.widgets.plot").CardPlot
            self._plot = cast("CardPlot", make(id="gpu-plot"))
            self._plot.add_class("panel")
            self._plot.border_title = title("last 15 minutes")
            await self._side.mount(self._plot, before="#gpus-words")
            self._show_plot(self.desk.seen())

    def on_resize(self, _: events.Resize) -> None:
        """Another size, other panels."""
        self._lay_out()
        self._told_group = None
        self._show_card(self.desk.seen(), None)

    def _show_card(self, seen: Seen, changed: frozenset[str] | None) -> None:
        on, line = self.map.card, self.map.line
        if changed is not None and on is not None and on.node.name not in changed:
            return
        if isinstance(line, GroupLine) and line is self._told_group:
            # Thousands of cards are counted when the lines are arranged, and not with every figure.
            return
        self._told_group = line if isinstance(line, GroupLine) else None
        side, short = max(20, self._facts.size.width), max(20, self._short_facts.size.width)
        name, kind = "", ""
        if on is not None:
            name = f"{on.node.name} {signs().dot} GPU {on.card.index}"
            self._set_facts(lambda: card_lines(seen, on, side), lambda: short_card_lines(seen, on, short))
        elif isinstance(line, GroupLine):
            name, kind = plural(len(line.nodes), "node"), line.gpu_class
            self._set_facts(
                lambda: group_lines(seen.state, line, side), lambda: group_lines(seen.state, line, short)[:8]
            )
        else:
            nothing = [[("no card under the cursor", "dim")]] if seen.state.heard else waiting_lines(self.desk)
            self._set_facts(lambda: nothing, lambda: nothing)
        self._name_card(name, kind)
        self._show_plot(seen)

    def _set_facts(self, side: Callable[[], list[Line]], short: Callable[[], list[Line]]) -> None:
        if self._side.display:
            self._facts.set_lines(side())
        if self._short_facts.display:
            self._short_facts.set_lines(short())

    def _name_card(self, name: str, kind: str) -> None:
        said = title(name or "card", (kind, "$tone-dim"))
        for panel in (self._short_facts, self._card_panel):
            set_title(panel, said)

    def _show_plot(self, seen: Seen) -> None:
        plot, on = self._plot, self.map.card
        if plot is None:
            return
        plot.display = on is not None and self.app.size.height >= PLOT_FROM
        if on is not None and plot.display:
            node, place = on.node.name, on.place
            work, busy = (seen.history.card(node, place, figure) for figure in ("work", "busy"))
            plot.set_series(("busy", "accent", busy), ("work", "primary", work))

    def _say_title(self, state: ClusterState) -> None:
        map_ = self.map
        filtered = f"/{map_.filter.text} shows {plural(map_.nodes_shown, 'node')}" if map_.filter else ""
        order = "worst first" if map_.folds.worst_first else ""
        facts = [(filtered, "bold $warning"), (order, "$tone-dim")]
        if self._both():
            map_.set_title(title(map_.mode.value, (_MEANING[map_.mode], "$tone-dim"), *facts))
            counts = _counts(state)
            map_.set_subtitle(title(counts[0][0], *counts[1:]) if counts else title(""))
        else:
            # Without a lower frame the counts have the upper one to themselves.
            map_.set_title(title(map_.mode.value, *facts, *_counts(state)))

    # -- keys

    def subjects(self) -> tuple[Subject, ...]:
        """The replica that holds the card, else its node; in a table, its row."""
        if self.idle.has_focus and self.idle.cursor_key in self._idle_rows:
            return (Subject(target=Target.REPLICA, key=self._idle_rows[self.idle.cursor_key or ""].replica),)
        if self.models.has_focus and self.models.cursor_key is not None:
            return (Subject(target=Target.MODEL, key=self.models.cursor_key),)
        on = self.map.card
        if on is None:
            return ()
        if on.card.replica:
            return (Subject(target=Target.REPLICA, key=on.card.replica),)
        return (Subject(target=Target.NODE, key=on.node.name),)

    def commands(self) -> list[Command]:
        """Modes, and how the map is arranged."""

        def command(
            id_: str, label: str, key: str, run: Callable[[], None], footer: int = 0, help_: str = ""
        ) -> Command:
            return Command(id=f"gpus.{id_}", label=label, key=key, run=run, footer=footer, help=help_, group="map")

        modes = [
            command(mode.value, _LABELS[mode], key, partial(self.set_mode, mode), 80 - step, _MEANING[mode])
            for step, (mode, key) in enumerate(_KEYS.items())
        ]
        folding = "unfold" if self.map.folding else "fold"
        found = [
            *modes,
            command("fold", folding, "z", self.fold, 40, "nodes with nothing to tell in one line, or each in its own"),
            command("order", "worst first", "o", self.reorder, 38, "nodes that need somebody first, or by name"),
            command("next", "next table", "tab", self.app.action_focus_next, 0, "map, held and idle, models"),
        ]
        if not self._both():
            found.append(command("pane", "below", "v", self.turn, 76, "the card, idle cards, models, or the map alone"))
        if self.map.card is not None:
            found.append(command("node", "node", "N", self.open_node, 42, "all about the card's machine"))
        if self.map.line is not None:
            open_ = self._open_focused
            found.insert(0, Command(id="open", label="open", key="enter", group="map", footer=90, run=open_))
        return found

    def set_mode(self, mode: Mode) -> None:
        """Cells show another figure."""
        self.map.set_mode(mode)
        self._say_title(self.desk.seen().state)

    def fold(self) -> None:
        """Fold quiet nodes, or show all."""
        folds = self.map.folds
        self.map.set_folds(Folds(worst_first=folds.worst_first, fold=not self.map.folding))
        self.desk.refresh_frame()

    def reorder(self) -> None:
        """Worst first, or by name."""
        folds = self.map.folds
        self.map.set_folds(Folds(worst_first=not folds.worst_first, fold=folds.fold, unfolded=folds.unfolded))
        self._say_title(self.desk.seen().state)

    def turn(self) -> None:
        """The next pane below the map."""
        panes = _PANES if self.app.size.width < SIDE_FROM else tuple(pane for pane in _PANES if pane != "card")
        here = panes.index(self.pane) if self.pane in panes else -1
        self.pane = panes[(here + 1) % len(panes)]
        if not (self.idle.has_focus and self.pane == "idle") and not (self.models.has_focus and self.pane == "models"):
            self.map.focus(scroll_visible=False)
        self._lay_out()
        self._told_group = None
        self.call_after_refresh(lambda: self._show_card(self.desk.seen(), None))

    def open_node(self) -> None:
        """The machine's page."""
        on = self.map.card
        if on is not None:
            self.open_subject(Subject(target=Target.NODE, key=on.node.name))

    def _open_focused(self) -> None:
        focused = self.app.focused
        if isinstance(focused, Table | GpuMap):
            focused.action_open()

    def on_gpu_map_opened(self) -> None:
        """The replica, the node, or the nodes of a group."""
        line = self.map.line
        if isinstance(line, GroupLine):
            folds = self.map.folds
            unfolded = folds.unfolded ^ {line.key}
            self.map.set_folds(Folds(worst_first=folds.worst_first, fold=folds.fold, unfolded=unfolded))
            self.map.move_to(line.nodes[0])
            return
        for subject in self.subjects():
            self.open_subject(subject)

    def on_table_opened(self, event: Table.Opened) -> None:
        """What the row is about."""
        event.stop()
        for subject in self.subjects():
            self.open_subject(subject)

    def on_gpu_map_moved(self) -> None:
        """Another card, other actions."""
        self._show_card(self.desk.seen(), None)
        self.desk.refresh_frame()

    def on_gpu_map_arranged(self) -> None:
        """Other lines, or the same counted anew."""
        self._told_group = None
        self._show_card(self.desk.seen(), None)
        self._say_title(self.desk.seen().state)

    def on_table_moved(self) -> None:
        """Another row, other actions."""
        self.desk.refresh_frame()

    def on_descendant_focus(self) -> None:
        """Another part has the keys: its row is what actions are about."""
        self.desk.refresh_frame()

    def focus_keys(self) -> None:
        """The map has the keys."""
        self.map.focus(scroll_visible=False)

    def filter_text(self) -> str:
        """The map's filter."""
        return self.map.filter.text

    def set_filter(self, text: str) -> bool:
        """Nodes with cards that match."""
        self.map.set_filter(parse_filter(text))
        state = self.desk.seen().state
        self.map.set_notice(_notice(state, self.filter_text()) if state.heard else waiting_lines(self.desk))
        self._say_title(state)
        return True

    def escape(self) -> bool:
        """The filter, then back to the map."""
        if self.filter_text():
            return self.set_filter("")
        if not self.map.has_focus:
            self.map.focus(scroll_visible=False)
            return True
        return False

    def document(self, state: ClusterState) -> tuple[Subject, object] | None:
        """Row of the replica, the node or the model."""
        subjects = self.subjects()
        row = row_of(state, subjects[0]) if subjects else None
        return None if row is None else (subjects[0], row)

    def copy_text(self) -> str:
        """The card's UUID; in a table, what the row is about."""
        on = self.map.card
        return on.card.uuid if self.map.has_focus and on is not None else super().copy_text()


def _notice(state: ClusterState, filter_: str = "") -> list[Line]:
    if filter_ and state.nodes:
        return [[("no card matches ", "dim"), (filter_, "strong")], [("esc", "key"), (" shows all", "dim")]]
    if state.nodes:
        return [[("no node has a GPU: replicas run on the processors", "dim")], [("4", "key"), (" shows nodes", "dim")]]
    return [[("No node has joined.", "dim")], [("4", "key"), (" shows nodes, and how one joins", "dim")]]


def _counts(state: ClusterState) -> list[tuple[str, str]]:
    load = state.load
    if not state.heard:
        return []
    return [
        (f"{load.cards:,} cards", ""),
        (f"{load.worn:,} wearing out" if load.worn else "", "bold $error"),
        (f"{load.idle:,} held, idle" if load.idle else "", "bold $warning"),
        (f"{load.working:,} at work", ""),
        (f"{load.free:,} free", ""),
    ]
