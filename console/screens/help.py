"""Help for the view in front, made from what can be pressed there and nothing else."""

from collections.abc import Sequence

from textual.app import ComposeResult
from textual.binding import Binding
from textual.widget import Widget

from console.commands import Command, grouped, key_name
from console.screens.dialog import Dialog
from console.text import fit, plain, width
from console.widgets.lines import Line, Lines, wrap

KEY_COLUMNS = 12
LABEL_COLUMNS = 26
"""Columns of a label at most; fewer where the longest needs fewer."""
LEAST_COLUMNS = 16
"""Columns below which an explanation is not told: nobody reads a word a line."""


class Help(Dialog[str]):
    """Keys under headings."""

    def __init__(self, view: str, commands: Sequence[Command], focused: Widget | None) -> None:
        super().__init__(f"help {view}".rstrip())
        self._sections = [*_sections(commands), *_moving(focused)]

    def compose(self) -> ComposeResult:
        with self.boxed(tall=True):
            yield Lines()

    def on_mount(self) -> None:
        """It has the keys, so that it can be scrolled."""
        self.query_one(Lines).focus()

    def on_resize(self) -> None:
        """Explanations go on below themselves where the box is narrow."""
        self.call_after_refresh(self._tell)

    def _tell(self) -> None:
        lines = self.query_one(Lines)
        bar = lines.styles.scrollbar_size_vertical
        lines.set_lines(section_lines(self._sections, max(1, lines.size.width - bar)))


Row = tuple[str, str, str]
"""A key, what it does, and the explanation."""


def _sections(commands: Sequence[Command]) -> list[tuple[str, list[Row]]]:
    found: list[tuple[str, list[Row]]] = []
    for group, members in grouped(commands).items():
        keyed = [(key_name(command.key), command.label, command.help) for command in members if command.key]
        found += [(group, keyed)] if keyed else []
    return found


def _moving(focused: Widget | None) -> list[tuple[str, list[Row]]]:
    bindings = [b for b in getattr(type(focused), "BINDINGS", ()) if isinstance(b, Binding) and b.description]
    rows = [(" ".join(key_name(key) for key in b.key.split(",")), b.description, "") for b in bindings]
    return [("moving", rows)] if rows else []


def section_lines(sections: Sequence[tuple[str, Sequence[Row]]], columns: int) -> list[Line]:
    """Headings, and under each its keys; an explanation that is too long goes on below itself."""
    rows = [row for _, members in sections for row in members]
    keys = min(KEY_COLUMNS, 1 + max((width(plain(key)) for key, _, _ in rows), default=0))
    labels = min(LABEL_COLUMNS, max((width(plain(label)) for _, label, _ in rows), default=0))
    lines: list[Line] = []
    for group, members in sections:
        lines += [[]] if lines else []
        lines.append([(group, "accent")])
        for key, label, help_ in members:
            head: Line = [("  ", ""), (fit(key, keys), "key"), (fit(label, labels), "")]
            room = columns - keys - labels - 4
            told = wrap([(help_, "dim")], room) if help_ and room >= LEAST_COLUMNS else [[]]
            lines.append([*head, ("  ", ""), *told[0]])
            lines += [[(" " * (keys + labels + 4), ""), *more] for more in told[1:]]
    return lines
