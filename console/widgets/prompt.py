"""The line above the footer in which `:` commands and `/` filters are typed. It has the keys only while it is open."""

from collections.abc import Callable
from typing import Protocol

from textual import events
from textual.app import ComposeResult
from textual.containers import Horizontal
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


class Owner(Protocol):
    """Whose line it is. It is called at once: a key typed behind the one that ended the line finds it ended."""

    def prompt_typed(self, text: str) -> None:
        """A filter's text is another."""

    def prompt_entered(self, text: str) -> None:
        """A command line was entered."""

    def prompt_closed(self, mark: str, *, kept: bool) -> None:
        """The keys go back to the view; `kept` is whether what was typed holds."""


class Prompt(Horizontal):
    """`:` with completion and history, `/` with every letter taking effect."""

    def __init__(self, owner: Owner, candidates: Callable[[str], list[str]]) -> None:
        super().__init__(id="prompt")
        self._owner = owner
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
        """A key that its own line did not take, or that was on its way elsewhere when it opened; whether it is its."""
        if event.key == "enter":
            self._enter()
        elif event.key == "escape" or (event.key == "backspace" and not self._input.value):
            self.close(kept=False)
        elif event.key == "tab" and self.mark == ":":
            self._complete()
        elif event.key in ("up", "down") and self.mark == ":":
            self._recall(-1 if event.key == "up" else 1)
        elif event.is_printable and event.character:
            self._input.insert_text_at_cursor(event.character)
        else:
            return False
        return True

    def close(self, *, kept: bool) -> None:
        """Give the keys back."""
        if self.is_open:
            self.remove_class("-open")
            self._owner.prompt_closed(self.mark, kept=kept)

    def on_input_changed(self, event: Input.Changed) -> None:
        """A filter works while it is typed."""
        event.stop()
        if self.mark == "/" and self.is_open:
            self._owner.prompt_typed(event.value)

    def _enter(self) -> None:
        """A command runs, a filter stays."""
        value, line = self._input.value, self._input.value.strip()
        if self.mark == "/":
            self._owner.prompt_typed(value)
            self.close(kept=True)
            return
        if line:
            self.history = [*(before for before in self.history if before != value), value][-MAX_HISTORY:]
        self.close(kept=True)
        self._owner.prompt_entered(line)

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
