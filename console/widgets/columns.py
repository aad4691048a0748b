"""A table's columns: what each shows, how rows sort by it, and which of them a narrow window drops first."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Generic, TypeVar

from console.state.cluster import ClusterState
from console.state.history import History
from console.text import cut, fitted, plain, width
from console.widgets.paint import Span

T = TypeVar("T")
Cell = Span | list[Span]
"""What a row shows in a column; text may come from outside."""
SortValue = float | str | None


@dataclass(frozen=True, kw_only=True)
class Seen:
    """What a cell may look at besides its row."""

    state: ClusterState
    history: History
    now: float
    """The server's time in unix seconds."""


@dataclass(frozen=True, kw_only=True)
class Column(Generic[T]):
    """One column."""

    key: str
    title: str
    cell: Callable[[T, Seen], Cell]
    sort: Callable[[T, Seen], SortValue] | None = None
    """Value rows sort by; unknown ones come last. None cannot be sorted by."""
    descending: bool = False
    """Whether sorting by it begins with the highest."""
    width: int = 8
    """Least columns it is shown in."""
    wish: int = 0
    """Columns in which what it usually shows is read whole: it has these before any column grows."""
    grow: int = 0
    """Its part of what room is left."""
    most: int = 1000
    """Columns beyond which it does not grow."""
    priority: int = 0
    """0 is always there; the highest is dropped first."""
    align: str = "left"
    whole: Callable[[T, Seen], Cell] | None = None
    """What a view tells in full of the row under the cursor where the column is too narrow for it, or is not there."""
    newest: bool = False
    """Whether text that is too long keeps its end: bars, whose newest is at the right."""

    @staticmethod
    def spans_of(cell: Cell) -> list[Span]:
        """A cell as spans."""
        return cell if isinstance(cell, list) else [cell]


def _nothing(_: object) -> Mapping[str, str]:
    return {}


@dataclass(frozen=True, kw_only=True)
class TableSpec(Generic[T]):
    """How rows of `T` are shown, found and ordered."""

    columns: tuple[Column[T], ...]
    words: Callable[[T], str]
    """What `/` looks for its words in."""
    facts: Callable[[T], Mapping[str, str]] = field(default=_nothing)
    """What `/state:failed` looks at: name → value."""
    sort: str = ""
    """Column rows are first sorted by; none is their keys' order."""
    descending: bool = False
    markable: bool = True
    arriving: bool = False
    """Whether rows arrive at the top, the newest first: a cursor on the first row stays on the first row."""
    in_order: bool = False
    """Rows keep the order of their mapping and are never sorted."""


@dataclass(frozen=True)
class Layout(Generic[T]):
    """The columns that fit, with their widths."""

    GAP: ClassVar[int] = 2
    """Columns between two."""

    columns: tuple[Column[T], ...]
    widths: tuple[int, ...]

    def spans(self, cells: Sequence[Cell]) -> list[Span]:
        """A row's cells as one line's spans, each in its width."""
        spans: list[Span] = []
        for column, room, cell in zip(self.columns, self.widths, cells, strict=True):
            parts = Column.spans_of(cell)
            if column.newest:
                parts = [(text[-room:], tone) for text, tone in parts]
            spans += _fitted(parts, room, column.align)
            spans.append((" " * self.GAP, ""))
        return spans

    def at(self, x: int) -> str | None:
        """Key of the sortable column at a distance from the first one's left."""
        left = 0
        for column, room in zip(self.columns, self.widths, strict=True):
            if left <= x < left + room + self.GAP:
                return column.key if column.sort is not None else None
            left += room + self.GAP
        return None


def _fitted(spans: Sequence[Span], room: int, align: str) -> list[Span]:
    kept: list[Span] = []
    left = room
    for text, tone in spans:
        if left <= 0:
            if kept and text.strip():
                kept[-1] = (cut(kept[-1][0]), kept[-1][1])
                break
            continue
        shown, taken = fitted(text, left)
        left -= taken
        kept.append((shown, tone))
    if left > 0:
        gap = (" " * left, "")
        kept = [gap, *kept] if align == "right" else [*kept, gap]
    return kept


def lay_out(columns: Sequence[Column[T]], room: int) -> Layout[T]:
    """The columns that fit into `room`: the least important dropped, wishes met, the rest shared by those that grow."""
    kept = list(columns)
    while len(kept) > 1 and _needed(kept) > room:
        worst = max(kept, key=lambda column: column.priority)
        if worst.priority == 0:
            break
        kept.remove(worst)
    widths = {column.key: column.width for column in kept}
    spare = room - _needed(kept)
    for column in kept:
        more = max(0, min(spare, column.wish - column.width))
        widths[column.key] += more
        spare -= more
    growing = [column for column in kept if column.grow]
    while spare > 0 and growing:
        share = sum(column.grow for column in growing)
        given = 0
        for column in growing:
            more = min(max(1, spare * column.grow // share), column.most - widths[column.key], spare - given)
            widths[column.key] += max(0, more)
            given += max(0, more)
        growing = [column for column in growing if widths[column.key] < column.most]
        spare -= given
        if given == 0:
            break
    return Layout(tuple(kept), tuple(widths[column.key] for column in kept))


def cut_short(columns: Sequence[Column[T]], layout: Layout[T], row: T, seen: Seen) -> list[tuple[str, list[Span]]]:
    """What of a row a table of that layout cannot show whole though it should: a column's title and its text each."""
    rooms = {column.key: room for column, room in zip(layout.columns, layout.widths, strict=True)}
    found: list[tuple[str, list[Span]]] = []
    for column in columns:
        if column.whole is None:
            continue
        spans = [span for span in Column.spans_of(column.whole(row, seen)) if span[0]]
        if sum(width(plain(text)) for text, _ in spans) > rooms.get(column.key, 0):
            found.append((column.title, spans))
    return found


def _needed(columns: Sequence[Column[T]]) -> int:
    return sum(column.width for column in columns) + Layout.GAP * len(columns)
