"""Scale a model: how many replicas are kept, and where the next one would go."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

from console.figures import plural
from console.places import Subject
from console.screens.fields import Field, whole
from console.screens.form import Form, Values
from console.widgets.lines import Line
from llmgw.api.client import AdminClient
from llmgw.api.problems import ClientError
from llmgw.api.types import Explanation, ModelResult
from llmgw.core.catalog import MAX_REPLICAS, Scaling

if TYPE_CHECKING:
    from console.app import Console


class ScaleForm(Form[ModelResult]):
    """Least and most."""

    TITLE: ClassVar[str] = "scale"
    SUBMIT: ClassVar[str] = "Scale"

    def __init__(self, console: "Console", subjects: tuple[Subject, ...], arguments: tuple[str, ...]) -> None:
        self.model = subjects[0].key
        row = console.store.state.models.get(self.model)
        self.before = row.spec.scaling if row is not None else Scaling()
        self.explanation: Explanation | None = None
        super().__init__(console, subjects, arguments)
        self._title = f"scale {self.model}"

    def fields(self) -> Sequence[Field]:
        """Both; an argument of the `:` line stands in for what is."""
        least, most = (*self.arguments, "", "")[:2]
        return (
            Field(
                name="min",
                label="least replicas",
                help="kept at all times; 0 keeps none",
                value=least or str(self.before.min),
                required=True,
                whole=(0, MAX_REPLICAS),
            ),
            Field(
                name="max",
                label="most replicas",
                help="never exceeded",
                value=most or (str(max(self.before.max, whole(least) or 0)) if least else str(self.before.max)),
                required=True,
                whole=(1, MAX_REPLICAS),
            ),
        )

    def on_mount(self) -> None:
        """Typing replaces the first figure."""
        self.run_worker(self._explain(), group="fit", exclusive=True)
        first = self.rows["min"].input
        self.set_focus(first)
        first.select_all()
        self.say()

    async def _explain(self) -> None:
        try:
            self.explanation = await self.host.admin.call(lambda api: api.explain(self.model))
        except ClientError:
            # The promise does without; a server that is away says so when it is asked to scale.
            return
        self.say()

    def _most_is_own(self) -> bool:
        return self.rows["max"].text != str(self.before.max)

    def check(self, values: Values) -> dict[str, str]:
        """A most under the least."""
        wanted = _range(values)
        if self._most_is_own() and wanted.max < wanted.min:
            return {"max": f"is under the least, {wanted.min:,}"}
        return {}

    def remarks(self, values: Values) -> dict[str, Line]:
        """That the most goes along."""
        least, most = whole(values["min"]), whole(values["max"])
        if least is not None and most is not None and least > most and not self._most_is_own():
            return {"max": [(f"goes along to {least:,}", "info")]}
        return {}

    def promise(self, values: Values) -> Line:
        """How many start or end, and where the next one goes."""
        wanted = self.wanted(values)
        if wanted == self.before:
            return [(f"as it is: {wanted.min:,} kept, {wanted.max:,} at most", "dim")]
        line: Line = [("enter", "key"), (" keeps ", ""), (plural(wanted.min, "replica"), "strong")]
        line.append((f" of {self.model}, {wanted.max:,} at most", ""))
        more = wanted.min - self.before.min
        if more > 0:
            line.append((f"; {plural(more, 'replica')} more", ""))
            line += self._where()
        elif more < 0:
            line.append((f"; {plural(-more, 'replica')} fewer: they end once their requests are answered", "warn"))
        return line

    def _where(self) -> Line:
        found = self.explanation
        if found is None:
            return []
        if found.would_place is None:
            return [(f", with no room for one now: {found.message}", "warn")]
        return [(", the next goes to ", ""), (found.would_place, "strong")]

    def wanted(self, values: Values) -> Scaling:
        """The range that is asked for."""
        found = _range(values)
        return found if self._most_is_own() else Scaling(min=found.min, max=max(found.min, found.max))

    def send(self, api: AdminClient, values: Values) -> ModelResult:
        """Scale it."""
        wanted = self.wanted(values)
        return api.scale(self.model, wanted.min, wanted.max)

    def done(self, result: ModelResult) -> None:
        """The server's sentence."""
        self.host.toast(result.message)


def _range(values: Values) -> Scaling:
    return Scaling(min=whole(values["min"]) or 0, max=whole(values["max"]) or 0)
