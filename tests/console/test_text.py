"""Text from outside leaves as one harmless line, measured as it will be drawn."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.cells import cell_len

from console.figures import age, clock, count, millis, pair, plural, short_age, size, spark, spark_rows
from console.signs import ASCII, UNICODE, Signs, use_signs
from console.state.filter import parse_filter
from console.text import _HARMLESS, _steady, clip, content, cut, fit, fitted, head, plain, width
from console.widgets.lines import wrap
from llmgw.core.text import safe


@settings(max_examples=150)
@given(st.text(max_size=60), st.integers(0, 30))
def test_fit_takes_exactly_its_columns_and_nothing_controls_the_terminal(text: str, columns: int) -> None:
    shown = fit(plain(text), columns)
    assert cell_len(shown) == columns
    assert all(char >= " " and not 0x7F <= ord(char) < 0xA0 for char in shown)
    assert not set(shown) & set("\u202e\u2066\u200b\u200d")


@settings(max_examples=100)
@given(st.text(max_size=120), st.integers(1, 30))
def test_wrapping_loses_nothing_and_fits(text: str, columns: int) -> None:
    rows = wrap([(text, "")], max(2, columns))
    assert "".join(part for row in rows for part, _ in row) == plain(text)
    assert all(sum(cell_len(part) for part, _ in row) <= max(2, columns) for row in rows)


def test_what_takes_the_short_way_is_narrow_and_hides_nothing() -> None:
    short = [char for char in map(chr, range(0x20, 0x30000)) if _HARMLESS.fullmatch(char)]
    assert {*UNICODE.bar, "…", "│", "╭", "●", "a", "~"} <= {*short}
    for char in short:
        assert cell_len(char) == 1, f"U+{ord(char):04X} is wider than it is taken for"
        assert _steady(safe(char)) == char, f"U+{ord(char):04X} is no plain sign"


@pytest.mark.parametrize("signs", [UNICODE, ASCII])
@settings(max_examples=200)
@given(text=st.text(st.sampled_from("ab …█─●世́‮") | st.characters(), max_size=40), columns=st.integers(0, 30))
def test_fitted_is_plain_text_cut_and_measured(signs: Signs, text: str, columns: int) -> None:
    use_signs(signs)
    shown, taken = fitted(text, columns)
    assert shown == clip(plain(text), columns)
    assert taken == width(shown) == cell_len(shown)


def test_what_fits_and_goes_on_is_marked_in_the_same_room() -> None:
    assert cut("2 worn") == "2 wor…"
    assert cut("世界") == "世…" + " "
    assert cut("x") == "…"


def test_markup_is_text() -> None:
    assert content("[@click=app.quit]x[/]").plain == "[@click=app.quit]x[/]"
    assert content("node[/]").spans == []


def test_long_wide_and_stacked_text_is_cut_where_it_should_be() -> None:
    assert clip("漢字漢字", 5) == "漢字…"
    assert width("漢字") == 4
    assert head("漢字", 3) == "漢"
    assert plain("a" + "\u0301" * 40) == "a" + "\u0301" * 2
    assert len(plain("x" * 1_000_000)) < 3000
    assert clip("abc", 0) == ""


def test_ascii_terminals_get_ascii() -> None:
    use_signs(ASCII)
    try:
        assert plain("2 × h100… naïve 漢") == "2 x h100... na\\xefve \\u6f22"
        assert clip("abcdef", 4) == "abc~"
    finally:
        use_signs(UNICODE)


@pytest.mark.parametrize(
    ("said", "wanted"),
    [
        (size(188_000_000_000), "188 GB"),
        (size(1_234_000_000), "1.23 GB"),
        (size(12), "12 B"),
        (size(None), "–"),
        (pair(61e9, 188e9), "61/188 GB"),
        (pair(None, 188e9), "–"),
        (count(412.0), "412"),
        (count(0.42), "0.4"),
        (count(28_400.0), "28.4k"),
        (millis(180.4), "180 ms"),
        (millis(2_400.0), "2.4 s"),
        (age(43), "43 s"),
        (age(5 * 3600 + 12 * 60), "5 h 12 min"),
        (age(-3), "0 s"),
        (short_age(7_300), "2h"),
        (clock(43), "0:43"),
        (plural(1, "replica"), "1 replica"),
        (plural(3, "replica"), "3 replicas"),
    ],
)
def test_figures_read_as_people_read_them(said: str, wanted: str) -> None:
    assert said == wanted


def test_bars_are_as_wide_as_asked_and_show_what_is_not_zero() -> None:
    assert spark([0.0, 1.0, 8.0], 5) == "  ▁▁█"
    assert spark([float("nan"), 4.0], 2) == " █"
    assert [len(row) for row in spark_rows([1.0, 2.0], 6, 2)] == [6, 6]
    assert spark([], 3) == "   "
    assert spark([50.0], 1, top=100.0) == "▄"


@pytest.mark.parametrize(
    ("filter_", "shown"),
    [
        ("", True),
        ("gpu", True),
        ("gpu !failed", False),
        ("state:fail", True),
        ("!state:fail", False),
        ("state:ready", False),
        ("org/m:8b", True),
        ("nothing", False),
        ("GPU07 Failed", True),
        ("!", True),
    ],
)
def test_filters(filter_: str, shown: bool) -> None:
    assert parse_filter(filter_).matches("gpu07 failed org/m:8b", {"state": "failed"}) is shown


@pytest.mark.parametrize(
    ("filter_", "found"),
    [
        ("gpu:a10", ["a10-24g"]),
        ("gpu:A100", ["a100-80g", "a100-40g"]),
        ("gpu:a100-80g", ["a100-80g"]),
        ("class:a100-80g-mig-3g.40gb", ["a100-80g-mig-3g.40gb"]),
        ("gpu:a10*", ["a10-24g", "a100-80g", "a100-40g", "a100-80g-mig-3g.40gb"]),
        ("gpu:6000", ["6000-24g"]),
        ("gpu:h100", ["h100-80g"]),
        ("gpu:gb10", ["gb10"]),
        ("gpu:none", ["none"]),
        ("gpu:.*", []),
        ("!gpu:*", []),
    ],
)
def test_cards_are_named_whole(filter_: str, found: list[str]) -> None:
    cards = ["a10-24g", "a100-80g", "a100-40g", "a100-80g-mig-3g.40gb", "h100-nvl-94g", "h100-80g", "6000-24g"]
    cards += ["rtx-pro-6000-96g", "gb10", "none"]
    wanted = parse_filter(filter_)
    assert [card for card in cards if wanted.matches("", {"gpu": card, "class": card})] == found
    assert wanted.matches("", {"gpu": " ".join(cards), "class": " ".join(cards)}) is bool(found)
