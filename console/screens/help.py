"""Help for the view in front, made from what can be pressed there and nothing else."""

from collections.abc import Sequence

from textual.app import ComposeResult
from textual.binding import Binding
from textual.widget import Widget

from console.commands import Command, grouped, key_name
from console.screens.dialog import Dialog
from console.text import fit
from console.widgets.lines import Line, Lines

KEY_COLUMNS = 12
LABEL_COLUMNS = 26


class Help(Dialog[str]):
    """Keys under headings."""

    def __init__(self, view: str, commands: Sequence[Command], focused: Widget | None) -> None:
        super().__init__(f"help {view}".rstrip())
        self._lines = [*_sections(commands), *_moving(focused)]

    def compose(self) -> ComposeResult:
        with self.boxed(tall=True):
            yield Lines(wrap=False)

    def on_mount(self) -> None:
        """All of it."""
        lines = self.query_one(Lines)
        lines.set_lines(self._lines)
        lines.focus()


def _sections(commands: Sequence[Command]) -> list[Line]:
    lines: list[Line] = []
    for group, members in grouped(commands).items():
        keyed = [command for command in members if command.key]
        if keyed:
            lines += [[(group, "accent")], *(_line(key_name(c.key), c.label, c.help) for c in keyed), []]
    return lines


def _moving(focused: Widget | None) -> list[Line]:
    bindings = [b for b in getattr(type(focused), "BINDINGS", ()) if isinstance(b, Binding) and b.description]
    if not bindings:
        return []
    lines = [_line(" ".join(key_name(key) for key in b.key.split(",")), b.description, "") for b in bindings]
    return [[("moving", "accent")], *lines]


def _line(key: str, label: str, help_: str) -> Line:
    return [("  ", ""), (fit(key, KEY_COLUMNS), "key"), (fit(label, LABEL_COLUMNS), ""), (f" {help_}", "dim")]
