"""What `/` takes: words that must all be there, `!word` that must not, and `name:value` against a row's facts.

A fact holds its value anywhere, but for cards: `a10` is one of them and the beginning of another, so that theirs are
named whole, with or without the size (`gpu:h100`), or by a beginning with a star (`gpu:h1*`).
"""

from collections.abc import Mapping
from dataclasses import dataclass

CARDS = frozenset({"gpu", "class"})
"""Facts that are classes of cards, with blanks between several."""


@dataclass(frozen=True, kw_only=True)
class Filter:
    """A parsed filter; the empty one matches everything."""

    text: str = ""
    """As it was typed."""
    words: tuple[tuple[bool, str], ...] = ()
    """(wanted, word in lower case)."""
    facts: tuple[tuple[bool, str, str], ...] = ()
    """(wanted, name, value), all in lower case."""

    def __bool__(self) -> bool:
        return bool(self.words or self.facts)

    def matches(self, words: str, facts: Mapping[str, str]) -> bool:
        """Whether a row with these words and facts is shown; a name that is no fact of the row is a word."""
        text = words.casefold()
        for wanted, word in self.words:
            if (word in text) is not wanted:
                return False
        for wanted, name, value in self.facts:
            found = _holds(name, facts[name].casefold(), value) if name in facts else f"{name}:{value}" in text
            if found is not wanted:
                return False
        return True


def _holds(name: str, fact: str, value: str) -> bool:
    if name not in CARDS:
        return value in fact
    if value.endswith("*"):
        return any(card.startswith(value[:-1]) for card in fact.split())
    return any(value in (card, _unsized(card)) for card in fact.split())


def _unsized(card: str) -> str:
    """`h100` of `h100-80g`; a class without a size is as it is."""
    model, _, size = card.rpartition("-")
    return model if size.endswith("g") and size[:-1].isdigit() else card


def parse_filter(text: str) -> Filter:
    """The filter that `text` means. Any text is one."""
    words: list[tuple[bool, str]] = []
    facts: list[tuple[bool, str, str]] = []
    for part in text.casefold().split():
        wanted = not part.startswith("!")
        word = part if wanted else part[1:]
        name, colon, value = word.partition(":")
        if colon and name and value:
            facts.append((wanted, name, value))
        elif word:
            words.append((wanted, word))
    return Filter(text=text.strip(), words=tuple(words), facts=tuple(facts))
