"""Create a key: whose it is and what it may use. The key itself is shown once, and nowhere else."""

from collections.abc import Sequence
from typing import ClassVar

from console.figures import plural
from console.screens.fields import Field, listed
from console.screens.form import Form, Values
from console.screens.shown import Shown
from console.widgets.lines import Line
from llmgw.api.client import AdminClient
from llmgw.api.types import KeyCreate, KeyCreated

MAX_NAME_CHARS = 128
"""Longest name of a key that the server takes."""


class KeyForm(Form[KeyCreated]):
    """A name, and models."""

    TITLE: ClassVar[str] = "create a key"
    SUBMIT: ClassVar[str] = "Create"

    def fields(self) -> Sequence[Field]:
        """Whose it is, and what for."""
        name, models = (*self.arguments, "", "")[:2]
        known = sorted(name for model in self.host.store.state.models.values() for name in model.spec.names)
        return (
            Field(name="name", label="name", help="whose key it is", value=name, required=True),
            Field(
                name="models",
                label="models",
                help="a, b; empty for every model there is and will be",
                value=models,
                stand_in="all",
                offers=known,
                many=True,
                long=True,
            ),
        )

    def check(self, values: Values) -> dict[str, str]:
        """A name that is too long."""
        over = len(values["name"]) - MAX_NAME_CHARS
        return {"name": f"is {plural(over, 'character')} too long"} if over > 0 else {}

    def remarks(self, values: Values) -> dict[str, Line]:
        """A name that is taken, and models that are not there; both are allowed."""
        state = self.host.store.state
        said: dict[str, Line] = {}
        same = sum(key.name == values["name"] and key.revoked is None for key in state.keys.values())
        if same:
            said["name"] = [(f"{plural(same, 'key')} of that name already", "warn")]
        names = {name for model in state.models.values() for name in model.spec.names}
        strange = [name for name in listed(values["models"]) if name not in names]
        if strange:
            said["models"] = [(f"not in the catalog: {', '.join(strange)}", "warn")]
        return said

    def promise(self, values: Values) -> Line:
        """What the key may use."""
        models = listed(values["models"])
        line: Line = [("enter", "key"), (" makes a key for ", ""), (values["name"], "strong")]
        if not models:
            there = len(self.host.store.state.models)
            return [*line, (f" that may use every model, {there:,} today and those to come", "")]
        return [*line, (f" that may use {plural(len(models), 'model')}: ", ""), (", ".join(models), "strong")]

    def send(self, api: AdminClient, values: Values) -> KeyCreated:
        """Make it."""
        return api.create_key(KeyCreate(name=values["name"], models=listed(values["models"]) or None))

    def done(self, result: KeyCreated) -> None:
        """Show it, once."""
        about: Line = [("Key ", ""), (result.id, "strong"), (" for ", ""), (result.name, "strong"), (":", "")]
        self.host.push_screen(Shown("a new key", [about], result.key, what="key"))
