"""Nothing a terminal would act on survives `safe`; widths are columns."""

import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llmgw.core.text import clip, display_width, safe


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain", "plain"),
        ("\x1b[31mred", "␛[31mred"),
        ("a\nb\r\t\0", "a␊b␍␉␀"),
        ("\x7f\x9b31m", "␡<U+009B>31m"),
        ("\u202egnp.exe", "<U+202E>gnp.exe"),
        ("a\u200bb\ud800", "a<U+200B>b<U+D800>"),
        ("モデル é 🙂", "モデル é 🙂"),
    ],
)
def test_controls_become_visible(text: str, shown: str) -> None:
    assert safe(text) == shown


@settings(max_examples=200)
@given(st.text(alphabet=st.characters(), max_size=60))
def test_nothing_dangerous_is_left(text: str) -> None:
    shown = safe(text)
    assert all(unicodedata.category(char) not in ("Cc", "Cs", "Zl", "Zp") for char in shown)
    assert all(
        unicodedata.bidirectional(char) not in ("LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI")
        for char in shown
    )
    assert safe(shown) == shown


@settings(max_examples=200)
@given(st.text(max_size=60), st.integers(0, 30))
def test_clipping_fits(text: str, width: int) -> None:
    clipped = clip(safe(text), width)
    assert display_width(clipped) <= width
    if display_width(safe(text)) <= width:
        assert clipped == safe(text)


def test_wide_and_combining_characters() -> None:
    assert display_width("モデル") == 6
    assert display_width("e\u0301") == 1
    assert clip("モデル", 4) == "モ…"
