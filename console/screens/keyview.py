"""Keys: tenants, their teams, and the keys in these: how each stands, what it may, and what it used.

By name they are a tree. Sorted by anything else, the state first of all, they are a list with the worst on top. The
keys themselves are nowhere.
"""

from collections.abc import Mapping
from typing import ClassVar

from console.figures import count, money, short_age
from console.places import Place, Subject
from console.screens.quota import bar_spans, limits_words, purse_short, purses_spans, standing_spans
from console.screens.table_view import TableView
from console.signs import signs
from console.state.cluster import ClusterState
from console.state.diff import Diff
from console.state.scopes import REVOKED, STANDINGS, Entry, entries, fullest, purses
from console.widgets.columns import Cell, Column, Seen, TableSpec
from llmgw.api.actions import Target
from llmgw.api.watch import KeyRow

_INDENT = 2


def _name(entry: Entry, _: Seen) -> Cell:
    indent = " " * (_INDENT * entry.depth)
    if entry.target is Target.KEY:
        return [(indent, ""), (entry.row.name, "dim" if entry.standing[0] == REVOKED else "strong")]
    return [(f"{indent}{entry.target.value} ", "dim"), (entry.row.name, "accent")]


def _belongs(entry: Entry, _: Seen) -> Cell:
    above = "/".join(name for name in (entry.tenant, entry.team) if name)
    if entry.target is not Target.KEY:
        keys = getattr(entry.row, "keys", 0)
        beneath = f"{keys:,} key{'' if keys == 1 else 's'}"
        return [(f"{above}  ", "") if above else ("", ""), (beneath, "dim")]
    return (above, "")


def _models(entry: Entry, _: Seen) -> Cell:
    if not isinstance(entry.row, KeyRow):
        return ("", "")
    return ("all", "dim") if entry.row.models is None else (", ".join(entry.row.models), "")


def _limits(entry: Entry, _: Seen) -> Cell:
    words = limits_words(entry.row.limits)
    return (words, "") if words else (signs().dash, "dim")


def _bar(entry: Entry, _: Seen) -> Cell:
    purse = fullest(entry.row)
    return bar_spans(purse) if purse is not None else (signs().dash, "dim")


def _spent(entry: Entry, _: Seen) -> Cell:
    purse = fullest(entry.row)
    if purse is not None:
        return (purse_short(purse), "")
    month = entry.row.spent_month_micros
    return (f"{money(month)} this month", "dim") if month else (signs().dash, "dim")


def _used(entry: Entry) -> float | None:
    return entry.row.last_used if isinstance(entry.row, KeyRow) else None


def _age(at: float | None, seen: Seen) -> str:
    return signs().dash if at is None else short_age(seen.now - at)


def _rank(entry: Entry, _: Seen) -> float:
    standing, whose = entry.standing
    return STANDINGS.index(standing) + (0.5 if whose else 0.0)


SPEC: TableSpec[Entry] = TableSpec(
    columns=(
        Column(key="name", title="name", width=18, grow=3, most=40, cell=_name, sort=lambda entry, _: entry.path),
        Column(key="state", title="state", width=14, cell=lambda entry, _: standing_spans(entry), sort=_rank),
        Column(
            key="limits",
            title="limits",
            width=18,
            grow=4,
            most=34,
            priority=3,
            cell=_limits,
            whole=lambda entry, _: (limits_words(entry.row.limits), ""),
        ),
        Column(
            key="budget",
            title="budget",
            width=11,
            descending=True,
            cell=_bar,
            sort=lambda entry, _: purse.share if (purse := fullest(entry.row)) is not None else None,
        ),
        Column(
            key="spent",
            title="spent",
            width=24,
            grow=1,
            most=32,
            descending=True,
            priority=4,
            cell=_spent,
            sort=lambda entry, _: entry.row.spent_month_micros,
            whole=lambda entry, _: purses_spans(purses(entry.row)),
        ),
        Column(key="team", title="belongs to", width=14, grow=2, most=36, priority=6, cell=_belongs),
        Column(
            key="models",
            title="models",
            width=8,
            grow=8,
            most=48,
            priority=7,
            cell=_models,
        ),
        Column(
            key="requests",
            title="requests",
            width=8,
            align="right",
            descending=True,
            priority=1,
            cell=lambda entry, _: (count(entry.row.requests), ""),
            sort=lambda entry, _: entry.row.requests,
        ),
        Column(
            key="input",
            title="tok in",
            width=7,
            align="right",
            descending=True,
            priority=8,
            cell=lambda entry, _: (count(entry.row.input_tokens), ""),
            sort=lambda entry, _: entry.row.input_tokens,
        ),
        Column(
            key="output",
            title="tok out",
            width=7,
            align="right",
            descending=True,
            priority=5,
            cell=lambda entry, _: (count(entry.row.output_tokens), ""),
            sort=lambda entry, _: entry.row.output_tokens,
        ),
        Column(
            key="used",
            title="used",
            width=5,
            align="right",
            descending=True,
            cell=lambda entry, seen: (_age(_used(entry), seen), "" if _used(entry) else "dim"),
            sort=lambda entry, _: _used(entry),
        ),
        Column(
            key="made",
            title="made",
            width=5,
            align="right",
            descending=True,
            priority=9,
            cell=lambda entry, seen: (_age(entry.row.created, seen), "dim"),
            sort=lambda entry, _: entry.row.created,
        ),
        Column(
            key="id",
            title="id",
            width=16,
            priority=10,
            cell=lambda entry, _: (entry.key if entry.target is Target.KEY else "", "dim"),
        ),
    ),
    words=lambda entry: f"{entry.row.name} {entry.key} {entry.team} {entry.tenant} {_words(entry)}",
    facts=lambda entry: {
        "state": " ".join(reversed(entry.standing)).strip(),
        "kind": entry.target.value,
        "team": entry.row.name if entry.target is Target.TEAM else entry.team,
        "tenant": entry.row.name if entry.target is Target.TENANT else entry.tenant,
        "model": _words(entry) or ("all" if entry.target is Target.KEY else ""),
    },
    sort="name",
)


def _words(entry: Entry) -> str:
    return " ".join(entry.row.models or ()) if isinstance(entry.row, KeyRow) else ""


class Keys(TableView[Entry]):
    """Tenants, teams and API keys."""

    NOUN: ClassVar[str] = "keys"
    TARGET: ClassVar[Target] = Target.KEY
    TOPIC: ClassVar[str] = "keys"
    EMPTY: ClassVar[tuple[str, str]] = ("No key has been made yet.", "n makes one; it is shown once")

    def __init__(self, place: Place) -> None:
        super().__init__(place)
        self._entries: dict[str, Entry] = {}
        self._changed: frozenset[str] = frozenset()
        """What differs since the last time."""

    def table_spec(self) -> TableSpec[Entry]:
        """Its columns."""
        return SPEC

    def rows(self, state: ClusterState) -> Mapping[str, Entry]:
        """Keys and what is above them, as they were arranged last."""
        return self._entries

    def changed_keys(self, state: ClusterState, diff: Diff) -> frozenset[str]:
        """What trouble above a key does to it counts too."""
        return self._changed

    def update(self, seen: Seen, diff: Diff | None) -> None:
        """Arrange them anew where anything of them is another."""
        self._changed = frozenset()
        if diff is None or diff.touches("keys", "scopes"):
            self._arrange(seen.state)
        super().update(seen, diff)

    def _arrange(self, state: ClusterState) -> None:
        before = self._entries
        self._entries = entries(state, before, tree=self.table.sorted_by[0] == "name")
        both = before.keys() | self._entries.keys()
        self._changed = frozenset(key for key in both if before.get(key) is not self._entries.get(key))

    def on_table_arranged(self) -> None:
        """A tree by name, a list by anything else."""
        seen = self.desk.seen()
        self._arrange(seen.state)
        if self._changed:
            self.table.update_rows(self._entries, seen, self._changed)
        super().on_table_arranged()

    def summary(self, state: ClusterState) -> list[tuple[str, str]]:
        """How many are good, and how many are not."""
        standing = [entry.standing[0] for entry in self._entries.values() if entry.target is Target.KEY]
        good, revoked = standing.count("good"), standing.count(REVOKED)
        refused = sum(each in ("spent", "shut") for each in standing)
        near = standing.count("near")
        return [
            (f"{good:,} good", "$success") if good else ("", ""),
            (f"{refused:,} refused", "bold $error") if refused else ("", ""),
            (f"{near:,} near its budget", "$warning") if near else ("", ""),
            (f"{revoked:,} revoked", "$tone-dim") if revoked else ("", ""),
        ]

    def subject_of(self, key: str) -> Subject:
        """A key by its id, teams and tenants by their names."""
        entry = self._entries[key]
        return Subject(target=entry.target, key=entry.key)
