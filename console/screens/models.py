"""Models: the catalog, and what became of each entry."""

from typing import ClassVar

from console.figures import count, millis, money, rate
from console.screens.quota import prices_words
from console.screens.states import state_cell, state_rank
from console.screens.table_view import TableView
from console.signs import signs
from console.state.breakers import open_of
from console.state.cluster import ClusterState
from console.state.diff import Diff
from console.state.standins import counted
from console.widgets.columns import Cell, Column, Seen, TableSpec
from console.widgets.paint import Span
from llmgw.api.actions import Target
from llmgw.api.watch import ModelRow, TrafficRow

NO_TRAFFIC = TrafficRow()


def traffic_of(model: ModelRow, seen: Seen) -> TrafficRow:
    """What the model is asked."""
    return seen.state.traffic.get(model.name, NO_TRAFFIC)


def errors_of(model: ModelRow, seen: Seen) -> float | None:
    """Percent of its requests that fail; none while none comes."""
    traffic = traffic_of(model, seen)
    return 100 * traffic.errors_per_s / traffic.requests_per_s if traffic.requests_per_s else None


def _errors(model: ModelRow, seen: Seen) -> Cell:
    share = errors_of(model, seen)
    if not share:
        return (signs().dash if share is None else "0%", "dim")
    return (rate(share), "bad" if share >= 1 else "")


def waiting_of(model: ModelRow, seen: Seen) -> int | None:
    """Requests in its engines' own queues; none while no engine says."""
    said = [r.waiting for r in seen.state.replicas_of(model.name) if r.waiting is not None]
    return sum(said) if said else None


def _waiting(model: ModelRow, seen: Seen) -> Cell:
    waiting = waiting_of(model, seen)
    return (signs().dash if waiting is None else f"{waiting:,}", "warn" if waiting else "dim")


def queued_words(row: TrafficRow) -> str:
    """Who waits in routers to be let in, and for how long by now: `3 waiting · 1.2 s`."""
    return f"{row.queued:,} waiting {signs().dot} {row.queued_oldest_s:.1f} s" if row.queued else ""


def _queued(model: ModelRow, seen: Seen) -> Cell:
    queued = traffic_of(model, seen).queued
    return (f"{queued:,}" if queued else signs().dash, "warn" if queued else "dim")


def _cost(model: ModelRow, _: Seen) -> Cell:
    if model.spec.prices is None and not model.cost_today_micros:
        return (signs().dash, "dim")
    return (money(model.cost_today_micros), "")


def _price(model: ModelRow, _: Seen) -> Cell:
    return (prices_words(model.spec.prices) or signs().dash, "" if model.spec.prices else "dim")


def _ready(model: ModelRow, seen: Seen) -> Cell:
    tone = "" if model.ready >= model.wanted and not open_of(seen.state, model.name) else "warn"
    return (f"{model.ready}/{model.wanted}", tone)


def _where(model: ModelRow, seen: Seen) -> str:
    nodes = seen.state.nodes_of_model(model.name)
    return ", ".join(nodes[:3]) + (f" +{len(nodes) - 3}" if len(nodes) > 3 else "")


def _context(model: ModelRow, _: Seen) -> Cell:
    if not model.context_length:
        return (signs().dash, "dim")
    return [(f"{model.context_length:,}", ""), (f"/{model.max_output:,}", "dim")]


def _trouble(model: ModelRow, seen: Seen) -> Cell:
    """What is wrong with it, in full."""
    return ("  ".join(text for text in (model.message, open_of(seen.state, model.name)) if text), "warn")


def _said(model: ModelRow, seen: Seen) -> Cell:
    """What is wrong with it first, then where it is, then where it is from: what is cut is what matters least."""
    spans: list[Span] = [(f"{model.message}  ", "warn")] if model.message else []
    broken = open_of(seen.state, model.name)
    spans += [(f"{broken}  ", "warn")] if broken else []
    traffic = traffic_of(model, seen)
    spans += [(f"falls back to {counted(traffic.fell_back)}  ", "warn")] if traffic.fell_back else []
    spans += [(f"answers for {counted(traffic.answered_for)}  ", "accent")] if traffic.answered_for else []
    where = _where(model, seen)
    spans += [("on ", "dim"), (f"{where}  ", "")] if where else []
    spans += [("outside  ", "accent")] if model.spec.external else []
    return [*spans, (model.source, "dim")]


SPEC: TableSpec[ModelRow] = TableSpec(
    columns=(
        Column(
            key="name",
            title="model",
            width=18,
            grow=2,
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
            key="errors",
            title="errors",
            width=6,
            align="right",
            descending=True,
            priority=3,
            cell=_errors,
            sort=errors_of,
        ),
        Column(
            key="cost",
            title="cost today",
            width=10,
            align="right",
            descending=True,
            priority=5,
            cell=_cost,
            sort=lambda model, _: model.cost_today_micros,
        ),
        Column(key="price", title="price in / out", width=14, align="right", priority=7, cell=_price),
        Column(
            key="open",
            title="open",
            width=5,
            align="right",
            descending=True,
            priority=6,
            cell=lambda model, seen: (f"{traffic_of(model, seen).open_requests:,}", ""),
            sort=lambda model, seen: traffic_of(model, seen).open_requests,
        ),
        Column(
            key="waiting",
            title="waiting",
            width=7,
            align="right",
            descending=True,
            priority=6,
            cell=_waiting,
            sort=waiting_of,
        ),
        Column(
            key="queued",
            title="queued",
            width=6,
            align="right",
            descending=True,
            priority=6,
            cell=_queued,
            sort=lambda model, seen: traffic_of(model, seen).queued,
        ),
        Column(
            key="context",
            title="ctx/answer",
            width=13,
            align="right",
            priority=8,
            cell=_context,
            sort=lambda model, _: model.context_length,
        ),
        Column(
            key="said",
            title="last word",
            width=24,
            grow=8,
            priority=4,
            cell=_said,
            whole=_trouble,
        ),
    ),
    words=lambda model: f"{model.name} {model.source} {model.state} {model.message} {' '.join(model.spec.aliases)}",
    sort="state",
    facts=lambda model: {
        "state": model.state,
        "source": model.source,
        "engine": _engines(model),
        "gpu": _cards(model),
        "at": "outside" if model.spec.external else "here",
    },
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
