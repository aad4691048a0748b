"""Under the work map: cards held for nothing, and what each model gets. They keep a pace and a height one can read."""

import math
from collections.abc import Callable
from typing import cast

from textual.app import ComposeResult
from textual.containers import Horizontal

from console.figures import plural
from console.screens.gpu_tables import EFFICIENCY, IDLE
from console.screens.view import title
from console.signs import signs
from console.state.cluster import ClusterState
from console.state.holdings import Holdings, IdleHolding
from console.widgets.columns import Seen
from console.widgets.lines import Line
from console.widgets.paint import LineWidget, Span
from console.widgets.table import Table
from llmgw.core.card_use import Efficiency

LIST_S = 10.0
"""Time between two counts of the tables while replicas stay: rows that change places faster cannot be read."""
SHRINK_S = 60.0
"""A table keeps rows that it no longer needs for so long: a card that rests a moment shall not move the whole view."""
LEAST_ROWS = 5
"""A table under the map may have so many, and more on a higher screen."""
ALONE_ROWS = 8
"""Height of a table that has the place under the map for itself."""
IDLE_TITLE, MODELS_TITLE = "held and doing nothing", "what each model gets from its cards"


class HoldingTables(Horizontal):
    """The two tables, one below the other or abreast."""

    def __init__(self, waiting: Callable[[], list[Line]], *, id: str | None = None) -> None:
        """`waiting` is what a table says before anything came."""
        super().__init__(id=id)
        self.idle: Table[IdleHolding] = Table(IDLE, id="gpus-idle")
        self.models: Table[Efficiency] = Table(EFFICIENCY, id="gpus-models")
        self.idle_rows: dict[str, IdleHolding] = {}
        self._model_rows: dict[str, Efficiency] = {}
        self._holdings = Holdings()
        self._state = ClusterState()
        self._waiting = waiting
        self._listed_at = -math.inf
        self._heights: tuple[int, int] = (0, 0)
        """Rows of the tables, idle and models, and since when they fit."""
        self._fitted_at = -math.inf
        self._both, self._abreast = False, False

    def compose(self) -> ComposeResult:
        for table in (self.idle, self.models):
            table.add_class("panel")
            yield table

    # -- what is in them

    def count(self, state: ClusterState, changed: frozenset[str] | None) -> None:
        """Nodes whose cards differ, none for all. They are counted behind the frame, which shows none of it."""
        self._holdings.update(state, changed)
        self._state = state
        self.call_after_refresh(self._catch_up)

    def _catch_up(self) -> None:
        self._holdings.count(self._state)

    def expire(self) -> None:
        """A row leads nowhere any more: the next tick lists anew."""
        self._listed_at = -math.inf

    def tick(self, seen: Seen) -> None:
        """A second has passed."""
        if seen.now - self._listed_at >= LIST_S:
            self.show(seen)

    def show(self, seen: Seen) -> None:
        """List anew."""
        state = seen.state
        if not self.is_mounted:
            return
        if not state.heard:
            self._list_nothing()
            return
        self._listed_at = seen.now
        idle, models = self._holdings.idle(state), self._holdings.efficiency(state)
        for table, rows, before in ((self.idle, idle, self.idle_rows), (self.models, models, self._model_rows)):
            changed = {key for key in rows.keys() | before.keys() if rows.get(key) != before.get(key)}
            cast("Table[object]", table).update_rows(rows, seen, changed)
            cast("Table[object]", table).tick(seen)
        self.idle_rows, self._model_rows = idle, models
        works: list[Span] = [(f"{signs().good} ", "good"), ("every card that is held works", "dim")]
        self.idle.set_notice([works if models else [("no card is held", "dim")]])
        self.models.set_notice([[("no model holds a card", "dim")]])
        self._say_titles()
        self._fit()

    def _say_titles(self) -> None:
        cards = sum(len(holding.places) for holding in self.idle_rows.values())
        draw = sum(holding.draw_w or 0.0 for holding in self.idle_rows.values())
        facts = (plural(cards, "card"), "bold $warning") if cards else ("none", "$success")
        wasted = f"{draw:,.0f} W for it" if draw >= 1 else ""
        self.idle.set_title(title(IDLE_TITLE, facts, (wasted, "$tone-dim")))
        self.models.set_title(title(MODELS_TITLE, ("best per card first", "$tone-dim")))

    def _list_nothing(self) -> None:
        """Before any word came there is none of cards that are held, nor of models."""
        for table, name in ((self.idle, IDLE_TITLE), (self.models, MODELS_TITLE)):
            table.set_notice(self._waiting())
            table.set_title(title(name))

    # -- how high they are

    def fit(self, *, idle: bool, models: bool, both: bool, abreast: bool) -> None:
        """Which of them are shown, and whether both have a place at once, side by side or not."""
        self._both, self._abreast = both, abreast
        self.idle.display, self.models.display = idle, models
        self.display = idle or models
        self.set_class(abreast, "-abreast")
        if both:
            self._fit()
            return
        _set_height(self.idle, ALONE_ROWS)
        _set_height(self.models, ALONE_ROWS)

    def _fit(self) -> None:
        """As high as their rows."""
        if not self._both:
            return
        most = max(LEAST_ROWS, (self.app.size.height - 16) // 4)
        idle, models = (max(1, min(most, len(rows))) + 3 for rows in (self.idle_rows, self._model_rows))
        idle_rows, model_rows = self._steady(idle, models, most + 3)
        _set_height(self.idle, idle_rows)
        _set_height(self.models, model_rows)

    def _steady(self, idle: int, models: int, most: int) -> tuple[int, int]:
        """Heights that grow at once and shrink after a while; abreast both are as high as the higher one."""
        needed = (max(idle, models),) * 2 if self._abreast else (idle, models)
        grown = (max(needed[0], self._heights[0]), max(needed[1], self._heights[1]))
        if grown == needed or self._listed_at - self._fitted_at >= SHRINK_S:
            self._heights, self._fitted_at = needed, self._listed_at
        else:
            self._heights = (min(most, grown[0]), min(most, grown[1]))
        return self._heights


def _set_height(table: LineWidget, rows: int) -> None:
    if table.styles.height is None or table.styles.height.value != rows:
        table.styles.height = rows
