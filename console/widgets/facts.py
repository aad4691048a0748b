"""Facts about one thing, a name and a value each, in as many columns as there is room for; charts in a line each."""

from collections.abc import Sequence
from itertools import takewhile

from console.figures import spark
from console.signs import signs
from console.text import fit, plain, width
from console.widgets.lines import Line, wrap
from console.widgets.paint import Span, spans_width

NAME_COLUMNS = 13
TWO_FROM, THREE_FROM = 76, 138
"""Columns from which facts stand in two columns, and in three: on a small screen rows are what is scarce."""
MOST_ROWS = 6
"""Rows one fact takes."""
SPARK_NAME_COLUMNS = 13
SPARK_FIGURE_COLUMNS = 12
MOST_POINTS = 180

Fact = tuple[str, list[Span] | Span]
"""A name, and what it is."""


def fact_lines(facts: Sequence[Fact], columns: int) -> list[Line]:
    """Facts side by side where they fit, read column by column; those that do not have rows of their own below them.

    What is told first stands first, also where it needs a row of its own.
    """
    facts = [fact for fact in facts if _spans(fact)]
    across = 1 + (columns >= TWO_FROM) + (columns >= THREE_FROM)
    room = columns // across - NAME_COLUMNS - 2
    long = [fact for fact in facts if spans_width([(plain(text), tone) for text, tone in _spans(fact)]) > room]
    first = list(takewhile(lambda fact: fact in long, facts))
    facts, long = [fact for fact in facts if fact not in long], long[len(first) :]
    deep = -(-len(facts) // across)
    each = columns // across
    lines: list[Line] = [line for fact in first for line in _long(fact, columns)]
    for row in range(deep):
        line: Line = []
        for place in range(across):
            at = place * deep + row
            if at < len(facts):
                line += _cell(facts[at], each)
        lines.append(line)
    return [*lines, *(line for fact in long for line in _long(fact, columns))]


def _long(fact: Fact, columns: int) -> list[Line]:
    rows = wrap(_spans(fact), max(1, columns - NAME_COLUMNS))
    if len(rows) > MOST_ROWS:
        rows = [*rows[: MOST_ROWS - 1], [(f"{signs().ellipsis} ", "dim"), ("y", "key"), (" shows all of it", "dim")]]
    return [[(fit(fact[0] if not number else "", NAME_COLUMNS), "dim"), *row] for number, row in enumerate(rows)]


def _spans(fact: Fact) -> list[Span]:
    spans = fact[1] if isinstance(fact[1], list) else [fact[1]]
    return [span for span in spans if span[0]]


def _cell(fact: Fact, columns: int) -> Line:
    room = columns - NAME_COLUMNS - 2
    line: Line = [(fit(fact[0], NAME_COLUMNS), "dim")]
    left = room
    for text, tone in _spans(fact):
        shown = fit(plain(text), min(left, width(plain(text))))
        left -= width(shown)
        line.append((shown, tone))
        if left <= 0:
            break
    return [*line, (" " * (max(0, left) + 2), "")]


def chart_lines(charts: Sequence[tuple[str, str, Sequence[float], float | None]], columns: int) -> list[Line]:
    """(name, figure now, samples, full height) as a line of bars each."""
    points = min(MOST_POINTS, max(8, columns - SPARK_NAME_COLUMNS - SPARK_FIGURE_COLUMNS - 2))
    return [
        [
            (fit(name, SPARK_NAME_COLUMNS), "dim"),
            (spark(list(values), points, top=top), "spark"),
            ("  ", ""),
            (fit(figure, SPARK_FIGURE_COLUMNS, "right"), "strong"),
        ]
        for name, figure, values, top in charts
    ]


def heading(text: str, columns: int, *facts: Span) -> Line:
    """A line that begins a part of a page."""
    spans: Line = [(f"{text} ", "accent"), *facts]
    return [*spans, (" " * max(0, columns - spans_width(spans)), "")]
