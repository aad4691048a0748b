"""What asks over a view: the base of every dialog, its choices, and the question before something dangerous."""

from collections.abc import Iterable
from typing import ClassVar, Generic, TypeVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.geometry import Size
from textual.message import Message
from textual.screen import ModalScreen
from textual.strip import Strip
from textual.widgets import Input

from console.text import plain, width
from console.widgets.lines import Line
from console.widgets.paint import LineWidget
from console.widgets.text_block import TextBlock

R = TypeVar("R")


class Choice(LineWidget, can_focus=True):
    """One thing to choose, in a row of them."""

    class Pressed(Message):
        """It was chosen."""

        def __init__(self, choice: "Choice") -> None:
            super().__init__()
            self.choice = choice

    def __init__(self, name: str, label: str, *, danger: bool = False) -> None:
        super().__init__(id=f"choice-{name}", classes="-danger" if danger else "")
        self.value = name
        self._label = f" {label} "

    def get_content_width(self, container: Size, viewport: Size) -> int:
        """The label's."""
        return width(self._label)

    def render_line(self, y: int) -> Strip:
        """The label."""
        return self.strip([(self._label, "")], self.size.width)

    def on_click(self) -> None:
        """So does a click."""
        self.post_message(self.Pressed(self))


class Dialog(ModalScreen[R], Generic[R]):
    """A box over the view. Esc closes it with nothing; left and right walk the choices."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "leave", "cancel", show=False),
        Binding("left,up", "walk(-1)", show=False),
        Binding("right,down", "walk(1)", show=False),
        Binding("enter,space", "choose", show=False),
    ]

    def __init__(self, title: str) -> None:
        super().__init__()
        self._title = title

    def boxed(self, *, tall: bool = False) -> Vertical:
        """The box, with its title; contents are composed inside it."""
        box = Vertical(classes="box -tall" if tall else "box")
        box.border_title = Content(plain(self._title))
        return box

    def action_leave(self) -> None:
        """Close with nothing."""
        self.dismiss(None)

    def action_choose(self) -> None:
        """What has the keys when the key's turn comes, which an arrow before it may have moved."""
        if isinstance(self.focused, Choice):
            self.post_message(Choice.Pressed(self.focused))

    def action_walk(self, by: int) -> None:
        """Move among the choices."""
        if isinstance(self.focused, Choice):
            choices = list(self.query(Choice))
            here = choices.index(self.focused)
            # At once: `focus` waits its turn, and an enter typed behind the arrow would choose what was left.
            self.set_focus(choices[(here + by) % len(choices)])


class Question(Dialog[str]):
    """A question with choices; the first one is chosen until another is. Dismisses with the choice's name, or none."""

    def __init__(
        self, title: str, lines: Iterable[Line], choices: Iterable[tuple[str, str]], *, danger: bool = False
    ) -> None:
        super().__init__(title)
        self._lines = list(lines)
        self._choices = list(choices)
        self._danger = danger
        self._text = TextBlock(self._lines, wrapped=True)
        self.set_class(danger, "-danger")

    def add_line(self, line: Line) -> None:
        """One more line, which took a while."""
        self._lines = [*self._lines, line]
        self._text.set_lines(self._lines)

    def compose(self) -> ComposeResult:
        with self.boxed():
            yield self._text
            with Horizontal(classes="buttons"):
                for place, (name, label) in enumerate(self._choices):
                    yield Choice(name, label, danger=self._danger and place > 0)

    def on_mount(self) -> None:
        """The harmless choice has the keys."""
        self.set_focus(self.query(Choice).first())

    def on_choice_pressed(self, event: Choice.Pressed) -> None:
        """Done."""
        self.dismiss(event.choice.value)


class TypedQuestion(Dialog[str]):
    """A question answered by typing a word; anything else changes nothing. Dismisses with `yes` or none."""

    def __init__(self, title: str, lines: Iterable[Line], word: str) -> None:
        super().__init__(title)
        self._lines = [*lines, [], [("Type ", ""), (word, "strong"), (" and press enter. Esc cancels.", "")]]
        self._word = word
        self._note = TextBlock([[("", "")]])
        self.add_class("-danger")

    def compose(self) -> ComposeResult:
        with self.boxed():
            yield TextBlock(self._lines, wrapped=True)
            yield Input(max_length=300)
            yield self._note

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Only the word itself goes on."""
        event.stop()
        if event.value.strip() == self._word:
            self.dismiss("yes")
        else:
            self._note.set_lines([[("that is not it; nothing was changed", "warn")]])
