"""What a flag's value may be, and how a table of an engine's flags is written down."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

Kind = tuple[re.Pattern[str], str]
"""What a value must match whole, and the same in words."""


@dataclass(frozen=True, kw_only=True)
class Flag:
    """One flag an engine may be given."""

    name: str
    """Long spelling, which the engine is given."""
    pattern: re.Pattern[str]
    """What a value must match whole; empty pattern for a switch."""
    kind: str
    """The value in words; empty for a switch."""

    @property
    def takes_value(self) -> bool:
        """Whether a value follows the name."""
        return bool(self.kind)

    def describe(self) -> str:
        """What the value must be, in words."""
        return self.kind


INT: Kind = (re.compile(r"-?[0-9]{1,9}"), "a whole number")
FLOAT: Kind = (re.compile(r"-?[0-9]{1,12}(\.[0-9]{1,12})?"), "a number")
FLOATS: Kind = (
    re.compile(r"[0-9]{1,6}(\.[0-9]{1,6})?([,/][0-9]{1,6}(\.[0-9]{1,6})?){0,63}"),
    "numbers with commas between",
)
WORD: Kind = (re.compile(r"[A-Za-z0-9][A-Za-z0-9_+-]{0,63}"), "a name of letters, digits, _ + and -")


def choice(*values: str) -> Kind:
    """One of a few words."""
    return re.compile("|".join(map(re.escape, values))), "one of " + ", ".join(values)


def table(**kinds: tuple[Kind | None, str]) -> Mapping[str, Flag]:
    """From groups of `kind, "--long,-short --other,…"` to a table by every spelling; a switch has no kind."""
    found: dict[str, Flag] = {}
    for kind, text in kinds.values():
        for spellings in text.split():
            names = spellings.split(",")
            pattern, words = kind or (re.compile(""), "")
            found |= dict.fromkeys(names, Flag(name=names[0], pattern=pattern, kind=words))
    return found


def own(**reasons: tuple[str, str]) -> Mapping[str, str]:
    """From groups of `reason, "--flag -f"` to the reason by flag."""
    return {flag: reason for reason, flags in reasons.values() for flag in flags.split()}
