"""The small work map: a row a node, a cell a card, coloured and numbered by how much of the chip works.

Nodes without cards show what their processors do. Where not all fit, the troubled and the busiest are kept, and the
last line counts the others. Which those are is decided anew when a node gets into trouble or out of it, and otherwise
every RANK_S; a row is laid out when its node differs, and only if it is shown.
"""

from collections.abc import Iterable
from heapq import nsmallest

from textual.geometry import Region, Size
from textual.strip import Strip

from console.figures import percent, plural, watts
from console.state.cards import Mode, cards_of
from console.state.cluster import ClusterState
from console.state.index import nodes_of
from console.state.loads import NodeLoad
from console.state.unheard import unheard_words
from console.text import fit, plain
from console.widgets.gpu_cells import cell
from console.widgets.order import natural
from console.widgets.paint import LineWidget, Span, progress_spans, spans_width
from llmgw.api.card_uses import UNHEARD
from llmgw.api.watch import FiguresRow, NodeRow, ReplicaRow

CELL = 4
"""Columns of a card: its figure, and a mark."""
NAME_COLUMNS = 16
CLASS_COLUMNS = 11
MAX_CELLS = 16
"""Cards of a node drawn one by one."""
RANK_S = 10.0
"""A node that is merely busier than one that is shown waits so long for its place: rows that jump cannot be read."""
STAY_PERCENT = 10.0
"""A node that is shown stays until another works by so much more."""
_QUIET = 2
_RANKS = {"bad": 0, "warn": 1, "info": 1, "": _QUIET}
"""A note's tone → its node's place: no busy node hides one that is not heard."""
COMING = ("fetching", "checking", "starting")
"""States of a replica that a node's row tells of."""


class WorkMap(LineWidget):
    """Nodes and their cards."""

    def __init__(self, *, id: str = "workmap") -> None:
        super().__init__(id=id)
        self._state = ClusterState()
        self._notice: list[list[Span]] = []
        self._shown: list[str] = []
        """Nodes that have a row, from top to bottom."""
        self._coming: dict[str, ReplicaRow] = {}
        """Node → a replica that is on its way to it."""
        self._now = self._ranked_at = 0.0
        self._hidden: list[Span] = []
        self._spans: dict[str, list[Span]] = {}
        self._painted: dict[int, list[Span]] = {}

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        """A line a node, half of what there is at most."""
        return max(1, min(len(self._state.nodes), container.height // 2 - 2))

    def set_notice(self, notice: list[list[Span]]) -> None:
        """What stands where nodes will be."""
        if notice != self._notice:
            self._notice = notice
            self._refresh_lines()

    def set_state(
        self, state: ClusterState, now: float, changed: Iterable[str] | None = None, *, moved: bool = False
    ) -> None:
        """Show these nodes; `changed` are those that may differ, none is all; `moved` when rows may move at once."""
        before, self._state, self._now = self._state, state, now
        if len(state.nodes) != len(before.nodes):
            self.refresh(layout=True)
        if changed is None:
            self._spans.clear()
        else:
            for name in changed:
                self._spans.pop(name, None)
        if changed is None or moved or now - self._ranked_at >= RANK_S:
            self._rank(now)
        self._refresh_lines()

    def tick(self, now: float) -> None:
        """A second has passed: nodes that are not heard say for how long."""
        self._now = now
        nodes = self._state.nodes
        aged = [name for name in self._shown if name in nodes and nodes[name].state in UNHEARD]
        for name in aged:
            self._spans.pop(name, None)
        if aged:
            self._refresh_lines()

    def on_resize(self) -> None:
        """Another number of nodes fits."""
        self._spans.clear()
        self._rank(self._ranked_at)
        self.refresh()

    def notify_style_update(self) -> None:
        """Another theme: nothing that is on the screen is right any more."""
        self._painted.clear()
        super().notify_style_update()

    def render_line(self, y: int) -> Strip:
        """One node."""
        line = self._painted[y] = self._line(y)
        return self.strip(line, self.size.width)

    # -- which nodes

    def _rank(self, now: float) -> None:
        state, room = self._state, self.size.height
        self._ranked_at = now
        self._coming = {name: row for row in state.replicas.values() if row.state in COMING for name in nodes_of(row)}
        names: list[str] = list(state.nodes)
        if len(names) > room > 0:
            names = self._first(names, room)
        self._shown = sorted(names, key=natural) if room > 0 else []
        self._hidden = self._count_hidden(frozenset(names))
        self._spans = {name: spans for name, spans in self._spans.items() if name in names}

    def _first(self, names: list[str], room: int) -> list[str]:
        """Those that have a row: half of the room at most is for nodes with a word to say, the rest for the busiest."""
        staying = frozenset(self._shown)
        places = {name: self._place(name, name in staying) for name in names}
        told = nsmallest(room // 2, (name for name in names if places[name][0] < _QUIET), key=places.__getitem__)
        taken = frozenset(told)
        others = (name for name in names if name not in taken)
        return told + nsmallest(room - 1 - len(told), others, key=lambda name: places[name][1:])

    def _place(self, name: str, stays: bool) -> tuple[int, float, str]:
        load = self._state.node_load(name)
        rank = _RANKS[_note(self._state.nodes[name], load, self._coming.get(name))[1]]
        return (rank, -(load.mean_work_percent or 0.0) - (STAY_PERCENT if stays else 0.0), name)

    def _count_hidden(self, shown: frozenset[str]) -> list[Span]:
        state = self._state
        hidden = len(state.nodes) - len(shown)
        if hidden <= 0:
            return []
        cards = state.load.cards - sum(state.node_load(name).cards for name in shown)
        at_work = state.load.at_work - sum(state.node_load(name).at_work for name in shown)
        they = f"{plural(hidden, 'node')} with {plural(cards, 'card')}, {at_work:,} at work"
        return [(f"and {they}" if shown else f"{they}: 5 shows them", "dim")]

    # -- their rows

    def _refresh_lines(self) -> None:
        regions: list[Region] = []
        columns, lines = self.size
        for y in range(lines):
            line, painted = self._line(y), self._painted.get(y)
            if painted != line:
                regions += self.span_regions(y, painted, line, columns)
        self.repaint(regions)

    def _line(self, y: int) -> list[Span]:
        if not self._state.nodes:
            return self._notice_line(y)
        if y < len(self._shown):
            return self._row(self._shown[y])
        return self._hidden if y == len(self._shown) else []

    def _notice_line(self, y: int) -> list[Span]:
        top = max(0, (self.size.height - len(self._notice)) // 3)
        if not top <= y < top + len(self._notice):
            return []
        line = self._notice[y - top]
        return [(" " * max(0, (self.size.width - spans_width(line)) // 2), ""), *line]

    def _row(self, name: str) -> list[Span]:
        spans = self._spans.get(name)
        if spans is None:
            node = self._state.nodes.get(name)
            spans = self._spans[name] = [] if node is None else self._lay_out(node)
        return spans

    def _lay_out(self, node: NodeRow) -> list[Span]:
        wide = self.size.width >= 100
        load = self._state.node_load(node.name)
        spans: list[Span] = [(fit(plain(node.name), NAME_COLUMNS if wide else 12), "strong"), (" ", "")]
        if node.cards:
            spans += [(fit(plain(node.cards[0].gpu_class), CLASS_COLUMNS), "dim"), (" ", "")] if wide else []
            spans += [*self._cells(node), *_sums(load, wide=wide)]
        else:
            spans += _processors(node, self._state.figures.get(node.name), 20 if wide else 12)
        coming = next((row for row in self._state.replicas_on(node.name) if row.state in COMING), None)
        if node.state in UNHEARD:
            return [*spans, (unheard_words(node, self._state.figures.get(node.name), self._now), "bad")]
        return [*spans, _note(node, load, coming)]

    def _cells(self, node: NodeRow) -> list[Span]:
        spans: list[Span] = []
        for on in cards_of(self._state, node.name):
            if on.place >= MAX_CELLS:
                break
            spans += [cell(on, Mode.BUSY if on.work is None else Mode.WORK), (" ", "")]
        more = len(node.cards) - MAX_CELLS
        if more > 0:
            spans.append((f"+{more} ", "dim"))
        return [*spans, (" " * max(0, 8 - len(node.cards)) * (CELL + 1), "")]


def _sums(load: NodeLoad, *, wide: bool) -> list[Span]:
    """What a node's cards do together."""
    held = f"  {load.held}/{load.cards} held" if wide else f" {load.held}/{load.cards}"
    spans: list[Span] = [(f" {percent(load.mean_work_percent):>4}", ""), (held, "dim")]
    spans += [(f"  {watts(load.power_w):>7}", "dim")] if wide else []
    return [*spans, ("  ", "")]


def _processors(node: NodeRow, figures: FiguresRow | None, columns: int) -> list[Span]:
    busy = figures.cpu_percent if figures else None
    memory = node.memory_total_bytes
    free = figures.memory_available_bytes if figures else None
    used = 100 * (memory - free) / memory if memory and free is not None else None
    bars = progress_spans((busy or 0) / 100, columns)
    stale = node.state in UNHEARD
    if stale:
        bars = [(text, "dim") for text, _ in bars]
    return [
        (f"{plural(node.cpus, 'CPU'):>8} ", "dim"),
        *bars,
        (f" {percent(busy):>4}", "dim" if stale else ""),
        (f"   memory {percent(used):>4}  ", "dim"),
    ]


def _note(node: NodeRow, load: NodeLoad, coming: ReplicaRow | None) -> Span:
    if node.state in UNHEARD:
        return (node.state, "bad")
    if node.state == "cordoned":
        return ("cordoned", "warn")
    if coming is not None:
        step = coming.progress
        if coming.state == "starting":
            return (f"starting {coming.model}", "info")
        if step is not None and step.total_bytes:
            return (f"{coming.state} {100 * step.done_bytes / step.total_bytes:.0f}%", "info")
    if load.worn:
        return (f"{load.worn} worn", "warn")
    return (f"{load.idle} held, idle", "warn") if load.idle else ("", "")
