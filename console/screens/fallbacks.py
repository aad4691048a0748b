"""Say which models answer while one cannot, in their order."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

from console.places import Subject
from console.screens.fields import Field, listed, said_of
from console.screens.form import Form, Values
from console.widgets.lines import Line
from llmgw.api.client import AdminClient
from llmgw.api.types import ModelResult
from llmgw.core.errors import InvalidInput
from llmgw.core.fallbacks import chain_of, check_chain, check_list

if TYPE_CHECKING:
    from console.app import Console

_FIELD = "fallbacks"
_NONE = "none"


class FallbacksForm(Form[ModelResult]):
    """One field: names in their order."""

    TITLE: ClassVar[str] = "fallbacks"
    SUBMIT: ClassVar[str] = "Set"

    def __init__(self, console: "Console", subjects: tuple[Subject, ...], arguments: tuple[str, ...]) -> None:
        self.model = subjects[0].key
        models = console.store.state.models
        self.declared = {name: row.spec.fallbacks for name, row in models.items()}
        self.aliases = {alias: name for name, row in models.items() for alias in row.spec.aliases}
        self.before = self.declared.get(self.model, ())
        super().__init__(console, subjects, arguments)
        self._title = f"fallbacks of {self.model}"

    def fields(self) -> Sequence[Field]:
        """The names; arguments of the `:` line stand in for what is."""
        return (
            Field(
                name=_FIELD,
                label="answer instead",
                help="models, by name, the first one first; empty for none",
                value=", ".join(self.arguments or self.before),
                stand_in=_NONE,
                offers=sorted(name for name in self.declared if name != self.model),
                many=True,
                long=True,
            ),
        )

    def check(self, values: Values) -> dict[str, str]:
        """Models that are not there, and circles."""
        wanted = _wanted(values)
        try:
            check_list(self.model, wanted)
            check_chain(self.model, wanted, self.declared, self.aliases)
        except InvalidInput as error:
            return {_FIELD: said_of(error)}
        return {}

    def remarks(self, values: Values) -> dict[str, Line]:
        """Who comes after those that are named."""
        wanted = _wanted(values)
        after = [name for name in chain_of(self.model, self.declared | {self.model: wanted}) if name not in wanted]
        return {_FIELD: [(f"then what those fall back to: {', '.join(after)}", "info")]} if after else {}

    def promise(self, values: Values) -> Line:
        """What happens to requests while the model cannot answer."""
        wanted = _wanted(values)
        if wanted == self.before:
            return [("as it is", "dim")]
        line: Line = [("enter", "key"), (" has ", ""), (self.model, "strong")]
        if not wanted:
            return [
                *line,
                (" fall back to no other model: while it cannot answer, requests for it are refused", "warn"),
            ]
        return [
            *line,
            (" fall back to ", ""),
            (", then ".join(wanted), "strong"),
            (" while it cannot answer; answers say so, and cost what their own model costs", ""),
        ]

    def send(self, api: AdminClient, values: Values) -> ModelResult:
        """Set them."""
        return api.set_fallbacks(self.model, _wanted(values))

    def done(self, result: ModelResult) -> None:
        """The server's sentence."""
        self.host.toast(result.message)


def _wanted(values: Values) -> tuple[str, ...]:
    names = listed(values[_FIELD])
    return () if names == (_NONE,) else names
