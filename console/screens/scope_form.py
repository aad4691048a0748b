"""Create a team or a tenant: its name, and what all keys beneath it may do and spend together."""

from collections.abc import Sequence
from typing import ClassVar

from console.places import Place, Subject
from console.screens.arriving import go_when_there
from console.screens.fields import Field
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
from console.state.scopes import KINDS, names_of, scope
from console.widgets.lines import Line
from llmgw.api.actions import Target
from llmgw.api.client import AdminClient
from llmgw.api.types import Result, TeamCreate, TenantCreate
from llmgw.core.errors import InvalidInput
from llmgw.core.limit_rules import check_scope_name
from llmgw.core.limits import Limits, ScopeKind


class ScopeForm(Form[Result]):
    """A name, limits and a budget."""

    KIND: ClassVar[Target] = Target.TENANT
    TITLE: ClassVar[str] = "create a tenant"
    SUBMIT: ClassVar[str] = "Create"
    BENEATH: ClassVar[str] = "teams"
    OF = OF

    def fields(self) -> Sequence[Field]:
        """What it is called, and how much."""
        name = self.arguments[0] if self.arguments else ""
        return (
            Field(name="name", label="name", help="letters, digits and ._-", value=name, required=True),
            *self.placing(),
            *limit_fields(Limits()),
            budget_field(()),
        )

    def placing(self) -> Sequence[Field]:
        """What it is put under."""
        return ()

    def check(self, values: Values) -> dict[str, str]:
        """A name that is none or is taken, and a budget that is none."""
        wrong = check_budget(values)
        try:
            check_scope_name(values["name"])
        except InvalidInput as error:
            wrong["name"] = error.message
        if scope(self.host.store.state, KINDS[self.KIND], values["name"]) is not None:
            wrong["name"] = f"is a {self.KIND.value} already"
        return wrong

    def remarks(self, values: Values) -> dict[str, Line]:
        """What refuses everything."""
        return limit_remarks(values)

    def promise(self, values: Values) -> Line:
        """What is held to what."""
        line: Line = [("enter", "key"), (f" makes the {self.KIND.value} ", ""), (values["name"], "strong")]
        held = terms(limits_in(values), budgets_in(values))
        return [*line, (f"; all its {self.BENEATH} together have {held}", "")]

    def send(self, api: AdminClient, values: Values) -> Result:
        """Make it."""
        return api.create_tenant(
            TenantCreate(name=values["name"], limits=limits_in(values), budgets=budgets_in(values))
        )

    def done(self, result: Result) -> None:
        """The server's sentence, and its page."""
        self.host.toast(result.message)
        subject = Subject(target=self.KIND, key=self.values()["name"])
        go_when_there(self.host, Place(view=self.KIND.value, subject=subject))


class TenantForm(ScopeForm):
    """A tenant."""


class TeamForm(ScopeForm):
    """A team, which may belong to a tenant."""

    KIND: ClassVar[Target] = Target.TEAM
    TITLE: ClassVar[str] = "create a team"
    BENEATH: ClassVar[str] = "keys"

    def placing(self) -> Sequence[Field]:
        """Its tenant: the one the cursor is on at first."""
        here = [subject.key for subject in self.host.main.subjects()[:1] if subject.target is Target.TENANT]
        return (
            Field(
                name="tenant",
                label="tenant",
                help="its limits and budget hold for all its teams",
                value=here[0] if here else "",
                stand_in="none",
                offers=names_of(self.host.store.state, Target.TENANT),
            ),
        )

    def check(self, values: Values) -> dict[str, str]:
        """A tenant that is not there, too."""
        wrong = super().check(values)
        if values["tenant"] and scope(self.host.store.state, ScopeKind.TENANT, values["tenant"]) is None:
            wrong["tenant"] = "no tenant is called so"
        return wrong

    def remarks(self, values: Values) -> dict[str, Line]:
        """What holds for the tenant."""
        said = super().remarks(values)
        tenant = scope(self.host.store.state, ScopeKind.TENANT, values["tenant"])
        if tenant is not None:
            said["tenant"] = [(terms(tenant.limits, tenant.budgets), "info")]
        return said

    def send(self, api: AdminClient, values: Values) -> Result:
        """Make it."""
        return api.create_team(
            TeamCreate(
                name=values["name"],
                tenant=values["tenant"] or None,
                limits=limits_in(values),
                budgets=budgets_in(values),
            )
        )
