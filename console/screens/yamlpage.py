"""One row of the feed as YAML, as it is now; it follows what changes."""

from typing import ClassVar

import msgspec

from console.screens.text_page import TextPage
from console.screens.view import row_of
from console.state.diff import Diff
from console.widgets.columns import Seen
from console.widgets.lines import Line


class YamlPage(TextPage):
    """The object under the cursor."""

    NOUN: ClassVar[str] = "yaml"

    def update(self, seen: Seen, diff: Diff | None) -> None:
        """Its document."""
        subject = self.place.subject
        row = row_of(seen.state, subject) if subject else None
        if row is None:
            self.lines.set_lines([[("it is not there any more", "dim")]])
        else:
            self.lines.set_lines(yaml_lines(row))
        self.say_title()


def yaml_lines(row: object) -> list[Line]:
    """A row's document, keys in another tone than values."""
    # YAML costs 20 ms to import.
    import yaml

    plain = msgspec.to_builtins(row, builtin_types=(bytes,))
    if isinstance(plain, dict):
        plain = {key: _opened(value) for key, value in plain.items()}
    text = yaml.safe_dump(plain, sort_keys=False, allow_unicode=False, width=10_000)
    return [_line(line) for line in text.splitlines()]


def _opened(value: object) -> object:
    """JSON inside a row (an audit's before and after) as what it says."""
    return msgspec.json.decode(value) if isinstance(value, bytes | msgspec.Raw) else value


def _line(line: str) -> Line:
    key, colon, value = line.partition(":")
    if colon and key.strip(" -").isidentifier():
        return [(key + colon, "info"), (value, "")]
    return [(line, "")]
