"""The last line: what can be pressed here and now, the most useful first, as many as fit."""

from collections.abc import Sequence

from textual.strip import Strip

from console.commands import Command, by_key, for_footer, key_name
from console.widgets.paint import LineWidget, Span, spans_width

ALWAYS: list[Span] = [("^p", "key"), (" palette ", "dim")]
HELP: list[Span] = [("?", "key"), (" help  ", "dim")]
APART = 1
"""At least so many more cells than between two commands stand before them."""


class Footer(LineWidget):
    """Keys and what they do."""

    def __init__(self) -> None:
        super().__init__(id="footer")
        self._items: list[list[Span]] = []
        self._always = [*HELP, *ALWAYS]

    def set_commands(self, commands: Sequence[Command]) -> None:
        """Show these commands' keys."""
        items: list[list[Span]] = [
            [(f" {key_name(command.key)}", "key"), (f" {command.label} ", "")] for command in for_footer(commands)
        ]
        # While one types, `?` is a letter.
        always = [*HELP, *ALWAYS] if by_key(commands, "?") else ALWAYS
        if (items, always) != (self._items, self._always):
            self._items, self._always = items, always
            self.refresh()

    def render_line(self, y: int) -> Strip:
        """The line."""
        room = self.size.width - spans_width(self._always) - APART
        spans: list[Span] = []
        for item in self._items:
            if spans_width([*spans, *item]) > room:
                break
            spans += item
        return self.pair(spans, self._always, self.size.width)
