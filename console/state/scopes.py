"""Keys, teams and tenants: who is above whom, what is left to spend, and how each of them stands.

Pure. Whoever is refused because of somebody above is told so: a key under a team that has spent its budget is no good
key.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from console.state.cluster import ClusterState
from llmgw.api.actions import Target
from llmgw.api.watch import KeyRow, ScopeRow, scope_key
from llmgw.core.limits import Budget, Period, ScopeKind

NEAR = 0.9
"""Share of a budget from which on somebody should know."""
KINDS = {Target.TEAM: ScopeKind.TEAM, Target.TENANT: ScopeKind.TENANT}
"""Targets whose rows are scopes, which are found by their names."""
Row = KeyRow | ScopeRow

GOOD, NEARLY, SHUT, SPENT, REVOKED = "good", "near", "shut", "spent", "revoked"
"""How one stands: all is well; a budget is nearly spent; a limit of 0 refuses everything; a budget is spent; for good
refused."""
STANDINGS = (SPENT, SHUT, NEARLY, GOOD, REVOKED)
"""Worst first; what is over is last."""


@dataclass(frozen=True, kw_only=True)
class Purse:
    """A budget and what of it is spent."""

    budget: Budget
    spent_micros: int

    @property
    def share(self) -> float:
        """What is spent of it, 1 being all; a budget of nothing is spent."""
        amount = self.budget.amount_micros
        return self.spent_micros / amount if amount > 0 else 1.0

    @property
    def left_micros(self) -> int:
        """What is left of it."""
        return max(0, self.budget.amount_micros - self.spent_micros)


@dataclass(frozen=True, kw_only=True)
class Entry:
    """A key, a team or a tenant with its place among the others."""

    target: Target
    row: Row
    team: str = ""
    tenant: str = ""
    """What is above it."""
    above: tuple[str, str] = ("", "")
    """Whose trouble it shares, `team` or `tenant`, and how that one stands."""
    depth: int = 0
    """How far in it stands in the tree."""
    path: str = ""
    """Sorts the tree: everything right behind what it belongs to."""

    @property
    def key(self) -> str:
        """As subjects name it: a key's id, a team's or a tenant's name."""
        return self.row.id if isinstance(self.row, KeyRow) else self.row.name

    @property
    def standing(self) -> tuple[str, str]:
        """How it stands, and whose doing that is: empty for its own, else `team` or `tenant`."""
        own = standing_of(self.row)
        whose, theirs = self.above
        if theirs and STANDINGS.index(theirs) < STANDINGS.index(own) and own != REVOKED:
            return theirs, whose
        return own, ""


def purses(row: Row) -> tuple[Purse, ...]:
    """Its budgets with what is spent of each."""
    spent = {Period.DAY: row.spent_day_micros, Period.MONTH: row.spent_month_micros}
    return tuple(Purse(budget=budget, spent_micros=spent[budget.period]) for budget in row.budgets)


def fullest(row: Row) -> Purse | None:
    """The budget that is spent first, by its share."""
    return max(purses(row), key=lambda purse: purse.share, default=None)


def standing_of(row: Row) -> str:
    """How it stands by itself."""
    if isinstance(row, KeyRow) and row.revoked is not None:
        return REVOKED
    purse = fullest(row)
    share = purse.share if purse is not None else 0.0
    if share >= 1:
        return SPENT
    if 0 in (row.limits.rpm, row.limits.tpm, row.limits.parallel):
        return SHUT
    return NEARLY if share >= NEAR else GOOD


def scope(state: ClusterState, kind: ScopeKind, name: str | None) -> ScopeRow | None:
    """A team or a tenant, if the feed has told of it."""
    return state.scopes.get(scope_key(kind, name)) if name else None


def chain(state: ClusterState, row: Row) -> tuple[Row, ...]:
    """The row and everything above it, nearest first."""
    team = row if isinstance(row, ScopeRow) else scope(state, ScopeKind.TEAM, row.team)
    found: list[Row] = [row] if team is None or team is row else [row, team]
    tenant = scope(state, ScopeKind.TENANT, team.tenant) if team is not None else None
    return (*found, tenant) if tenant is not None else tuple(found)


def target_of(row: Row) -> Target:
    """What actions call it."""
    return Target.KEY if isinstance(row, KeyRow) else Target(row.kind.value)


def entry_of(state: ClusterState, row: Row) -> Entry:
    """One row's entry, as it is in a list."""
    above = chain(state, row)[1:]
    names = {target_of(link): link.name for link in above}
    trouble = {scope_key(link.kind, link.name): standing_of(link) for link in above if isinstance(link, ScopeRow)}
    team, tenant = names.get(Target.TEAM, ""), names.get(Target.TENANT, "")
    if isinstance(row, KeyRow):
        team = row.team or ""
    shared = _above(trouble, team, tenant)
    return Entry(target=target_of(row), row=row, team=team, tenant=tenant, above=shared)


def keys_beneath(state: ClusterState, target: Target, name: str) -> tuple[KeyRow, ...]:
    """The keys of a team or a tenant, revoked ones too."""
    teams = {name} if target is Target.TEAM else {row.name for row in _teams(state) if row.tenant == name}
    return tuple(key for key in state.keys.values() if key.team in teams)


def _teams(state: ClusterState) -> Iterable[ScopeRow]:
    return (row for row in state.scopes.values() if row.kind is ScopeKind.TEAM)


def entry_key(target: Target, key: str) -> str:
    """Key of an entry, as the feed has it: an id, which has no colon, or `team:NAME`."""
    return scope_key(KINDS[target], key) if target in KINDS else key


def entries(state: ClusterState, before: Mapping[str, Entry], *, tree: bool) -> dict[str, Entry]:
    """Everything there is; what reads as it did in `before` is the same object. Without `tree` nothing stands in."""
    trouble = {key: standing_of(row) for key, row in state.scopes.items()}
    found: dict[str, Entry] = {}
    for row in state.scopes.values():
        above = ("", "")
        if row.kind is ScopeKind.TEAM and row.tenant:
            above = ("tenant", trouble.get(scope_key(ScopeKind.TENANT, row.tenant), ""))
        _keep(found, before, row, row.tenant or "", above, tree=tree)
    tenants = {row.name: row.tenant or "" for row in _teams(state)}
    for key in state.keys.values():
        tenant = tenants.get(key.team or "", "")
        _keep(found, before, key, tenant, _above(trouble, key.team, tenant), tree=tree)
    return found


def _above(trouble: Mapping[str, str], team: str | None, tenant: str) -> tuple[str, str]:
    """The worst of what stands above a key, the nearer one where both are alike."""
    found = [
        (whose, trouble[of])
        for whose, of in (
            ("team", scope_key(ScopeKind.TEAM, team or "")),
            ("tenant", scope_key(ScopeKind.TENANT, tenant)),
        )
        if of in trouble
    ]
    return min(found, key=lambda pair: STANDINGS.index(pair[1]), default=("", ""))


def _keep(
    found: dict[str, Entry],
    before: Mapping[str, Entry],
    row: Row,
    tenant: str,
    above: tuple[str, str],
    *,
    tree: bool,
) -> None:
    target = target_of(row)
    team = (row.team or "") if isinstance(row, KeyRow) else ""
    depth = (bool(tenant) + bool(team)) if tree else 0
    name = entry_key(target, row.id if isinstance(row, KeyRow) else row.name)
    old = before.get(name)
    if (
        old is not None
        and old.row is row
        and (old.tenant, old.team, old.above, old.depth) == (tenant, team, above, depth)
    ):
        found[name] = old
    else:
        path = _path(row, team, tenant)
        found[name] = Entry(target=target, row=row, team=team, tenant=tenant, above=above, depth=depth, path=path)


def _path(row: Row, team: str, tenant: str) -> str:
    """Tenants, then teams of none, then keys of none; what is revoked last among its like."""
    if isinstance(row, KeyRow):
        own = f"{int(row.revoked is not None)}{row.name.casefold()}\0{row.id}"
        parts = ["0", tenant, team, own] if tenant else ["1", team, own] if team else ["2", own]
    elif row.kind is ScopeKind.TENANT:
        parts = ["0", row.name]
    else:
        parts = ["0", tenant, row.name] if tenant else ["1", row.name]
    return "\0".join(parts)


def names_of(state: ClusterState, target: Target) -> list[str]:
    """What the `:` line completes to for a target: teams and tenants by name, all others by their key."""
    if target in KINDS:
        return sorted(row.name for row in state.scopes.values() if row.kind is KINDS[target])
    if target is Target.KEY:
        return sorted({*state.keys, *(key.name for key in state.keys.values() if key.revoked is None)})
    return []


def find(state: ClusterState, target: Target, word: str) -> str | None:
    """Key of the subject that `word` names: an id, a team's or tenant's name, the name of one living key."""
    if target in KINDS:
        return word if scope(state, KINDS[target], word) is not None else None
    if word in state.keys:
        return word
    same = [key.id for key in state.keys.values() if key.name == word and key.revoked is None]
    return same[0] if len(same) == 1 else None
