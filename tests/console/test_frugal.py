"""What does not change is not written: spans of a line, titles, and figures at a reader's pace."""

import msgspec
import pytest
from rich.console import Console
from rich.segment import Segment
from rich.style import Style
from textual._compositor import ChopsUpdate
from textual.strip import Strip

from console.frugal import FrugalUpdate
from console.screens.nodes import Nodes
from console.state.store import Link, Store
from console.widgets.paint import differing
from llmgw.api.watch import Delta, NodeRow, ReplicaRow
from tests.console.harness import console_with, fed, shown, tell
from tests.support.fleet_rows import NOW, delta, figures_row, small_fleet, small_rows, traffic_row

RED = Style(color="red")


@pytest.mark.parametrize(
    ("before", "after", "columns"),
    [
        (["ab", "cd", "ef"], ["ab", "cd", "ef"], (0, 0)),
        (["ab", "cd", "ef"], ["ab", "XX", "ef"], (2, 4)),
        (["ab", "cd", "ef"], ["XX", "cd", "YY"], (0, 6)),
        (["ab", "cd", "ef"], ["ab", "c", "ef"], (2, 10)),
        (["ab", "cd"], ["ab", "c", "d"], (2, 4)),
        ([], ["ab"], (0, 10)),
        (["aa", "aa", "aa"], ["aa", "aa"], (4, 10)),
        (["x" * 30, "a"], ["x" * 30, "b"], (10, 10)),
    ],
)
def test_the_columns_that_differ(before: list[str], after: list[str], columns: tuple[int, int]) -> None:
    assert differing(before, after, len, 10) == columns


def test_a_span_is_written_alone_and_a_style_once() -> None:
    console = Console(force_terminal=True, color_system="truecolor", width=20)
    strip = Strip([Segment("left"), Segment("mid", RED), Segment("dle", RED), Segment("right")])
    update = ChopsUpdate([{0: strip}], [(0, 4, 10)], [[15]])
    frugal = FrugalUpdate(update.chops, update.spans, update.chop_ends)
    assert frugal.render_segments(console) == "\x1b[1;5H\x1b[31mmiddle\x1b[0m"
    assert len(frugal.render_segments(console)) < len(update.render_segments(console))


def test_wide_letters_cut_by_a_span_keep_the_columns() -> None:
    frugal = FrugalUpdate([{0: Strip([Segment("漢字漢字")])}], [(0, 1, 5)], [[8]])
    assert frugal.render_segments(Console(force_terminal=True, width=20)) == "\x1b[1;2H 字 "


def test_figures_wait_and_states_do_not() -> None:
    store = fed([small_fleet()])
    store.take()
    busier = msgspec.structs.replace(a_replica("r-gpu01-0"), in_flight=99)
    quiet = (
        delta({"traffic": {"*": traffic_row(9)}}),
        delta({"figures": {"gpu01": figures_row(a_node("gpu01"), (1.0,) * 8)}}),
        delta({"replicas": {"r-gpu01-0": busier}}),
    )
    assert [presses(store, message) for message in quiet] == [False, False, False]
    assert presses(store, delta({"replicas": {"r-gpu01-0": msgspec.structs.replace(busier, state="failed")}}))
    assert store.take() is not None
    assert not presses(store, quiet[0])
    assert presses(store, delta(gone={"models": ("glm-5.2",)}))
    assert store.take() is not None
    store.set_link(Link(state="lost", since=NOW, reason="gone"))
    assert store.pressing


def presses(store: Store, message: Delta) -> bool:
    """Whether the screen is to hear of it at once."""
    store.receive(message, at=NOW)
    return store.pressing


def a_replica(key: str) -> ReplicaRow:
    row = small_rows()["replicas"][key]
    assert isinstance(row, ReplicaRow)
    return row


def a_node(key: str) -> NodeRow:
    row = small_rows()["nodes"][key]
    assert isinstance(row, NodeRow)
    return row


@pytest.mark.asyncio
async def test_a_digit_in_a_title_paints_its_line_and_no_other() -> None:
    console = console_with(small_fleet(), start="nodes")
    async with shown(console) as pilot:
        view = console.main.view
        assert isinstance(view, Nodes)
        drawn: list[int] = []
        render = view.table.render_line
        view.table.render_line = lambda y: drawn.append(y) or render(y)  # type: ignore[method-assign,func-returns-value]
        await tell(console, pilot, delta({"figures": {"gpu01": figures_row(a_node("gpu01"), (0.0,) * 8)}}))
        assert set(drawn) == {1}
