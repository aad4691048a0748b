"""Models: the catalog, and what became of each entry."""

from typing import ClassVar

from console.figures import count, millis
from console.screens.states import state_cell, state_rank
from console.screens.table_view import TableView
from console.state.cluster import ClusterState
from console.state.diff import Diff
from console.widgets.columns import Cell, Column, Seen, TableSpec
from llmgw.api.actions import Target
from llmgw.api.watch import ModelRow, TrafficRow

NO_TRAFFIC = TrafficRow()


def traffic_of(model: ModelRow, seen: Seen) -> TrafficRow:
    """What the model is asked."""
    return seen.state.traffic.get(model.name, NO_TRAFFIC)


def _ready(model: ModelRow, _: Seen) -> Cell:
    tone = "" if model.ready >= model.wanted else "warn"
    return (f"{model.ready}/{model.wanted}", tone)


def _where(model: ModelRow, seen: Seen) -> Cell:
    nodes = list(dict.fromkeys(replica.node for replica in seen.state.replicas_of(model.name)))
    text = ", ".join(nodes[:3]) + (f" +{len(nodes) - 3}" if len(nodes) > 3 else "")
    return (text, "dim")


def _context(model: ModelRow, _: Seen) -> Cell:
    return [(f"{model.context_length:,}" if model.context_length else "", ""), (f"/{model.max_output:,}", "dim")]


def _said(model: ModelRow, _: Seen) -> Cell:
    return (model.message or model.source, "" if model.message else "dim")


SPEC: TableSpec[ModelRow] = TableSpec(
    columns=(
        Column(
            key="name",
            title="model",
            width=18,
            grow=3,
            most=44,
            cell=lambda model, _: (model.name, "strong"),
            sort=lambda model, _: model.name.casefold(),
        ),
        Column(
            key="state",
            title="state",
            width=10,
            cell=lambda model, _: state_cell(model.state),
            sort=lambda model, _: state_rank(model.state),
        ),
        Column(key="ready", title="ready", width=5, align="right", cell=_ready, sort=lambda model, _: model.ready),
        Column(
            key="requests",
            title="req/s",
            width=6,
            align="right",
            descending=True,
            cell=lambda model, seen: (count(traffic_of(model, seen).requests_per_s), ""),
            sort=lambda model, seen: traffic_of(model, seen).requests_per_s,
        ),
        Column(
            key="tokens",
            title="tok/s",
            width=6,
            align="right",
            descending=True,
            priority=1,
            cell=lambda model, seen: (count(traffic_of(model, seen).output_tokens_per_s), ""),
            sort=lambda model, seen: traffic_of(model, seen).output_tokens_per_s,
        ),
        Column(
            key="first",
            title="p95",
            width=7,
            align="right",
            descending=True,
            priority=2,
            cell=lambda model, seen: (millis(traffic_of(model, seen).first_token_p95_ms), ""),
            sort=lambda model, seen: traffic_of(model, seen).first_token_p95_ms,
        ),
        Column(
            key="open",
            title="open",
            width=5,
            align="right",
            descending=True,
            priority=3,
            cell=lambda model, seen: (f"{traffic_of(model, seen).open_requests:,}", ""),
            sort=lambda model, seen: traffic_of(model, seen).open_requests,
        ),
        Column(
            key="context",
            title="ctx/answer",
            width=13,
            align="right",
            priority=6,
            cell=_context,
            sort=lambda model, _: model.context_length,
        ),
        Column(key="where", title="where", width=10, grow=2, most=30, priority=5, cell=_where),
        Column(key="said", title="last word", width=16, grow=5, priority=4, cell=_said),
    ),
    words=lambda model: f"{model.name} {model.source} {model.state} {model.message} {' '.join(model.spec.aliases)}",
    sort="state",
    facts=lambda model: {"state": model.state, "source": model.source, "engine": _engines(model), "gpu": _cards(model)},
)


def _engines(model: ModelRow) -> str:
    return " ".join(profile.engine for profile in model.spec.profiles)


def _cards(model: ModelRow) -> str:
    return " ".join(profile.gpu_class or "cpu" for profile in model.spec.profiles)


class Models(TableView[ModelRow]):
    """The catalog."""

    NOUN: ClassVar[str] = "models"
    TARGET: ClassVar[Target] = Target.MODEL
    TOPIC: ClassVar[str] = "models"
    ALSO: ClassVar[tuple[str, ...]] = ("traffic",)
    EMPTY: ClassVar[tuple[str, str]] = ("No model is served yet.", "s serves one: from Hugging Face, a file or a URL")

    def table_spec(self) -> TableSpec[ModelRow]:
        """Its columns."""
        return SPEC

    def changed_keys(self, state: ClusterState, diff: Diff) -> frozenset[str]:
        """A replica's change shows in its model's row."""
        keys = super().changed_keys(state, diff)
        if diff.touches("replicas"):
            return keys | frozenset(state.models)
        return keys

    def summary(self, state: ClusterState) -> list[tuple[str, str]]:
        """How many are ready, and how many are not."""
        ready = sum(model.state == "ready" for model in state.models.values())
        broken = sum(model.state in ("failed", "pending") for model in state.models.values())
        return [
            (f"{ready} ready", "$success") if ready else ("", ""),
            (f"{broken} not served", "bold $error") if broken else ("", ""),
        ]
