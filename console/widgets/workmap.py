"""The small work map: a row a node, a cell a card, coloured and numbered by how much of the chip works.

Nodes without cards show what their processors do. Where not all fit, the busiest and the troubled are kept, and the
last line counts the others.
"""

from dataclasses import dataclass

from textual.geometry import Size
from textual.strip import Strip

from console.figures import percent, plural, watts
from console.signs import signs
from console.state.cluster import ClusterState
from console.state.loads import NodeLoad, column
from console.text import fit, plain
from console.widgets.order import natural
from console.widgets.paint import LineWidget, Span, heat, progress_spans
from llmgw.api.watch import FiguresRow, NodeRow

CELL = 4
"""Columns of a card: its figure, a mark, and room."""
NAME_COLUMNS = 16
CLASS_COLUMNS = 11
MAX_CELLS = 16
"""Cards of a node drawn one by one."""


@dataclass(frozen=True, kw_only=True)
class _Row:
    name: str
    node: NodeRow
    figures: FiguresRow | None
    load: NodeLoad
    note: Span


class WorkMap(LineWidget):
    """Nodes and their cards."""

    def __init__(self, *, id: str = "workmap") -> None:
        super().__init__(id=id)
        self._rows: list[list[Span]] = []
        self._painted: dict[int, list[Span]] = {}
        self._state = ClusterState()

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        """A line a node, half of what there is at most."""
        return max(1, min(len(self._state.nodes), container.height // 2 - 2))

    def set_state(self, state: ClusterState) -> None:
        """Show these nodes."""
        more = len(state.nodes) != len(self._state.nodes)
        self._state = state
        if more:
            self.refresh(layout=True)
        self._rows = self._lines()
        for y in range(self.size.height):
            line = self._rows[y] if y < len(self._rows) else []
            if self._painted.get(y) != line:
                self.repaint_spans(y, self._painted.get(y), line)

    def on_resize(self) -> None:
        """Another number of nodes fits."""
        self._rows = self._lines()
        self.refresh()

    def render_line(self, y: int) -> Strip:
        """One node."""
        line = self._painted[y] = self._rows[y] if y < len(self._rows) else []
        return self.strip(line, self.size.width)

    def _lines(self) -> list[list[Span]]:
        state, room = self._state, self.size.height
        if not state.nodes or room <= 0:
            return []
        rows = [self._row(state, name) for name in state.nodes]
        if len(rows) > room:
            rows.sort(key=_rank)
            shown, hidden = rows[: room - 1], rows[room - 1 :]
        else:
            shown, hidden = rows, []
        shown.sort(key=lambda row: natural(row.name))
        lines = [self._line(row) for row in shown]
        if hidden:
            cards = sum(row.load.cards for row in hidden)
            lines.append(
                [(f"and {plural(len(hidden), 'node')} with {plural(cards, 'card')}, quieter than these", "dim")]
            )
        return lines

    def _row(self, state: ClusterState, name: str) -> _Row:
        node, load = state.nodes[name], state.node_load(name)
        return _Row(name=name, node=node, figures=state.figures.get(name), load=load, note=_note(state, node, load))

    def _line(self, row: _Row) -> list[Span]:
        wide = self.size.width >= 100
        name_columns = NAME_COLUMNS if wide else 12
        spans: list[Span] = [(fit(plain(row.name), name_columns), "strong"), (" ", "")]
        if row.node.cards:
            spans += [(fit(plain(row.node.cards[0].gpu_class), CLASS_COLUMNS), "dim"), (" ", "")] if wide else []
            spans += self._cells(row)
        else:
            spans += _processors(row, 20 if wide else 12)
        spans += [row.note]
        return spans

    def _cells(self, row: _Row) -> list[Span]:
        spans: list[Span] = []
        shown = row.node.cards[:MAX_CELLS]
        for index, card in enumerate(shown):
            work = column(row.figures.work_percent, index) if row.figures else None
            if work is None and row.figures:
                work = column(row.figures.utilization_percent, index)
            mark = " " if card.healthy else "!"
            if card.replica or not card.healthy:
                text = f"{work:3.0f}{mark}" if work is not None else f"  {signs().dash}{mark}"
                spans.append((text[:CELL], heat(work) if card.healthy else "bad"))
            else:
                spans.append((f" {signs().free} "[:CELL], "unused"))
            spans.append((" ", ""))
        more = len(row.node.cards) - len(shown)
        if more > 0:
            spans.append((f"+{more} ", "dim"))
        missing = max(0, 8 - len(shown)) * (CELL + 1)
        spans.append((" " * missing, ""))
        load = row.load
        wide = self.size.width >= 100
        held = f"  {load.held}/{load.cards} held" if wide else f" {load.held}/{load.cards}"
        spans += [(f" {percent(load.mean_work_percent):>4}", ""), (held, "dim")]
        spans += [(f"  {watts(load.power_w):>7}", "dim")] if wide else []
        return [*spans, ("  ", "")]


def _processors(row: _Row, columns: int) -> list[Span]:
    busy = row.figures.cpu_percent if row.figures else None
    memory = row.node.memory_total_bytes
    free = row.figures.memory_available_bytes if row.figures else None
    used = 100 * (memory - free) / memory if memory and free is not None else None
    return [
        (f"{plural(row.node.cpus, 'CPU'):>8} ", "dim"),
        *progress_spans((busy or 0) / 100, columns),
        (f" {percent(busy):>4}", ""),
        (f"   memory {percent(used):>4}  ", "dim"),
    ]


def _note(state: ClusterState, node: NodeRow, load: NodeLoad) -> Span:
    if node.state in ("silent", "lost"):
        return (node.state, "bad")
    if node.state == "cordoned":
        return ("cordoned", "warn")
    for replica in state.replicas_on(node.name):
        step = replica.progress
        if replica.state in ("fetching", "checking") and step is not None and step.total_bytes:
            return (f"{replica.state} {100 * step.done_bytes / step.total_bytes:.0f}%", "info")
        if replica.state == "starting":
            return (f"starting {replica.model}", "info")
    if load.worn:
        return (f"{load.worn} worn", "warn")
    return (f"{load.idle} held, idle", "warn") if load.idle else ("", "")


def _rank(row: _Row) -> tuple[bool, float, list[tuple[int, int, str]]]:
    return (not row.note[0], -(row.load.mean_work_percent or 0.0), natural(row.name))
