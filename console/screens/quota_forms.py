"""What a key, a team or a tenant may do, changed: its limits, its budget, and what it belongs to."""

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

from console.figures import money, plural
from console.places import Subject
from console.screens.fields import Field, whole
from console.screens.form import Form, Values
from console.screens.quota import THIS, limits_words
from console.screens.quota_fields import OF, budget_field, budgets_in, check_budget, limit_fields, limit_remarks, terms
from console.screens.quota_fields import limits_in as typed_limits
from console.screens.view import row_of
from console.state.scopes import KINDS, Purse, Row, chain, keys_beneath, names_of, scope, target_of
from console.widgets.lines import Line
from llmgw.api.actions import Target
from llmgw.api.client import AdminClient
from llmgw.api.types import LimitsChange, Result
from llmgw.api.watch import KeyRow, ScopeRow
from llmgw.core.limits import Budget, Limits, Period
from llmgw.core.money import budgets_text

if TYPE_CHECKING:
    from console.app import Console


class OneForm(Form[Result]):
    """A form about one key, team or tenant."""

    OF = OF

    def __init__(self, console: "Console", subjects: tuple[Subject, ...], arguments: tuple[str, ...]) -> None:
        self.subject = subjects[0]
        row = row_of(console.store.state, self.subject)
        self.row: Row | None = row if isinstance(row, KeyRow | ScopeRow) else None
        self.called = self.row.name if self.row is not None else self.subject.key
        super().__init__(console, subjects, arguments)
        self._title = f"{self.TITLE} of {self.subject.target} {self.called}"

    def on_mount(self) -> None:
        """Typing replaces the first value."""
        super().on_mount()
        first = next(iter(self.rows.values())).input
        self.set_focus(first)
        first.select_all()

    def done(self, result: Result) -> None:
        """The server's sentence."""
        self.host.toast(result.message)


class LimitsForm(OneForm):
    """Requests and tokens a minute, and requests at once."""

    TITLE: ClassVar[str] = "limits"
    SUBMIT: ClassVar[str] = "Set"

    @property
    def before(self) -> Limits:
        """What holds."""
        return self.row.limits if self.row is not None else Limits()

    def fields(self) -> Sequence[Field]:
        """One each."""
        return limit_fields(self.before)

    def remarks(self, values: Values) -> dict[str, Line]:
        """What refuses everything, and what somebody above allows less of."""
        said = limit_remarks(values)
        for name, least, whose in self._above():
            value = whole(values[name])
            if name not in said and (value is None or value > least):
                said[name] = [(f"{whose} allows {least:,}", "info")]
        return said

    def _above(self) -> list[tuple[str, int, str]]:
        links = chain(self.host.store.state, self.row)[1:] if self.row is not None else ()
        found: dict[str, tuple[int, str]] = {}
        for link in links:
            for name in ("rpm", "tpm", "parallel"):
                value: int | None = getattr(link.limits, name)
                if value is not None and value < found.get(name, (value + 1, ""))[0]:
                    found[name] = (value, f"{target_of(link).value} {link.name}")
        return [(name, *pair) for name, pair in found.items()]

    def promise(self, values: Values) -> Line:
        """Before and after."""
        after = typed_limits(values)
        if after == self.before:
            return [(f"as it is: {limits_words(after) or 'no limits'}", "dim")]
        line: Line = [
            ("enter", "key"),
            (f" holds {self.called} to ", ""),
            (limits_words(after) or "no limits", "strong"),
        ]
        line.append((f"; so far {limits_words(self.before) or 'no limits'}", "dim"))
        return [*line, *_shared(self.host, self.subject)]

    def send(self, api: AdminClient, values: Values) -> Result:
        """Set all three."""
        after = typed_limits(values)
        change = LimitsChange(rpm=after.rpm, tpm=after.tpm, parallel=after.parallel)
        if self.subject.target in KINDS:
            return api.scope_limits(KINDS[self.subject.target], self.subject.key, change)
        return api.key_limits(self.subject.key, change)


class BudgetForm(OneForm):
    """The whole set of budgets."""

    TITLE: ClassVar[str] = "budget"
    SUBMIT: ClassVar[str] = "Set"

    @property
    def before(self) -> tuple[Budget, ...]:
        """What holds."""
        return self.row.budgets if self.row is not None else ()

    def fields(self) -> Sequence[Field]:
        """All in one field; an argument of the `:` line stands in for what is."""
        field = budget_field(self.before)
        return (replace(field, value=self.arguments[0]) if self.arguments else field,)

    def check(self, values: Values) -> dict[str, str]:
        """A budget that is none."""
        return check_budget(values)

    def remarks(self, values: Values) -> dict[str, Line]:
        """What is spent already."""
        if check_budget(values) or self.row is None:
            return {}
        spent = {Period.DAY: self.row.spent_day_micros, Period.MONTH: self.row.spent_month_micros}
        line: Line = []
        for budget in budgets_in(values):
            purse = Purse(budget=budget, spent_micros=spent[budget.period])
            line += [(", ", "dim")] if line else []
            if purse.share >= 1:
                line.append((f"{money(purse.spent_micros)} are spent {THIS[budget.period]}: refused at once", "warn"))
            else:
                line.append((f"{money(purse.left_micros)} left {THIS[budget.period]}", "info"))
        return {"budget": line} if line else {}

    def promise(self, values: Values) -> Line:
        """Before and after."""
        after = budgets_in(values)
        if after == self.before:
            return [(f"as it is: {budgets_text(after)}", "dim")]
        line: Line = [("enter", "key"), (f" lets {self.called} spend ", "")]
        line.append((budgets_text(after) if after else "without a budget", "strong"))
        return [*line, (f"; so far {budgets_text(self.before)}", "dim"), *_shared(self.host, self.subject)]

    def send(self, api: AdminClient, values: Values) -> Result:
        """Set it."""
        after = budgets_in(values)
        if self.subject.target in KINDS:
            return api.scope_budget(KINDS[self.subject.target], self.subject.key, after)
        return api.key_budget(self.subject.key, after)


class MoveForm(OneForm):
    """The team of a key, or the tenant of a team."""

    TITLE: ClassVar[str] = "place"
    SUBMIT: ClassVar[str] = "Move"

    @property
    def whither(self) -> Target:
        """What it is put under."""
        return Target.TEAM if self.subject.target is Target.KEY else Target.TENANT

    @property
    def before(self) -> str:
        """Where it is."""
        if isinstance(self.row, KeyRow):
            return self.row.team or ""
        return (self.row.tenant or "") if self.row is not None else ""

    def fields(self) -> Sequence[Field]:
        """Where to."""
        kind = self.whither.value
        return (
            Field(
                name=kind,
                label=kind,
                help=f"empty for no {kind}",
                value=self.arguments[0] if self.arguments else self.before,
                stand_in="none",
                offers=names_of(self.host.store.state, self.whither),
            ),
        )

    def _there(self, values: Values) -> ScopeRow | None:
        return scope(self.host.store.state, KINDS[self.whither], self._wanted(values))

    def _wanted(self, values: Values) -> str:
        word = values[self.whither.value]
        return "" if word.lower() == "none" else word

    def check(self, values: Values) -> dict[str, str]:
        """One that is not there."""
        kind = self.whither.value
        if self._wanted(values) and self._there(values) is None:
            known = names_of(self.host.store.state, self.whither)
            listed = f"there is {', '.join(known[:4])}" if known else f"no {kind} has been made"
            return {kind: f"no {kind} is called so; {listed}"}
        return {}

    def remarks(self, values: Values) -> dict[str, Line]:
        """What holds there."""
        there = self._there(values)
        return {self.whither.value: [(terms(there.limits, there.budgets), "info")]} if there is not None else {}

    def promise(self, values: Values) -> Line:
        """From where to where, and what stays."""
        kind, wanted = self.whither.value, self._wanted(values)
        if wanted == self.before:
            return [(f"as it is: {wanted or f'no {kind}'}", "dim")]
        line: Line = [("enter", "key"), (f" puts {self.called} under ", ""), (wanted or f"no {kind}", "strong")]
        if self.before:
            line.append((f"; what it spent so far stays with {self.before}", "dim"))
        return line

    def send(self, api: AdminClient, values: Values) -> Result:
        """Move it."""
        wanted = self._wanted(values) or None
        if self.subject.target is Target.KEY:
            return api.move_key(self.subject.key, wanted)
        return api.move_team(self.subject.key, wanted)


def _shared(console: "Console", subject: Subject) -> Line:
    """How many keys a change of a team or a tenant is for."""
    if subject.target not in KINDS:
        return []
    beneath = keys_beneath(console.store.state, subject.target, subject.key)
    living = sum(key.revoked is None for key in beneath)
    return [(f"; for {plural(living, 'key')} together", "")]
