"""GPUs: the work map, all of the card under its cursor, and below what is held for nothing and what models get.

What fits is shown: on a wide screen everything, on a small one the map and one pane below it, turned over by `v`.
"""

from collections.abc import Callable
from functools import partial
from typing import ClassVar

from textual import events
from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical
from textual.widget import Widget

from console.commands import Command
from console.figures import plural
from console.places import Place, Subject
from console.screens.gpu_card import CardSide
from console.screens.gpu_holdings import HoldingTables
from console.screens.gpu_words import KEYS, LABELS, MEANING, counts, notice
from console.screens.view import View, row_of, title, waiting_lines
from console.state.cards import Mode
from console.state.cluster import ClusterState
from console.state.diff import Diff
from console.state.filter import parse_filter
from console.state.folding import Folds, GroupLine
from console.state.holdings import IdleHolding
from console.state.touched import nodes_moved, touched_nodes
from console.widgets.columns import Seen
from console.widgets.gpu_map import GpuMap
from console.widgets.table import Table
from llmgw.api.actions import Target
from llmgw.core.card_use import Efficiency

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
PANES = ("card", "idle", "models", "")
"""What `v` turns over where not all fits; the last is the map alone."""


class Gpus(View):
    """Map, card, tables."""

    NOUN: ClassVar[str] = "cards"

    def __init__(self, place: Place) -> None:
        super().__init__(place)
        self.map = GpuMap(id="gpumap")
        self.pane = PANES[0]
        self._tables = HoldingTables(lambda: waiting_lines(self.desk), id="gpus-tables")
        self._side = CardSide(lambda: waiting_lines(self.desk), id="gpus-side")
        self._walked: Widget = self.map
        """What has the keys, or had them when a line or a page took them."""
        self._state = ClusterState()
        """What is shown."""

    def compose(self) -> ComposeResult:
        self.map.add_class("panel")
        with Horizontal(id="gpus"):
            with Vertical(id="gpus-main"):
                yield self.map
                yield self._side.short
                yield self._tables
            yield self._side

    @property
    def idle(self) -> Table[IdleHolding]:
        """Cards held for nothing."""
        return self._tables.idle

    @property
    def models(self) -> Table[Efficiency]:
        """What models get."""
        return self._tables.models

    # -- what is shown

    def update(self, seen: Seen, diff: Diff | None) -> None:
        """What the diff touches."""
        state = seen.state
        self.map.set_notice(notice(state, self.filter_text()) if state.heard else waiting_lines(self.desk))
        if diff is None or diff.touches("nodes", "figures", "replicas"):
            before, self._state = self._state, state
            changed = None if diff is None else touched_nodes(before, state, diff)
            self._tables.count(state, changed)
            self.map.show(seen, changed, structural=diff is None or nodes_moved(before, state, diff))
            self._say_title(state)
            self._show_card(seen, changed)
        if diff is None:
            self._lay_out()
            self._tables.show(seen)
        elif diff.gone.get("replicas"):
            self._tables.expire()

    def tick(self, seen: Seen) -> None:
        """Ages and samples; the tables keep a pace one can read."""
        self.map.tick(seen)
        self._say_title(seen.state)
        self._show_card(seen, None)
        self._tables.tick(seen)

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
        self._side.short.display = not wide and self._pane_shown("card")
        self._tables.fit(
            idle=self._pane_shown("idle"),
            models=self._pane_shown("models"),
            both=both,
            abreast=self.app.size.width >= ABREAST_FROM,
        )
        if self._side.wants_plot:
            self.call_after_refresh(self._bring_plot)

    async def _bring_plot(self) -> None:
        await self._side.bring_plot(self.desk.seen(), self.map.card)

    def on_resize(self, _: events.Resize) -> None:
        """Another size, other panels."""
        self._lay_out()
        self._side.forget_group()
        self._show_card(self.desk.seen(), None)

    def _show_card(self, seen: Seen, changed: frozenset[str] | None) -> None:
        """Tell of the card under the cursor, where its node is among the `changed` ones."""
        on, line = self.map.card, self.map.line
        if changed is not None and on is not None and on.node.name not in changed:
            return
        self._side.show(seen, on, line)

    def _say_title(self, state: ClusterState) -> None:
        map_ = self.map
        filtered = f"/{map_.filter.text} shows {plural(map_.nodes_shown, 'node')}" if map_.filter else ""
        order = "worst first" if map_.folds.worst_first else ""
        facts = [(filtered, "bold $warning"), (order, "$tone-dim")]
        if self._both():
            map_.set_title(title(map_.mode.value, (MEANING[map_.mode], "$tone-dim"), *facts))
            found = counts(state)
            map_.set_subtitle(title(found[0][0], *found[1:]) if found else title(""))
        else:
            # Without a lower frame the counts have the upper one to themselves.
            map_.set_title(title(map_.mode.value, *facts, *counts(state)))

    def looked_at(self) -> str:
        """The node of the card that is told of."""
        on = self.map.card
        return on.node.name if on is not None and (self._side.display or self._side.short.display) else ""

    # -- keys

    def subjects(self) -> tuple[Subject, ...]:
        """The replica that holds the card, else its node; in a table, its row."""
        if self._walked is self.idle and self.idle.cursor_key in self._tables.idle_rows:
            return (Subject(target=Target.REPLICA, key=self._tables.idle_rows[self.idle.cursor_key or ""].replica),)
        if self._walked is self.models and self.models.cursor_key is not None:
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
            command(mode.value, LABELS[mode], key, partial(self.set_mode, mode), 80 - step, MEANING[mode])
            for step, (mode, key) in enumerate(KEYS.items())
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
        self._side.set_mode(mode)
        self._side.forget_group()
        self._show_card(self.desk.seen(), None)
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
        panes = PANES if self.app.size.width < SIDE_FROM else tuple(pane for pane in PANES if pane != "card")
        here = panes.index(self.pane) if self.pane in panes else -1
        self.pane = panes[(here + 1) % len(panes)]
        if not (self.idle.has_focus and self.pane == "idle") and not (self.models.has_focus and self.pane == "models"):
            self.map.focus(scroll_visible=False)
        self._lay_out()
        self._side.forget_group()
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
        self._side.forget_group()
        self._show_card(self.desk.seen(), None)
        self._say_title(self.desk.seen().state)

    def on_table_moved(self) -> None:
        """Another row, other actions."""
        self.desk.refresh_frame()

    def on_descendant_focus(self, event: events.DescendantFocus) -> None:
        """Another part has the keys: its row is what actions are about."""
        self._walked = event.widget
        self.desk.refresh_frame()

    def focus_keys(self) -> None:
        """What had the keys has them again, the map where that is not shown any more."""
        self.give_keys(self._walked if self._walked.display else self.map)

    def filter_text(self) -> str:
        """The map's filter."""
        return self.map.filter.text

    def set_filter(self, text: str) -> bool:
        """Nodes with cards that match."""
        self.map.set_filter(parse_filter(text))
        state = self.desk.seen().state
        self.map.set_notice(notice(state, self.filter_text()) if state.heard else waiting_lines(self.desk))
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
        return on.card.uuid if self._walked is self.map and on is not None else super().copy_text()
