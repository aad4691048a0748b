"""Create a key: whose it is, what it may use and how much. The key itself is shown once, and nowhere else."""

from collections.abc import Sequence
from typing import ClassVar

from console.figures import plural
from console.screens.fields import Field, listed
from console.screens.form import Form, Values
from console.screens.quota_fields import (
    OF,
    budget_field,
    budgets_in,
    check_budget,
    limit_fields,
    limit_remarks,
    limits_in,
    terms,
)
from console.screens.shown import Shown
from console.state.scopes import names_of, scope
from console.widgets.lines import Line
from llmgw.api.actions import Target
from llmgw.api.client import AdminClient
from llmgw.api.types import KeyCreate, KeyCreated
from llmgw.core.admission import is_band_name
from llmgw.core.errors import InvalidInput
from llmgw.core.limit_rules import check_scope_name
from llmgw.core.limits import Limits, ScopeKind

MAX_NAME_CHARS = 128
"""Longest name of a key that the server takes."""


class KeyForm(Form[KeyCreated]):
    """A name, a team, models, limits, a budget and a band."""

    TITLE: ClassVar[str] = "create a key"
    SUBMIT: ClassVar[str] = "Create"
    OF = OF

    def fields(self) -> Sequence[Field]:
        """Whose it is, what for, and how much."""
        name, models = (*self.arguments, "", "")[:2]
        state = self.host.store.state
        known = sorted(name for model in state.models.values() for name in model.spec.names)
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
            Field(
                name="team",
                label="team",
                help="its limits and budget hold for all its keys",
                value=self._team_here(),
                stand_in="none",
                offers=names_of(state, Target.TEAM),
            ),
            *limit_fields(Limits()),
            budget_field(()),
            Field(
                name="band",
                label="band",
                help="where its requests wait; ctl bands list",
                value="",
                stand_in="its team's",
            ),
        )

    def _team_here(self) -> str:
        """The team the cursor is on, or whose key it is on."""
        for subject in self.host.main.subjects()[:1]:
            if subject.target is Target.TEAM:
                return subject.key
            if subject.target is Target.KEY and subject.key in self.host.store.state.keys:
                return self.host.store.state.keys[subject.key].team or ""
        return ""

    def check(self, values: Values) -> dict[str, str]:
        """A name that is too long, a team that cannot be called so, a budget that is none."""
        wrong = check_budget(values)
        over = len(values["name"]) - MAX_NAME_CHARS
        if over > 0:
            wrong["name"] = f"is {plural(over, 'character')} too long"
        if values["band"] and not is_band_name(values["band"]):
            wrong["band"] = "is no band's name: a-z, 0-9, - and _"
        if values["team"]:
            try:
                check_scope_name(values["team"])
            except InvalidInput as error:
                wrong["team"] = error.message
        return wrong

    def remarks(self, values: Values) -> dict[str, Line]:
        """A name that is taken, a team that is made, and models that are not there; all are allowed."""
        state = self.host.store.state
        said = limit_remarks(values)
        same = sum(key.name == values["name"] and key.revoked is None for key in state.keys.values())
        if same:
            said["name"] = [(f"{plural(same, 'key')} of that name already", "warn")]
        team = scope(state, ScopeKind.TEAM, values["team"])
        if team is not None:
            said["team"] = [(terms(team.limits, team.budgets), "info")]
        elif values["team"]:
            said["team"] = [("no such team yet: it is made, without limits", "warn")]
        names = {name for model in state.models.values() for name in model.spec.names}
        strange = [name for name in listed(values["models"]) if name not in names]
        if strange:
            said["models"] = [(f"not in the catalog: {', '.join(strange)}", "warn")]
        return said

    def promise(self, values: Values) -> Line:
        """What the key may use, and how much of it."""
        models = listed(values["models"])
        line: Line = [("enter", "key"), (" makes a key for ", ""), (values["name"], "strong")]
        if not models:
            there = len(self.host.store.state.models)
            line.append((f" that may use every model, {there:,} today and those to come", ""))
        else:
            line += [(f" that may use {plural(len(models), 'model')}: ", ""), (", ".join(models), "strong")]
        return [*line, (f"; {terms(limits_in(values), budgets_in(values))}", "")]

    def send(self, api: AdminClient, values: Values) -> KeyCreated:
        """Make it."""
        return api.create_key(
            KeyCreate(
                name=values["name"],
                models=listed(values["models"]) or None,
                team=values["team"] or None,
                limits=limits_in(values),
                budgets=budgets_in(values),
                band=values["band"] or None,
            )
        )

    def done(self, result: KeyCreated) -> None:
        """Show it, once."""
        about: Line = [("Key ", ""), (result.id, "strong"), (" for ", ""), (result.name, "strong")]
        if result.team is not None:
            about += [(", team ", ""), (result.team, "strong")]
        if result.team_created:
            about.append((", which was made for it", "warn"))
        about.append((f": {terms(result.limits, result.budgets)}", "dim"))
        self.host.push_screen(Shown("a new key", [about], result.key, what="key"))
