"""What does not change is not written: spans of a line, titles, and figures at a reader's pace."""

import re

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.color import ColorSystem
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
        (["ab", "cd", "ef"], ["ab", "cd", "ef"], []),
        (["ab", "cd", "ef"], ["ab", "XX", "ef"], [(2, 4)]),
        (["ab", "cd", "ef"], ["XX", "cd", "YY"], [(0, 2), (4, 6)]),
        (["ab", "cd", "ef"], ["XX", "YY", "ef"], [(0, 4)]),
        (["ab", "cd", "ef"], ["ab", "c", "ef"], [(2, 6)]),
        (["ab", "cd"], ["ab", "c", "d"], [(2, 4)]),
        ([], ["ab"], [(0, 2)]),
        (["aa", "aa", "aa"], ["aa", "aa"], [(4, 6)]),
        (["x" * 30, "a"], ["x" * 30, "b"], []),
        (["x" * 8, "abcd"], ["x" * 8, "abcf"], [(8, 10)]),
    ],
)
def test_the_columns_that_differ(before: list[str], after: list[str], columns: list[tuple[int, int]]) -> None:
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


def written(strip: Strip, spans: list[tuple[int, int, int]], system: str = "truecolor") -> str:
    """What an update of one line of a terminal writes."""
    console = Console(force_terminal=True, color_system=system, width=40)  # type: ignore[arg-type]
    return FrugalUpdate([{0: strip}], spans, [[strip.cell_length]]).render_segments(console)


def test_colours_are_told_once_for_all_that_share_them() -> None:
    warm = Style(color="#ffffff", bgcolor="#400000")
    strip = Strip([Segment(" 71 ", warm), Segment("-"), Segment(" 72 ", warm), Segment("-"), Segment(" 3 ", warm)])
    assert written(strip, [(0, 0, 4), (0, 5, 9)]) == (
        "\x1b[1;1H\x1b[38;2;255;255;255;48;2;64;0;0m 71 \x1b[6G 72 \x1b[0m"
    )


def test_of_a_blank_only_the_ground_is_told() -> None:
    dark = Style(bgcolor="#000010")
    strip = Strip([Segment("ab", dark + Style(color="#ffffff")), Segment("  ", dark + Style(color="#ff0000"))])
    assert written(strip, [(0, 0, 4)]) == "\x1b[1;1H\x1b[38;2;255;255;255;48;2;0;0;16mab  \x1b[0m"
    lined = Strip([Segment("a", RED), Segment(" ", Style(underline=True))])
    assert written(lined, [(0, 0, 2)]) == "\x1b[1;1H\x1b[31ma\x1b[4;39m \x1b[0m", "an underlined blank is seen"


def test_marks_end_with_what_they_were_for() -> None:
    strip = Strip([Segment("a", Style(bold=True)), Segment("b", RED), Segment("c", Style(reverse=True)), Segment("d")])
    assert written(strip, [(0, 0, 4)]) == "\x1b[1;1H\x1b[1ma\x1b[22;31mb\x1b[7;39mc\x1b[0md"


def test_a_terminal_of_sixteen_colours_is_told_those() -> None:
    strip = Strip([Segment("x", Style(color="#aa0000", bgcolor="#000000"))])
    assert written(strip, [(0, 0, 1)], "standard") == "\x1b[1;1H\x1b[31;40mx\x1b[0m"


def test_a_link_encloses_its_text_alone() -> None:
    link = Style(link="https://example.org/", color="red")
    text = written(Strip([Segment("a", RED), Segment("b", link), Segment("c", RED)]), [(0, 0, 3)])
    assert "\x1b[0m\x1b]8;" in text
    assert text.endswith("\x1b]8;;\x1b\\\x1b[31mc\x1b[0m")


def test_after_letters_that_terminals_measure_differently_the_column_is_named() -> None:
    console = Console(force_terminal=True, color_system="truecolor", width=40)
    update = FrugalUpdate([{0: Strip([Segment("漢字")]), 4: Strip([Segment("ab")])}], [(0, 0, 6)], [[4, 6]])
    assert update.render_segments(console) == "\x1b[1;1H漢字\x1b[5Gab"
    plain = FrugalUpdate([{0: Strip([Segment("abcd")]), 4: Strip([Segment("ef")])}], [(0, 0, 6)], [[4, 6]])
    assert plain.render_segments(console) == "\x1b[1;1Habcdef"


@given(data=st.data())
def test_a_terminal_shows_what_the_segments_say(data: st.DataObject) -> None:
    styles = st.builds(
        Style,
        color=st.sampled_from([None, "red", "#102030"]),
        bgcolor=st.sampled_from([None, "blue", "#405060"]),
        bold=st.booleans(),
        reverse=st.booleans(),
        underline=st.booleans(),
    )
    texts = st.text("ab ", min_size=1, max_size=3)
    segments = data.draw(st.lists(st.tuples(texts, styles).map(lambda drawn: Segment(*drawn)), min_size=1, max_size=6))
    told = written(Strip(segments), [(0, 0, sum(len(segment.text) for segment in segments))])
    system = ColorSystem.TRUECOLOR
    alone = "".join(Strip.render_style(segment.style or Style(), segment.text, system) for segment in segments)
    assert cells(told) == cells(alone)


def cells(text: str) -> list[tuple[str, str, str, str]]:
    """Letter, ink, ground and marks of each column, as a terminal keeps them; of a blank, what is seen of it."""
    shown: list[tuple[str, str, str, str]] = []
    ink, ground, marks = "", "", set[str]()
    for codes, letter in re.findall(r"\x1b\[([\d;]*)m|([ab ])", re.sub(r"\x1b\[[\d;]*[HG]", "", text)):
        if letter:
            seen = letter != " " or marks & {"4", "7"}
            shown.append((letter, ink if seen else "", ground, "".join(sorted(marks if seen else ()))))
            continue
        parts = codes.split(";")
        while parts:
            code = parts.pop(0)
            if code in ("38", "48"):
                value = ";".join([code, *parts[:4]])
                del parts[:4]
                ink, ground = (value, ground) if code == "38" else (ink, value)
            elif code == "0":
                ink, ground, marks = "", "", set()
            elif code == "22":
                marks -= {"1", "2"}
            elif code in ("1", "2", "4", "7"):
                marks = marks | {code}
            elif code in ("39", "49"):
                ink, ground = ("", ground) if code == "39" else (ink, "")
            else:
                ink, ground = (code, ground) if code.startswith("3") else (ink, code)
    return shown
