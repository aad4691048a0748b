"""Prometheus text and OpenMetrics read tolerantly: labels in any order, escapes, blanks, timestamps, exemplars.

A bad line loses only itself.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

_NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
_LABEL = re.compile(r'\s*([a-zA-Z_][a-zA-Z0-9_.]*)\s*=\s*"((?:[^"\\]|\\.)*)"\s*')
_QUOTED = re.compile(r'\s*"([a-zA-Z_:][a-zA-Z0-9_:]*)"\s*,?')
"""A name that stands first among its labels, as pages of Prometheus 3 may have it."""
_ESCAPE = re.compile(r"\\(.)")
_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*([eE][+-]?[0-9]{1,3})?|\.[0-9]+([eE][+-]?[0-9]{1,3})?|(?i:inf|nan))")
MAX_LINE_CHARS = 16 * 1024


@dataclass(frozen=True, kw_only=True)
class Sample:
    """One line."""

    name: str
    labels: Mapping[str, str]
    value: float
    """May be NaN or infinite, as it was written."""


def samples(text: str) -> Iterator[Sample]:
    """Every line that is a sample."""
    for line in text.split("\n"):
        sample = parse_line(line) if len(line) <= MAX_LINE_CHARS else None
        if sample is not None:
            yield sample


def parse_line(line: str) -> Sample | None:
    """A line's sample; none for comments, blanks and everything that is no sample."""
    line = line.strip()
    inside = line.startswith("{")
    name = _QUOTED.match(line, 1) if inside else _NAME.match(line)
    if name is None:
        return None
    rest = "{" + line[name.end() :] if inside else line[name.end() :].lstrip()
    labels: dict[str, str] = {}
    if rest.startswith("{"):
        at = 1
        while match := _LABEL.match(rest, at):
            labels[match[1]] = _ESCAPE.sub(lambda m: "\n" if m[1] == "n" else m[1], match[2])
            at = match.end()
            if rest[at : at + 1] != ",":
                break
            at += 1
        rest = rest[at:].lstrip()
        if not rest.startswith("}"):
            return None
        rest = rest[1:]
    # After the value there may be when it was taken, and after that an example of what was counted.
    words = rest.partition(" #")[0].split()
    if not 1 <= len(words) <= 2 or any(_NUMBER.fullmatch(word) is None for word in words):
        return None
    return Sample(name=name[1] if inside else name[0], labels=labels, value=float(words[0]))
