"""The line above the footer in which `:` commands and `/` filters are typed. It has the keys only while it is open."""

from collections.abc import Callable

from textual import events
from textual.app import ComposeResult
from textual.containers import Horizontal
from textual.message import Message
from textual.suggester import Suggester
from textual.widgets import Input

from console.widgets.text_block import TextBlock

MAX_HISTORY = 100
"""Command lines remembered."""
MAX_CHARS = 1000


class _Completer(Suggester):
    """Suggests the first candidate that goes on from what is typed."""

    def __init__(self, candidates: Callable[[str], list[str]]) -> None:
        super().__init__(use_cache=False, case_sensitive=True)
        self._candidates = candidates

    async def get_suggestion(self, value: str) -> str | None:
        """The completion shown behind the cursor."""
        return next((text for text in self._candidates(value) if text.startswith(value) and text != value), None)


class Prompt(Horizontal):
    """`:` with completion and history, `/` with every letter taking effect."""

    class Typed(Message):
        """A filter's text is another."""

        def __init__(self, text: str) -> None:
            super().__init__()
            self.text = text

    class Entered(Message):
        """A command line was entered."""

        def __init__(self, text: str) -> None:
            super().__init__()
            self.text = text

    class Closed(Message):
        """The keys go back to the view; `kept` is whether what was typed holds."""

        def __init__(self, mark: str, kept: bool) -> None:
            super().__init__()
            self.mark = mark
            self.kept = kept

    def __init__(self, candidates: Callable[[str], list[str]]) -> None:
        super().__init__(id="prompt")
        self.mark = ":"
        self.history: list[str] = []
        self._candidates = candidates
        self._place = 0
        self._sign = TextBlock(id="prompt-mark")
        self._completer = _Completer(candidates)
        self._input = Input(max_length=MAX_CHARS, select_on_focus=False)

    def compose(self) -> ComposeResult:
        yield self._sign
        yield self._input

    @property
    def is_open(self) -> bool:
        """Whether it has the keys."""
        return self.has_class("-open")

    def open(self, mark: str, text: str) -> None:
        """Take the keys, with `text` in the line."""
        self.mark = mark
        self._sign.set_lines([[(mark, "key")]])
        self._input.suggester = self._completer if mark == ":" else None
        self._place = len(self.history)
        with self.prevent(Input.Changed):
            self._input.value = text
        self.add_class("-open")
        # At once: what is typed behind the key that opened it is meant for the line.
        self.screen.set_focus(self._input)
        self._input.cursor_position = len(text)

    def take(self, event: events.Key) -> bool:
        """A key that was on its way elsewhere when the line opened; whether it is the line's."""
        if event.key == "escape":
            self.close(kept=False)
        elif event.is_printable and event.character:
            self._input.insert_text_at_cursor(event.character)
        else:
            return False
        return True

    def close(self, *, kept: bool) -> None:
        """Give the keys back."""
        if self.is_open:
            self.remove_class("-open")
            self.post_message(self.Closed(self.mark, kept))

    def on_input_changed(self, event: Input.Changed) -> None:
        """A filter works while it is typed."""
        event.stop()
        if self.mark == "/" and self.is_open:
            self.post_message(self.Typed(event.value))

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Enter: a command runs, a filter stays."""
        event.stop()
        if self.mark == ":" and event.value.strip():
            self.history = [*(line for line in self.history if line != event.value), event.value][-MAX_HISTORY:]
        self.close(kept=True)
        if self.mark == ":":
            self.post_message(self.Entered(event.value.strip()))

    def on_key(self, event: events.Key) -> None:
        """Esc closes, tab completes, up and down are the history."""
        if event.key == "escape" or (event.key == "backspace" and not self._input.value):
            self.close(kept=False)
        elif event.key == "tab" and self.mark == ":":
            self._complete()
        elif event.key in ("up", "down") and self.mark == ":":
            self._recall(-1 if event.key == "up" else 1)
        else:
            return
        event.stop()
        event.prevent_default()

    def _complete(self) -> None:
        value = self._input.value
        found = next((text for text in self._candidates(value) if text.startswith(value) and text != value), None)
        if found is not None:
            self._input.value = found
            self._input.cursor_position = len(found)

    def _recall(self, by: int) -> None:
        self._place = max(0, min(len(self.history), self._place + by))
        value = self.history[self._place] if self._place < len(self.history) else ""
        self._input.value = value
        self._input.cursor_position = len(value)
