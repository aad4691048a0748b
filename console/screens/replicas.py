"""Replicas: every running copy, how far it is, and its last word."""

from typing import ClassVar

from console.figures import clock, plural, short_age, size
from console.screens.states import state_cell, state_rank
from console.screens.table_view import TableView
from console.signs import signs
from console.state.breakers import OPEN, sentence_of
from console.state.cluster import ClusterState
from console.state.index import nodes_of
from console.state.unheard import ago, is_unheard
from console.widgets.columns import Cell, Column, Seen, TableSpec
from console.widgets.paint import Span, progress_spans
from llmgw.api.actions import Target
from llmgw.api.watch import ReplicaRow

BAR_COLUMNS = 8
FULL_KV = 0.9
"""From here on a KV cache has little room for the next request."""
UNDER_WAY = ("pending", "fetching", "checking", "starting", "draining")


def unheard_words(replica: ReplicaRow, seen: Seen) -> str:
    """`gpu07 is lost, heard 12m ago`: what a node of its says no more; empty while all of them speak."""
    for name in nodes_of(replica):
        if is_unheard(seen.state, name):
            told = ago(seen.state, name, seen.now)
            return f"{name} is {seen.state.nodes[name].state}{f', heard {told}' if told else ''}"
    return ""


def progress_cell(replica: ReplicaRow, seen: Seen) -> Cell:
    """How far it is: a bar while bytes move, a clock while it starts; dimmed where its node said it last."""
    spans = _progress(replica, seen)
    return [(text, "dim") for text, _ in spans] if unheard_words(replica, seen) else spans


def _progress(replica: ReplicaRow, seen: Seen) -> list[Span]:
    step = replica.progress
    if step is not None and replica.state in ("pending", "fetching", "checking"):
        word = "mirror " if step.phase == "mirror" else ""
        if step.total_bytes > 0:
            share = step.done_bytes / step.total_bytes
            figures = f" {word}{100 * share:.0f}% of {size(step.total_bytes)}"
            return [*progress_spans(share, BAR_COLUMNS), (figures, "")]
        return [(f"{word}{size(step.done_bytes)}", "")]
    if replica.state == "starting":
        return [(clock(seen.now - replica.since), "info")]
    if replica.state == "draining":
        return [(f"{replica.in_flight} in flight", "warn")]
    if replica.state == "failed":
        return [(f"after {plural(replica.restarts, 'restart')}" if replica.restarts else "", "warn")]
    if replica.state == "ready":
        in_flight = [
            (f"{replica.in_flight}", "" if replica.in_flight else "dim"),
            (f" of {replica.slots} slots", "dim"),
        ]
        return queue_spans(replica) or in_flight
    return [("", "")]


def queue_spans(replica: ReplicaRow) -> list[Span]:
    """What its engine says of its work: `4 running · 2 waiting · KV 61%`; nothing of what it does not say."""
    facts: list[Span] = []
    if replica.running is not None:
        facts.append((f"{replica.running:,} running", "" if replica.running else "dim"))
    if replica.waiting is not None:
        facts.append((f"{replica.waiting:,} waiting", "warn" if replica.waiting else "dim"))
    if replica.kv_used is not None:
        facts.append((f"KV {100 * replica.kv_used:.0f}%", "warn" if replica.kv_used >= FULL_KV else "dim"))
    between: Span = (f" {signs().dot} ", "dim")
    return [span for fact in facts for span in (between, fact)][1:]


def _said(replica: ReplicaRow, seen: Seen) -> Cell:
    """Which node of its is not heard, what its breakers say, and its own last word."""
    word: Span = (replica.message, "bad" if replica.state == "failed" else "dim")
    unheard, broken = unheard_words(replica, seen), sentence_of(seen.state, replica)
    spans: list[Span] = [(f"{unheard}  ", "warn")] if unheard else []
    spans += [(f"{broken}  ", breaker_tone(replica))] if broken else []
    return [*spans, word] if spans else word


def breaker_tone(replica: ReplicaRow) -> str:
    """How bad it is that its breakers are as they are."""
    return "bad" if replica.breaker == OPEN else "warn"


def standing_cell(replica: ReplicaRow, seen: Seen) -> list[Span]:
    """Its state, dimmed where its node said it last; one that would serve and gets no requests says so instead."""
    spans = _standing(replica)
    return [(text, "dim") for text, _ in spans] if unheard_words(replica, seen) else spans


def _standing(replica: ReplicaRow) -> list[Span]:
    if not replica.breaker or replica.state != "ready":
        return state_cell(replica.state)
    mark = signs().broken if replica.breaker == OPEN else signs().warning
    return [
        (f"{mark} ", breaker_tone(replica)),
        ("breaker" if replica.breaker == OPEN else "probing", breaker_tone(replica)),
    ]


def _where(replica: ReplicaRow) -> str:
    """Its node, and how many more it spans."""
    return f"{replica.node} +{len(replica.shards) - 1}" if replica.shards else replica.node


def own_part(replica: ReplicaRow) -> str:
    """What its id says beyond its model's name, which stands beside it: the same letters in every row tell nothing."""
    return replica.id.removeprefix(f"{replica.model}-")


def _done(replica: ReplicaRow) -> float:
    step = replica.progress
    return step.done_bytes / step.total_bytes if step is not None and step.total_bytes else float(replica.in_flight)


SPEC: TableSpec[ReplicaRow] = TableSpec(
    columns=(
        Column(
            key="model",
            title="model",
            width=16,
            grow=2,
            most=40,
            cell=lambda replica, _: (replica.model, "strong"),
            sort=lambda replica, _: replica.model.casefold(),
        ),
        Column(
            key="id",
            title="replica",
            width=9,
            grow=1,
            most=16,
            priority=3,
            cell=lambda replica, _: (own_part(replica), "dim"),
            sort=lambda replica, _: replica.id,
        ),
        Column(
            key="node",
            title="node",
            width=11,
            grow=1,
            most=20,
            cell=lambda replica, _: (_where(replica), ""),
            sort=lambda replica, _: replica.node.casefold(),
        ),
        Column(
            key="state",
            title="state",
            width=10,
            cell=standing_cell,
            sort=lambda replica, _: state_rank("partial" if replica.breaker else replica.state),
        ),
        Column(
            key="age",
            title="for",
            width=4,
            align="right",
            cell=lambda replica, seen: (short_age(seen.now - replica.since), "dim"),
            sort=lambda replica, _: -replica.since,
        ),
        Column(
            key="progress",
            title="progress",
            width=22,
            wish=31,
            grow=4,
            most=34,
            cell=progress_cell,
            whole=lambda replica, _: queue_spans(replica) if replica.state == "ready" else [],
            sort=lambda replica, _: _done(replica),
            descending=True,
        ),
        Column(
            key="cards",
            title="cards",
            width=5,
            align="right",
            priority=4,
            cell=lambda replica, _: (str(len(replica.cards)) if replica.cards else "cpu", "dim"),
            sort=lambda replica, _: len(replica.cards),
            descending=True,
        ),
        Column(
            key="memory",
            title="memory",
            width=8,
            align="right",
            priority=6,
            cell=lambda replica, _: (size(replica.memory_bytes), "dim"),
            sort=lambda replica, _: replica.memory_bytes,
            descending=True,
        ),
        Column(
            key="engine",
            title="engine",
            width=9,
            priority=5,
            cell=lambda replica, _: (replica.engine, "dim"),
            sort=lambda replica, _: replica.engine,
        ),
        Column(
            key="restarts",
            title="restarts",
            width=8,
            align="right",
            priority=7,
            cell=lambda replica, _: (str(replica.restarts), "warn" if replica.restarts else "dim"),
            sort=lambda replica, _: replica.restarts,
            descending=True,
        ),
        Column(
            key="message",
            title="last word",
            width=32,
            grow=8,
            priority=2,
            cell=_said,
            whole=_said,
        ),
    ),
    words=lambda replica: " ".join(
        (replica.id, replica.model, replica.node, replica.state, replica.message, *(s.node for s in replica.shards))
    ),
    facts=lambda replica: {
        "state": f"{replica.state} breaker {replica.breaker}" if replica.breaker else replica.state,
        "model": replica.model,
        "node": replica.node,
        "engine": replica.engine,
        "profile": replica.profile,
    },
    sort="model",
)


class Replicas(TableView[ReplicaRow]):
    """Every copy."""

    NOUN: ClassVar[str] = "replicas"
    TARGET: ClassVar[Target] = Target.REPLICA
    TOPIC: ClassVar[str] = "replicas"
    EMPTY: ClassVar[tuple[str, str]] = ("No replica runs.", "2 shows the models that could have some")

    def table_spec(self) -> TableSpec[ReplicaRow]:
        """Its columns."""
        return SPEC

    def summary(self, state: ClusterState) -> list[tuple[str, str]]:
        """How many serve, come and failed."""
        states = [replica.state for replica in state.replicas.values()]
        ready, failed = states.count("ready"), states.count("failed")
        coming = sum(name in UNDER_WAY for name in states)
        return [
            (f"{ready:,} ready", "$success") if ready else ("", ""),
            (f"{coming:,} on the way", "$tone-info") if coming else ("", ""),
            (f"{failed:,} failed", "bold $error") if failed else ("", ""),
        ]
