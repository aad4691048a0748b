"""The table: what the cursor is on, what is marked and where one has scrolled survive every update."""

from collections.abc import Mapping

import pytest
from textual.app import App, ComposeResult

from console import themes
from console.state.cluster import ClusterState
from console.state.filter import parse_filter
from console.state.history import History
from console.widgets.columns import Column, Seen, TableSpec, lay_out
from console.widgets.order import HOLD_S, natural
from console.widgets.table import FRESH_S, Table

Row = tuple[str, int]

SPEC: TableSpec[Row] = TableSpec(
    columns=(
        Column(key="name", title="name", width=8, grow=1, cell=lambda row, _: (row[0], ""), sort=lambda row, _: row[0]),
        Column(
            key="value",
            title="value",
            width=6,
            align="right",
            descending=True,
            cell=lambda row, _: (str(row[1]), ""),
            sort=lambda row, _: float(row[1]) if row[1] >= 0 else None,
        ),
        Column(key="note", title="note", width=30, priority=1, cell=lambda row, _: ("note " * 9, "dim")),
    ),
    words=lambda row: row[0],
    facts=lambda row: {"value": str(row[1])},
)


class Host(App[None]):
    CSS_PATH = "../../console/styles/tones.tcss"

    def __init__(self) -> None:
        super().__init__()
        for theme in themes.THEMES:
            self.register_theme(theme)
        self.theme = themes.DARK
        self.table: Table[Row] = Table(SPEC)

    def compose(self) -> ComposeResult:
        yield self.table


SEEN = Seen(state=ClusterState(), history=History(), now=0.0)


def rows(count: int) -> dict[str, Row]:
    return {f"r{i}": (f"r{i}", i) for i in range(count)}


def text_of(table: Table[Row], y: int) -> str:
    return table.render_line(y).text


@pytest.mark.asyncio
async def test_the_cursor_stays_with_its_row_wherever_that_goes() -> None:
    app = Host()
    async with app.run_test(size=(60, 12)) as pilot:
        table = app.table
        table.focus()
        table.update_rows(rows(100), SEEN)
        await pilot.press(*["down"] * 20)
        assert table.cursor_key == "r20"
        before = 20 - round(table.scroll_y)
        more = {**{f"a{i}": (f"a{i}", i) for i in range(30)}, **rows(100)}
        table.update_rows(more, SEEN, {f"a{i}" for i in range(30)})
        await pilot.pause()
        assert table.cursor_key == "r20"
        assert table.shown.index("r20") - round(table.scroll_y) == before, "and stays on its line of the screen"
        del more["r20"]
        table.update_rows(more, SEEN, {"r20"})
        assert table.cursor_key == "r21", "its place goes to the next"
        table.update_rows({}, SEEN)
        assert table.chosen() == []
        await pilot.press("down", "up", "end", "space", "enter")
        assert table.chosen() == []


@pytest.mark.asyncio
async def test_marks_belong_to_keys_and_actions_apply_to_the_marked_that_are_shown() -> None:
    app = Host()
    async with app.run_test(size=(60, 12)) as pilot:
        table = app.table
        table.focus()
        table.update_rows(rows(10), SEEN)
        await pilot.press("space", "space", "down", "space")
        assert table.chosen() == ["r0", "r1", "r3"]
        await pilot.press("o", "o")
        assert table.sorted_by == ("value", True)
        assert table.chosen() == ["r3", "r1", "r0"]
        table.set_filter(parse_filter("r3"))
        assert table.chosen() == ["r3"]
        table.set_filter(parse_filter(""))
        left = rows(10)
        del left["r1"]
        table.update_rows(left, SEEN, {"r1"})
        assert table.chosen() == ["r3", "r0"]
        table.clear_marks()
        assert table.chosen() == ["r3"]


@pytest.mark.asyncio
async def test_sorting_puts_unknown_values_last_both_ways() -> None:
    app = Host()
    async with app.run_test(size=(60, 12)) as pilot:
        table = app.table
        table.focus()
        table.update_rows({"b": ("b", 2), "u": ("u", -1), "a": ("a", 5)}, SEEN)
        await pilot.press("o", "o")
        assert table.shown == ["a", "b", "u"]
        await pilot.press("O")
        assert table.shown == ["b", "a", "u"]
        assert "value▲" in text_of(table, 0)


@pytest.mark.asyncio
async def test_a_filter_keeps_up_with_changes() -> None:
    app = Host()
    async with app.run_test(size=(60, 12)):
        table = app.table
        table.update_rows(rows(20), SEEN)
        table.set_filter(parse_filter("value:1 !r10"))
        assert table.shown == ["r1", *(f"r{i}" for i in range(11, 20))]
        changed = {**rows(20), "r1": ("r1", 7), "r5": ("r5", 51)}
        table.update_rows(changed, SEEN, {"r1", "r5"})
        assert table.shown == ["r5", *(f"r{i}" for i in range(11, 20))]


@pytest.mark.asyncio
async def test_only_lines_that_read_differently_are_painted_again(monkeypatch: pytest.MonkeyPatch) -> None:
    app = Host()
    async with app.run_test(size=(60, 12)) as pilot:
        table = app.table
        table.update_rows(rows(1000), SEEN)
        await pilot.pause()
        asked: list[int] = []
        monkeypatch.setattr(table, "refresh", lambda *regions, **_: asked.extend(region.y for region in regions))
        same: Mapping[str, Row] = {**rows(1000), "r900": ("r900", 1)}
        table.update_rows(same, SEEN, set(same))
        assert asked == []
        table.update_rows({**same, "r4": ("r4", 99)}, SEEN, {"r4", "r500"})
        assert asked == [5]
        table.render_line(5)
        table.tick(SEEN)
        assert asked == [5], "asked for once and read the same since"


@pytest.mark.asyncio
async def test_ten_thousand_rows_scroll_and_show_the_cursor() -> None:
    app = Host()
    async with app.run_test(size=(60, 12)) as pilot:
        table = app.table
        table.focus()
        table.update_rows(rows(10_000), SEEN)
        await pilot.press("end")
        await pilot.pause()
        assert table.cursor_key == "r9999"
        assert "r9999" in text_of(table, 11)
        await pilot.press("pageup", "home")
        await pilot.pause()
        assert "r0 " in text_of(table, 1)
        await pilot.resize_terminal(24, 5)
        await pilot.press("end")
        await pilot.pause()
        assert "r9999" in text_of(table, 4)
        assert all(table.render_line(y).cell_length == table.size.width for y in range(5))


@pytest.mark.asyncio
async def test_the_mouse_chooses_sorts_and_opens() -> None:
    app = Host()
    opened: list[str] = []
    async with app.run_test(size=(60, 12)) as pilot:
        table = app.table
        table.update_rows(rows(10), SEEN)
        await pilot.pause()
        app.table.action_open = lambda: opened.append(table.cursor_key or "")  # type: ignore[method-assign]
        await pilot.click(table, offset=(5, 4))
        assert table.cursor_key == "r3"
        await pilot.click(table, offset=(5, 0))
        assert table.sorted_by == ("name", False)
        await pilot.click(table, offset=(5, 0))
        assert table.sorted_by == ("name", True)
        await pilot.click(table, offset=(5, 2), times=2)
        assert opened == ["r8"]


def test_columns_drop_by_priority_and_share_what_is_left() -> None:
    assert [column.key for column in lay_out(SPEC.columns, 60).columns] == ["name", "value", "note"]
    narrow = lay_out(SPEC.columns, 40)
    assert [column.key for column in narrow.columns] == ["name", "value"]
    assert narrow.widths == (30, 6)
    assert lay_out(SPEC.columns, 3).widths == (8, 6)


def test_wishes_are_met_before_columns_grow() -> None:
    def column(key: str, *, wish: int = 0, grow: int = 1, priority: int = 0) -> Column[str]:
        return Column(key=key, title=key, cell=lambda row, _: (row, ""), wish=wish, grow=grow, priority=priority)

    columns = (column("name"), column("figures", wish=20, grow=0), column("said", priority=1))
    assert lay_out(columns, 30).widths == (8, 8, 8)
    assert lay_out(columns, 36).widths == (8, 14, 8)
    assert lay_out(columns, 62).widths == (18, 20, 18)
    # A wish keeps no other column away.
    assert lay_out(columns, 20).widths == (8, 8)


def test_names_sort_as_people_count() -> None:
    assert sorted(["gpu10", "gpu9", "gpu1"], key=natural) == ["gpu1", "gpu9", "gpu10"]


def at(now: float) -> Seen:
    return Seen(state=ClusterState(), history=History(), now=now)


@pytest.mark.asyncio
async def test_rows_sorted_by_a_figure_keep_their_places_for_a_while() -> None:
    app = Host()
    async with app.run_test(size=(60, 12)) as pilot:
        table = app.table
        table.focus()
        table.update_rows({"a": ("a", 30), "b": ("b", 20), "c": ("c", 10)}, at(100.0))
        await pilot.press("o", "o")
        assert table.sorted_by == ("value", True)
        assert table.shown == ["a", "b", "c"]
        later = {"a": ("a", 30), "b": ("b", 20), "c": ("c", 99)}
        table.update_rows(later, at(101.0), {"c"})
        assert table.shown == ["a", "b", "c"], "the figure moves no row yet"
        assert "99" in text_of(table, 3), "and is shown all the same"
        joined = {**later, "d": ("d", 25)}
        table.update_rows(joined, at(102.0), {"d"})
        assert table.shown == ["a", "d", "b", "c"], "a new row finds its place among those that keep theirs"
        table.tick(at(100.0 + HOLD_S))
        assert table.shown == ["c", "a", "d", "b"], "what waited moves with the clock, though nothing is told"
        table.update_rows({**joined, "b": ("b", 1000)}, at(101.0 + HOLD_S), {"b"})
        assert table.shown == ["c", "a", "d", "b"]
        await pilot.press("O", "O")
        assert table.shown == ["b", "c", "a", "d"], "a key sorts at once"


@pytest.mark.asyncio
async def test_names_move_their_rows_at_once() -> None:
    app = Host()
    async with app.run_test(size=(60, 12)) as pilot:
        table = app.table
        table.focus()
        table.update_rows({"a": ("a", 1), "b": ("b", 2)}, at(100.0))
        await pilot.press("o")
        assert table.sorted_by == ("name", False)
        table.update_rows({"a": ("z", 1), "b": ("b", 2)}, at(100.1), {"a"})
        assert table.shown == ["b", "a"]


def traffic_cell(row: Row, seen: Seen) -> tuple[str, str]:
    return (f"{seen.state.rev}", "")


@pytest.mark.asyncio
async def test_the_clock_writes_no_figure_that_the_next_frame_brings_anyway() -> None:
    app = Host()
    column: Column[Row] = Column(key="rev", title="rev", width=6, cell=traffic_cell)
    app.table = Table(TableSpec(columns=(column,), words=lambda row: row[0]))
    async with app.run_test(size=(60, 12)):
        table = app.table
        table.update_rows(rows(3), Seen(state=ClusterState(rev=1), history=History(), now=100.0))
        table.tick(Seen(state=ClusterState(rev=2), history=History(), now=101.0))
        assert "1" in text_of(table, 1)
        table.tick(Seen(state=ClusterState(rev=3), history=History(), now=100.0 + FRESH_S))
        assert "3" in text_of(table, 1), "where no frame comes the clock brings it"
