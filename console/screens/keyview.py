"""Keys: who may ask, for which models, and how much they did. The keys themselves are nowhere."""

from typing import ClassVar

from console.figures import count, short_age
from console.places import Place, Subject
from console.screens.table_view import TableView
from console.signs import signs
from console.state.cluster import ClusterState
from console.widgets.columns import Cell, Column, Seen, TableSpec
from llmgw.api.actions import Target
from llmgw.api.watch import KeyRow


def _state(key: KeyRow, _: Seen) -> Cell:
    if key.revoked is not None:
        return [(f"{signs().stopped} ", "dim"), ("revoked", "dim")]
    return [(f"{signs().live} ", "good"), ("good", "good")]


def _models(key: KeyRow, _: Seen) -> Cell:
    return ("all", "dim") if key.models is None else (", ".join(key.models), "")


def _age(at: float | None, seen: Seen) -> str:
    return signs().dash if at is None else short_age(seen.now - at)


SPEC: TableSpec[KeyRow] = TableSpec(
    columns=(
        Column(
            key="name",
            title="name",
            width=16,
            grow=3,
            most=40,
            cell=lambda key, _: (key.name, "dim" if key.revoked is not None else "strong"),
            sort=lambda key, _: key.name.casefold(),
        ),
        Column(
            key="state", title="state", width=9, cell=_state, sort=lambda key, _: 0.0 if key.revoked is None else 1.0
        ),
        Column(key="models", title="models", width=10, grow=3, most=48, priority=2, cell=_models),
        Column(
            key="requests",
            title="requests",
            width=8,
            align="right",
            descending=True,
            cell=lambda key, _: (count(key.requests), ""),
            sort=lambda key, _: key.requests,
        ),
        Column(
            key="input",
            title="tok in",
            width=7,
            align="right",
            descending=True,
            priority=3,
            cell=lambda key, _: (count(key.input_tokens), ""),
            sort=lambda key, _: key.input_tokens,
        ),
        Column(
            key="output",
            title="tok out",
            width=7,
            align="right",
            descending=True,
            priority=1,
            cell=lambda key, _: (count(key.output_tokens), ""),
            sort=lambda key, _: key.output_tokens,
        ),
        Column(
            key="used",
            title="used",
            width=5,
            align="right",
            descending=True,
            cell=lambda key, seen: (_age(key.last_used, seen), "" if key.last_used else "dim"),
            sort=lambda key, _: key.last_used,
        ),
        Column(
            key="made",
            title="made",
            width=5,
            align="right",
            descending=True,
            priority=4,
            cell=lambda key, seen: (_age(key.created, seen), "dim"),
            sort=lambda key, _: key.created,
        ),
        Column(key="id", title="id", width=16, priority=5, cell=lambda key, _: (key.id, "dim")),
    ),
    words=lambda key: f"{key.name} {key.id} {' '.join(key.models or ())}",
    facts=lambda key: {
        "state": "good" if key.revoked is None else "revoked",
        "model": " ".join(key.models) if key.models is not None else "all",
    },
    sort="state",
)


class Keys(TableView[KeyRow]):
    """API keys."""

    NOUN: ClassVar[str] = "keys"
    TARGET: ClassVar[Target] = Target.KEY
    TOPIC: ClassVar[str] = "keys"
    EMPTY: ClassVar[tuple[str, str]] = ("No key has been made yet.", "n makes one; it is shown once")

    def table_spec(self) -> TableSpec[KeyRow]:
        """Its columns."""
        return SPEC

    def summary(self, state: ClusterState) -> list[tuple[str, str]]:
        """How many are good."""
        good = sum(key.revoked is None for key in state.keys.values())
        revoked = len(state.keys) - good
        return [
            (f"{good:,} good", "$success") if good else ("", ""),
            (f"{revoked:,} revoked", "$tone-dim") if revoked else ("", ""),
        ]

    def open_subject(self, subject: Subject) -> None:
        """All of it, as YAML."""
        self.desk.go(Place(view="yaml", subject=subject))
