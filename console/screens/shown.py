"""Something that is shown once: a key, a command with a token. Never cut, copied with one key, not left by mistake."""

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal

from console.screens.dialog import Choice, Dialog
from console.surroundings import hindrance
from console.widgets.lines import Line
from console.widgets.text_block import TextBlock

ROW_COLUMNS = 70
"""Columns of a row in a box of the usual width."""


class Shown(Dialog[None]):
    """The text, `c` to copy it, enter when it is kept."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("c,y", "copy", "copy", show=False)]

    def __init__(self, title: str, lines: list[Line], text: str, *, what: str) -> None:
        super().__init__(title)
        # What goes on in another row is hard to select.
        self.set_class(len(text) > ROW_COLUMNS, "-wide")
        self.text = text
        self.copied = False
        self._lines = lines
        self._what = what
        self._warned = False
        self._note = TextBlock([[(f"This {what} is shown once, here.", "warn")]], wrapped=True)

    def compose(self) -> ComposeResult:
        with self.boxed():
            yield TextBlock(self._lines, wrapped=True)
            secret = TextBlock([[(self.text, "strong")]], wrapped=True)
            secret.add_class("secret")
            yield secret
            yield self._note
            with Horizontal(classes="buttons"):
                yield Choice("copy", "Copy")
                yield Choice("done", "I have it")

    def on_mount(self) -> None:
        """Copying comes first."""
        self.set_focus(self.query(Choice).first())

    def action_copy(self) -> None:
        """To the clipboard, through SSH too (OSC 52); a terminal may refuse without saying so."""
        self.app.copy_to_clipboard(self.text)
        self.copied = True
        sent = f"Sent {len(self.text)} characters to the clipboard{hindrance()}."
        said = f"{sent} Where the terminal takes none, select them above."
        self._note.set_lines([[(said, "good")]])
        self.set_focus(self.query(Choice).last())

    def action_leave(self) -> None:
        """Esc leaves at once when it was copied, else at the second time."""
        if self.copied or self._warned:
            self.dismiss(None)
            return
        self._warned = True
        self._note.set_lines([[(f"Not copied yet, and this {self._what} cannot be shown again. Esc leaves.", "bad")]])

    def on_choice_pressed(self, event: Choice.Pressed) -> None:
        """The buttons."""
        if event.choice.value == "copy":
            self.action_copy()
        else:
            self.dismiss(None)
