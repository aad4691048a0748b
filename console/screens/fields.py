"""One field of a form: its label, the line one types in, and beside it what is wrong or worth knowing."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from textual.app import ComposeResult
from textual.containers import Horizontal
from textual.suggester import Suggester

from console.screens.field_input import UNTYPEABLE, FieldInput
from console.signs import signs
from console.widgets.lines import Line
from console.widgets.text_block import TextBlock
from llmgw.core.errors import InvalidInput

MAX_CHARS = 2048
"""Longest text of a field; the longest source the API takes."""
_TYPEABLE = f"[^{UNTYPEABLE}]*"
"""What a field takes."""


@dataclass(frozen=True, kw_only=True)
class Field:
    """What a field is."""

    name: str
    label: str
    help: str = ""
    """A few words beside it while nothing is wrong."""
    value: str = ""
    """What stands in it at first."""
    stand_in: str = ""
    """What it means while it is empty, shown faintly in it."""
    required: bool = False
    whole: tuple[int, int] | None = None
    """Least and highest of a whole number; none is text."""
    offers: Sequence[str] = ()
    """What it can be completed to."""
    many: bool = False
    """Several, separated by commas; the last one is completed."""
    long: bool = False
    """Takes the whole line; what is said about it stands under it."""

    def complaint(self, text: str) -> str:
        """What is wrong with `text` by itself."""
        if not text:
            return "is needed" if self.required else ""
        if self.whole is None:
            return ""
        low, high = self.whole
        number = whole(text)
        if number is None:
            return "is not a whole number"
        return "" if low <= number <= high else f"{number:,} is outside {low:,} to {high:,}"


def whole(text: str) -> int | None:
    """The whole number that `text` writes, commas and blanks between digits allowed; none for anything else."""
    digits = text.replace(",", "").replace(" ", "").replace("_", "")
    # `int` takes other scripts' digits; nobody means them.
    return int(digits) if digits.isascii() and digits.isdigit() and len(digits) <= 18 else None


def harmless(text: str) -> str:
    """`text` when a field takes it, else nothing: completions and first values come from outside."""
    return text if re.fullmatch(_TYPEABLE, text) and len(text) <= MAX_CHARS else ""


def said_of(error: InvalidInput) -> str:
    """What an error says, without the field's name: it stands beside the field."""
    return error.message.removeprefix(f"{error.field}: ")


def listed(text: str) -> tuple[str, ...]:
    """What `a, b` lists, each once."""
    return tuple(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))


class _Offers(Suggester):
    """Completes what is typed to the first offer that begins with it."""

    def __init__(self, field: Field) -> None:
        super().__init__(use_cache=False, case_sensitive=True)
        self._field = field

    async def get_suggestion(self, value: str) -> str | None:
        """The completion shown behind the cursor."""
        before, comma, last = value.rpartition(",") if self._field.many else ("", "", value)
        typed = last.lstrip()
        blank = last[: len(last) - len(typed)]
        taken = listed(before)
        if not typed:
            return None
        offers = (harmless(offer) for offer in self._field.offers if offer.startswith(typed))
        found = (offer for offer in offers if offer and offer not in taken)
        offer = next(found, None)
        return None if offer is None else f"{before}{comma}{blank}{offer}"


class FieldRow(Horizontal):
    """A field on the screen."""

    def __init__(self, field: Field) -> None:
        super().__init__(classes="form-field -long" if field.long else "form-field")
        self.field = field
        self.input = FieldInput(
            harmless(field.value),
            placeholder=field.stand_in,
            max_length=MAX_CHARS,
            restrict=_TYPEABLE,
            select_on_focus=False,
            suggester=_Offers(field) if field.offers else None,
            id=f"field-{field.name}",
        )
        self.note = TextBlock(wrapped=True)
        self.note.add_class("note")
        self.problem = ""
        """What is wrong with what stands in it."""

    def compose(self) -> ComposeResult:
        label = TextBlock([[(self.field.label, "dim")]])
        label.add_class("name")
        yield label
        yield self.input
        yield self.note

    @property
    def text(self) -> str:
        """What stands in it, without blanks at its ends."""
        return self.input.value.strip()

    def say(self, problem: str, remark: Line | None) -> None:
        """Show what is wrong, else what is worth knowing, else the help."""
        self.problem = problem
        self.set_class(bool(problem), "-wrong")
        if problem:
            self.note.set_lines([[(f"{signs().broken} {problem}", "bad")]])
        else:
            self.note.set_lines([remark if remark is not None else [(self.field.help, "dim")]])

    def stand_in(self, text: str) -> None:
        """What it means while it is empty."""
        if self.input.placeholder != text:
            self.input.placeholder = text
