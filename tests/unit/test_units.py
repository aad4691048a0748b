"""Figures as people read them."""

import pytest

from llmgw.core.units import span


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-3.0, "0 s"),
        (0.9, "0 s"),
        (119.9, "119 s"),
        (120, "2 min"),
        (451, "7 min"),
        (7199, "119 min"),
        (7200, "2 h"),
        (2 * 86_400 - 1, "47 h"),
        (2 * 86_400, "2 d"),
        (40 * 86_400, "40 d"),
    ],
)
def test_a_span_is_told_in_the_unit_that_fits_it(seconds: float, text: str) -> None:
    assert span(seconds) == text


def test_a_sentence_with_a_span_changes_the_more_seldom_the_longer_it_is() -> None:
    """Whoever waits for something that does not come is told so some times, and not every second."""
    assert len({span(second) for second in range(600)}) == 120 + 8
