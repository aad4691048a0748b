"""All about one model."""

from collections.abc import Mapping
from dataclasses import replace
from typing import ClassVar

from console.figures import count, millis, moment, money, plural, rate, size
from console.places import Subject
from console.screens.models import errors_of, queued_words, traffic_of, waiting_of
from console.screens.page import Chart, Page
from console.screens.quota import prices_words
from console.screens.replicas import SPEC as REPLICAS
from console.screens.states import state_cell
from console.state.standins import counted
from console.widgets.columns import Seen, TableSpec
from console.widgets.facts import MOST_POINTS, Fact
from console.widgets.lines import Line
from console.widgets.paint import Span
from llmgw.api.actions import Target
from llmgw.api.watch import ModelRow, ReplicaRow

SPEC: TableSpec[ReplicaRow] = replace(
    REPLICAS, columns=tuple(column for column in REPLICAS.columns if column.key != "model"), sort="state"
)


class ModelPage(Page[ReplicaRow]):
    """What it is, what it is asked, and its replicas."""

    NOUN: ClassVar[str] = "replicas"
    EMPTY: ClassVar[str] = "no replica"

    def table_spec(self) -> TableSpec[ReplicaRow]:
        """As in the replicas view."""
        return SPEC

    def rows(self, seen: Seen) -> Mapping[str, ReplicaRow]:
        """Its replicas."""
        return {replica.id: replica for replica in seen.state.replicas_of(self.place.key)}

    def aimed(self, action_id: str) -> tuple[Subject, ...]:
        """Logs are of the replica under the cursor: of a model there is none."""
        key = self.table.cursor_key
        if action_id != "cluster.logs" or key is None or self.table.marked:
            return ()
        return (Subject(target=Target.REPLICA, key=key),)

    def notice(self) -> list[Line]:
        """Why there is none."""
        model = self.desk.seen().state.models.get(self.place.key)
        if model is not None and model.spec.external:
            return [[("served outside the cluster: there are no replicas here", "dim")]]
        return super().notice()

    def facts(self, seen: Seen) -> list[Fact]:
        """From the catalog, and from the weights themselves."""
        model = seen.state.models[self.place.key]
        traffic = traffic_of(model, seen)
        prices = prices_words(model.spec.prices)
        return [
            ("state", [*state_cell(model.state), (f"  {model.ready} of {model.wanted} ready", "dim")]),
            ("last word", (model.message, "warn")),
            ("source", (model.source, "")),
            ("aliases", (", ".join(model.spec.aliases), "")),
            (
                "context",
                [(f"{model.context_length:,}", "strong"), (f" tokens, answers to {model.max_output:,}", "dim")]
                if model.context_length
                else [],
            ),
            *_places(model),
            *_standins(model, seen),
            ("asked", [(f"{count(traffic.requests_per_s)}/s", "strong"), (f", {traffic.open_requests:,} open", "dim")]),
            ("queues", _queues(model, seen)),
            ("at the door", (queued_words(traffic), "warn")),
            ("errors", _error_share(model, seen)),
            ("price", (f"{prices} a million tokens, in / out" if prices else "", "")),
            ("cost today", (money(model.cost_today_micros) if prices or model.cost_today_micros else "", "strong")),
            ("profiles", (", ".join(f"{p.name} on {p.gpu_class or 'CPU'}" for p in model.spec.profiles), "")),
            *_weights_facts(model),
            ("declared", ("in the settings; not to be changed here" if model.declared else "", "warn")),
            ("changed", (moment(model.changed) if model.changed else "", "dim")),
        ]

    def charts(self, seen: Seen) -> list[Chart]:
        """What it was asked."""
        model = seen.state.models[self.place.key]
        traffic, past = traffic_of(model, seen), seen.history
        name = model.name
        return [
            ("requests/s", count(traffic.requests_per_s), past.traffic("requests", MOST_POINTS, name), None),
            ("tokens/s", count(traffic.output_tokens_per_s), past.traffic("tokens", MOST_POINTS, name), None),
            ("p95 first", millis(traffic.first_token_p95_ms), past.traffic("first_p95", MOST_POINTS, name), None),
            ("p95 gap", millis(traffic.inter_token_p95_ms), past.traffic("inter_p95", MOST_POINTS, name), None),
        ]


def _error_share(model: ModelRow, seen: Seen) -> Span:
    share = errors_of(model, seen)
    return (f"{rate(share)} of its requests", "bad" if share >= 1 else "") if share else ("", "")


def _standins(model: ModelRow, seen: Seen) -> list[Fact]:
    """Who would answer for it and who does, and for whom it answers."""
    traffic = traffic_of(model, seen)
    listed = ", then ".join(model.spec.fallbacks)
    lately = counted(traffic.fell_back)
    fallbacks: list[Span] = [(f"{listed}  ", "")] if listed else []
    fallbacks += [(lately, "warn")] if lately else []
    return [("fallbacks", fallbacks), ("answers for", (counted(traffic.answered_for), "accent"))]


def _queues(model: ModelRow, seen: Seen) -> list[Span]:
    """Requests in its engines' own queues, and of how many that is known."""
    waiting = waiting_of(model, seen)
    if waiting is None:
        return []
    telling = sum(replica.waiting is not None for replica in seen.state.replicas_of(model.name))
    where = f" at {plural(telling, 'replica')}"
    return [(f"{waiting:,} waiting", "warn" if waiting else ""), (where, "dim")]


def _places(model: ModelRow) -> list[Fact]:
    """How many replicas are kept, or which endpoints outside the cluster serve it."""
    if not model.spec.external:
        return [("replicas", (f"{model.spec.scaling.min} kept, {model.spec.scaling.max} at most", ""))]
    return [
        (
            "outside",
            [
                (endpoint.base_url, "accent"),
                (f" as {endpoint.model}" if endpoint.model else "", ""),
                (f", weight {endpoint.weight:g}" if len(model.spec.endpoints) > 1 else "", "dim"),
                (f", keys from {endpoint.api_keys_file}" if endpoint.api_keys_file else ", without keys", "dim"),
            ],
        )
        for endpoint in model.spec.endpoints
    ]


def _weights_facts(model: ModelRow) -> list[Fact]:
    facts = model.facts
    if facts is None:
        return []
    weights: list[Span] = [(size(facts.weights_bytes), "strong")]
    weights += [(f", trained on {facts.trained_context:,} tokens", "dim")] if facts.trained_context else []
    shape: list[Span] = [(facts.architecture, "strong")]
    shape += [(f" {count(facts.parameters)} parameters", "")] if facts.parameters else []
    shape += [(f", {facts.quantization}", "")] if facts.quantization else []
    return [
        ("weights", weights),
        ("shape", shape),
        ("KV cache", [(size(facts.kv_bytes_per_token), ""), (" a token", "dim")] if facts.kv_bytes_per_token else []),
    ]
