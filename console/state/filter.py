"""What `/` takes: words that must all be there, `!word` that must not, and `name:value` against a row's facts."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Filter:
    """A parsed filter; the empty one matches everything."""

    text: str = ""
    """As it was typed."""
    words: tuple[tuple[bool, str], ...] = ()
    """(wanted, word in lower case)."""
    facts: tuple[tuple[bool, str, str], ...] = ()
    """(wanted, name, beginning of the value), all in lower case."""

    def __bool__(self) -> bool:
        return bool(self.words or self.facts)

    def matches(self, words: str, facts: Mapping[str, str]) -> bool:
        """Whether a row with these words and facts is shown; a name that is no fact of the row is a word."""
        text = words.casefold()
        for wanted, word in self.words:
            if (word in text) is not wanted:
                return False
        for wanted, name, value in self.facts:
            found = value in facts[name].casefold() if name in facts else f"{name}:{value}" in text
            if found is not wanted:
                return False
        return True


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
