"""Audit: who changed what, the newest first."""

from typing import ClassVar

from console.figures import moment, plural, short_age
from console.places import Place, Subject
from console.screens.changes import describe
from console.screens.table_view import TableView
from console.state.cluster import ClusterState
from console.widgets.columns import Cell, Column, Seen, TableSpec
from llmgw.api.actions import Target
from llmgw.api.audit_words import target_called
from llmgw.api.watch import AuditRow

KEPT = 200
"""Entries the feed brings; `ctl audit` has the older ones."""
_REMOVING = ("remove", "revoke", "stop", "cordon")


def _action(entry: AuditRow, _: Seen) -> Cell:
    verb = entry.action.rpartition(".")[2]
    return (entry.action, "warn" if verb in _REMOVING else "info")


SPEC: TableSpec[AuditRow] = TableSpec(
    columns=(
        Column(
            key="at",
            title="when",
            width=5,
            align="right",
            descending=True,
            cell=lambda entry, seen: (short_age(seen.now - entry.at), "dim"),
            sort=lambda entry, _: entry.at,
        ),
        Column(
            key="moment",
            title="at",
            width=19,
            priority=3,
            cell=lambda entry, _: (moment(entry.at), "dim"),
        ),
        Column(
            key="actor",
            title="who",
            width=12,
            grow=1,
            most=28,
            cell=lambda entry, _: (entry.actor, "strong"),
            sort=lambda entry, _: entry.actor.casefold(),
        ),
        Column(
            key="action",
            title="did",
            width=15,
            grow=1,
            most=22,
            cell=_action,
            sort=lambda entry, _: entry.action,
        ),
        Column(
            key="target",
            title="to",
            width=14,
            grow=2,
            most=44,
            cell=lambda entry, _: (target_called(entry), ""),
            sort=lambda entry, _: entry.target.casefold(),
        ),
        Column(
            key="change",
            title="what changed",
            width=16,
            wish=40,
            grow=5,
            priority=1,
            cell=lambda entry, _: (describe(entry), "dim"),
        ),
    ),
    words=lambda entry: f"{entry.actor} {entry.action} {target_called(entry)}",
    facts=lambda entry: {"actor": entry.actor, "action": entry.action, "target": entry.target},
    sort="at",
    descending=True,
    markable=False,
    arriving=True,
)


class Audit(TableView[AuditRow]):
    """The newest changes."""

    NOUN: ClassVar[str] = "audit"
    TARGET: ClassVar[Target] = Target.CLUSTER
    TOPIC: ClassVar[str] = "audit"
    EMPTY: ClassVar[tuple[str, str]] = ("Nothing has been changed yet.", "")

    def table_spec(self) -> TableSpec[AuditRow]:
        """Its columns."""
        return SPEC

    def summary(self, state: ClusterState) -> list[tuple[str, str]]:
        """How many people, and that there may be more."""
        actors = len({entry.actor for entry in state.audit.values()})
        full = len(state.audit) >= KEPT
        return [
            (plural(actors, "actor") if actors else "", "$tone-dim"),
            (f"the newest {KEPT}; `ctl audit` has all" if full else "", "$tone-dim"),
        ]

    def open_subject(self, subject: Subject, *, row: str = "") -> None:
        """Before and after."""
        self.desk.go(Place(view="change", subject=subject))

    def copy_text(self) -> str:
        """The row as it reads."""
        key = self.table.cursor_key
        return self.table.row_text(key) if key is not None else ""
