"""Fetch weights: bring a set to the mirror before a model needs it, or try again one that failed."""

from collections.abc import Sequence
from typing import ClassVar

from console.figures import size
from console.screens.fields import Field, said_of
from console.screens.form import Form, Values
from console.widgets.lines import Line
from llmgw.api.client import AdminClient
from llmgw.api.types import Result
from llmgw.core.errors import InvalidInput
from llmgw.core.sources import parse_source


class FetchForm(Form[Result]):
    """A source."""

    TITLE: ClassVar[str] = "fetch weights"
    SUBMIT: ClassVar[str] = "Fetch"

    def fields(self) -> Sequence[Field]:
        """Where they come from; the set under the cursor is offered when it failed."""
        state = self.host.store.state
        failed = sorted(source for source, row in state.weights.items() if row.state == "failed")
        here = {model.source for model in state.models.values() if not model.spec.external}
        wanted = sorted(here - state.weights.keys())
        given = self.arguments[0] if self.arguments else self._under_cursor()
        return (
            Field(
                name="source",
                label="source",
                help="hf:ORG/REPO[@REV][:FILE], https://HOST/FILE, pypi:PKG==VER/PATH or file:/PATH",
                value=given,
                required=True,
                offers=(*failed, *wanted),
                long=True,
            ),
        )

    def _under_cursor(self) -> str:
        chosen = self.host.main.subjects()
        row = self.host.store.state.weights.get(chosen[0].key) if len(chosen) == 1 else None
        return row.source if row is not None and row.state == "failed" else ""

    def check(self, values: Values) -> dict[str, str]:
        """A source that is none."""
        try:
            parse_source(values["source"])
        except InvalidInput as error:
            return {"source": said_of(error)}
        return {} if not values["source"].startswith("sim:") else {"source": "a simulated model has no weights"}

    def promise(self, values: Values) -> Line:
        """What the mirror has of it."""
        row = self.host.store.state.weights.get(values["source"])
        line: Line = [("enter", "key")]
        if row is None:
            return [*line, (" looks the source up and brings its files to the mirror", "")]
        if row.state == "failed":
            line += [(" tries again", ""), (f" from {size(row.done_bytes)} on" if row.done_bytes else "", "")]
            return [*line, (f"; it failed: {row.message}" if row.message else "", "warn")]
        return [("the mirror has it already: ", "warn"), (f"{row.state}, {size(row.total_bytes)}", "warn")]

    def send(self, api: AdminClient, values: Values) -> Result:
        """Have it fetched."""
        return api.fetch_weights(values["source"])

    def done(self, result: Result) -> None:
        """The server's sentence."""
        self.host.toast(result.message)
