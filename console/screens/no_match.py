"""What stands in place of rows that a filter hides: a name before a colon that no row has is said to be none."""

from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar

from console.state.filter import parse_filter
from console.text import plain
from console.widgets.lines import Line
from llmgw.core.near import near

MAX_KEY = 30
"""Characters of a wrong key that are repeated."""

T = TypeVar("T")


def keys_of(rows: Iterable[T], facts: Callable[[T], Mapping[str, str]]) -> tuple[str, ...]:
    """Keys that a filter may name, which all of the rows have."""
    return next((tuple(facts(row)) for row in rows), ())


def nothing_matches(filter_text: str, keys: Iterable[str] = (), *, what: str = "nothing") -> list[Line]:
    """The filter, the keys in it that are none of `keys` with those that are, and the way out."""
    known = tuple(keys)
    return [
        [(f"{what} matches ", "dim"), (filter_text, "strong")],
        *(line for name in _unknown(filter_text, known) for line in _no_key(name, known)),
        [("esc", "key"), (" shows all", "dim")],
    ]


def _unknown(filter_text: str, known: tuple[str, ...]) -> list[str]:
    """Keys that rows must have, in their order."""
    named = dict.fromkeys(name for wanted, name, _ in parse_filter(filter_text).facts if wanted)
    return [name for name in named if name not in known]


def _no_key(name: str, known: tuple[str, ...]) -> list[Line]:
    alike = near(name, known)
    said: Line = [(plain(name, MAX_KEY), "strong"), (" is no key here", "warn")]
    if not known:
        return [[*said, (": words alone are looked for", "dim")]]
    listed = ", ".join((*alike, *(key for key in known if key not in alike)))
    return [
        [*said, (f"; did you mean {' or '.join(alike)}?" if alike else "", "")],
        [("keys are " if len(known) > 1 else "the one key is ", "dim"), (listed, "")],
    ]
