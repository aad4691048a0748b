"""The base of every form: fields that are checked while one types, and a line that says what enter will do.

A form never loses what was typed to a refusal: it stays, and the sentence stands beside the field it is about. A call
that was sent goes on when the form is left; its outcome is told all the same.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar, Generic, TypeVar

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, VerticalScroll
from textual.widget import Widget
from textual.widgets import Input

from console.places import Subject
from console.screens.dialog import Choice, Dialog
from console.screens.fields import Field, FieldRow
from console.widgets.lines import Line
from console.widgets.text_block import TextBlock
from llmgw.api.client import AdminClient
from llmgw.api.problems import ClientError

if TYPE_CHECKING:
    from console.app import Console

R = TypeVar("R")
LEAST_COLUMNS = 64
"""A narrower form has no room beside its fields."""
LEAST_ROWS = 16
"""A lower one shows its fields and its promise alone."""
Values = Mapping[str, str]
"""Field → what stands in it, without blanks at its ends."""


class Form(Dialog[None], Generic[R]):
    """Fields, a promise, and what comes of it. Enter sends from any field, tab and arrows walk, esc leaves."""

    TITLE: ClassVar[str] = ""
    SUBMIT: ClassVar[str] = "Send"
    """Word of the button."""
    OF: ClassVar[Mapping[str, str]] = {}
    """Name the server uses → field it means, where the two differ."""
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up", "move(-1)", "field before", show=False),
        Binding("down", "move(1)", "next field", show=False),
    ]

    def __init__(self, console: "Console", subjects: tuple[Subject, ...], arguments: tuple[str, ...]) -> None:
        super().__init__(self.TITLE)
        self.host = console
        self.subjects = subjects
        self.arguments = arguments
        self.rows = {field.name: FieldRow(field) for field in self.fields()}
        self.promise_line = TextBlock(wrapped=True)
        self.promise_line.add_class("promise")
        self.refusal = ""
        """What the server said of the whole; gone with the next letter."""
        self.sent = False
        self._tried = False
        self._refused: dict[str, str] = {}
        self.add_class("form")

    # -- what a form says

    def fields(self) -> Sequence[Field]:
        """Its fields, in order."""
        raise NotImplementedError

    def check(self, values: Values) -> dict[str, str]:
        """Field → what is wrong with it, beyond what the fields check themselves."""
        return {}

    def remarks(self, values: Values) -> dict[str, Line]:
        """Field → what is worth knowing about what stands in it, in place of its help."""
        return {}

    def promise(self, values: Values) -> Line:
        """What enter will do; only called with values that are right as far as the form knows."""
        raise NotImplementedError

    def send(self, api: AdminClient, values: Values) -> R:
        """Do it, in a thread; raises ClientError."""
        raise NotImplementedError

    def done(self, result: R) -> None:
        """Tell what came of it; the form is gone."""
        raise NotImplementedError

    def aside(self) -> Widget | None:
        """What stands under the fields."""
        return None

    def typed(self, values: Values) -> None:
        """Something was typed."""

    # -- the screen

    def compose(self) -> ComposeResult:
        with self.boxed():
            with VerticalScroll(classes="fields", can_focus=False):
                yield from self.rows.values()
            aside = self.aside()
            self.set_class(aside is None, "-bare")
            if aside is not None:
                yield aside
            yield self.promise_line
            with Horizontal(classes="buttons"):
                yield TextBlock([self._hint()])
                yield Choice("leave", "Cancel")
                yield Choice("send", self.SUBMIT)

    def on_mount(self) -> None:
        """The first field that is still to be filled has the keys."""
        first = next((row for row in self.rows.values() if not row.text), next(iter(self.rows.values())))
        self.set_focus(first.input)
        self.say()
        self.typed(self.values())

    def on_resize(self, event: events.Resize) -> None:
        """Where there is hardly any room, what one types in stays."""
        self.set_class(event.size.width < LEAST_COLUMNS, "-slim")
        self.set_class(event.size.height < LEAST_ROWS, "-low")

    def _hint(self) -> Line:
        keys = [("tab", "next"), ("enter", self.SUBMIT.lower()), ("esc", "leave")]
        if any(row.field.offers for row in self.rows.values()):
            keys.insert(1, ("right", "complete"))
        spans = [span for key, word in keys for span in ((key, "key"), (f" {word}", "dim"), ("  ", ""))]
        return spans[:-1]

    def values(self) -> dict[str, str]:
        """What stands in the fields."""
        return {name: row.text for name, row in self.rows.items()}

    def wrong(self, values: Values) -> dict[str, str]:
        """Field → what is wrong with it."""
        return self._complaints(values) or self.check(values)

    def _complaints(self, values: Values) -> dict[str, str]:
        """Field → what is wrong with it by itself."""
        return {name: said for name, row in self.rows.items() if (said := row.field.complaint(values[name]))}

    def say(self) -> None:
        """Show what there is to say about the fields, and what enter will do."""
        values = self.values()
        wrong = self.wrong(values)
        remarks = self.remarks(values)
        # An empty field that is needed is no mistake yet while one is on the way to it; one that is wrong empty is.
        early = {} if self._tried else {n: said for n, said in self._complaints(values).items() if not values[n]}
        heard = {name: said for name, said in wrong.items() if name not in early}
        for name, row in self.rows.items():
            row.say(heard.get(name, "") or self._refused.get(name, ""), remarks.get(name))
        self.promise_line.set_lines([self._outlook(values, wrong, heard)])

    def _outlook(self, values: Values, wrong: Mapping[str, str], heard: Mapping[str, str]) -> Line:
        if self.sent:
            return [("sent; waiting for the answer", "info")]
        if self.refusal:
            return [(self.refusal, "bad")]
        if self.has_class("-slim"):
            said = next((row.problem for row in self.rows.values() if row.problem), "")
            if said:
                return [(said, "bad")]
        bad = [self.rows[name].field.label for name in self.rows if name in wrong or name in self._refused]
        if heard or self._refused:
            return [("not yet: ", "warn"), (", ".join(bad), "strong")]
        return self.promise(values) if not bad else [(f"{', '.join(bad)} first", "dim")]

    # -- keys

    def action_move(self, by: int) -> None:
        """Walk the fields."""
        if isinstance(self.focused, Choice):
            self.action_walk(by)
        elif by > 0:
            self.focus_next()
        else:
            self.focus_previous()

    def on_key(self, event: events.Key) -> None:
        """A letter that came before the field had the keys is the field's."""
        if isinstance(self.focused, Input) and event.is_printable and event.character:
            event.stop()
            self.focused.insert_text_at_cursor(event.character)

    def on_input_changed(self, event: Input.Changed) -> None:
        """Every letter counts."""
        event.stop()
        name = next((name for name, row in self.rows.items() if row.input is event.input), "")
        self._refused.pop(name, None)
        self.refusal = ""
        self.say()
        self.typed(self.values())

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Enter."""
        event.stop()
        self.submit()

    def on_choice_pressed(self, event: Choice.Pressed) -> None:
        """The buttons."""
        if event.choice.value == "leave":
            self.dismiss(None)
        else:
            self.submit()

    # -- sending

    def submit(self) -> None:
        """Send it, or go to the first field that is wrong."""
        if self.sent:
            return
        values = self.values()
        wrong = self.wrong(values)
        self._tried = True
        self.sent = not wrong
        self.say()
        if wrong:
            self.set_focus(self.rows[next(name for name in self.rows if name in wrong)].input)
        else:
            # The console's worker, not the form's: leaving the form does not undo what was sent.
            self.host.run_worker(self._send(values), name=self.TITLE, group="calls")

    async def _send(self, values: Values) -> None:
        try:
            result = await self.host.admin.call(lambda api: self.send(api, values))
        except ClientError as error:
            if self.host.screen is self:
                self.refused(error, focus=True)
            else:
                self.host.toast(error.message, error=True)
            return
        if self.host.screen is self:
            self.dismiss(None)
        self.done(result)

    def refused(self, error: ClientError, *, focus: bool = False) -> None:
        """Put a refusal beside the field it names, or where the promise stood."""
        self.sent = False
        path = (error.problem.field or "") if error.problem is not None else ""
        name = self.field_named(path)
        self._refused = {}
        if name:
            self._refused[name] = error.message.removeprefix(f"{path}: ")
            if focus:
                self.set_focus(self.rows[name].input)
        else:
            self.refusal = error.message
        self.say()

    def accepted(self) -> None:
        """The server has nothing against what stands in the fields."""
        self._refused, self.refusal = {}, ""
        self.say()

    def field_named(self, path: str) -> str:
        """The field that the server's `profiles[0].slots` means; empty for none."""
        last = path.rpartition(".")[2].partition("[")[0]
        name = self.OF.get(path) or self.OF.get(last) or last
        return name if name in self.rows else ""
