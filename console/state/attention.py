"""What needs attention, worst first: every problem a sentence with a figure, and the command that leads on from it."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from functools import partial

from console.figures import age, money, plural, size
from console.state import standins
from console.state.cards import card_key
from console.state.cluster import ClusterState
from console.state.index import nodes_of
from console.state.rates import REACHED, Pace, Rates
from console.state.scopes import NEAR, REVOKED, fullest, standing_of, target_of
from console.state.unheard import is_unheard
from llmgw.api.actions import Target
from llmgw.api.watch import CardRow, KeyRow, ModelRow, NodeRow, ReplicaRow, ScopeRow
from llmgw.core.cluster import LOST_AFTER_S
from llmgw.core.compute import shortfalls
from llmgw.core.limits import period_end
from llmgw.core.text import safe

_NO_LEADER = "no control plane leads: nothing is changed or placed"
MAX_PROBLEMS = 500
"""A list longer than this is one problem, and its first rows say which."""


class Severity(IntEnum):
    """How bad, worst first."""

    BROKEN = 0
    """Somebody is not served."""
    WARNING = 1
    """It will be, or a machine is missing."""
    COMING = 2
    """On its way; nothing to do but to know."""


@dataclass(frozen=True, kw_only=True)
class Problem:
    """One line of *needs attention*."""

    severity: Severity
    target: Target
    key: str
    """Whose problem it is: key of the row in its topic."""
    name: str
    """What the line calls it."""
    sentence: str
    command: str
    """Id of the command that leads on: `explain`, `logs`, `open`."""
    part: str = ""
    """What tells it from others of the same row: they are told side by side."""
    row: str = ""
    """Row that it is about on the page of `key`, where it is about one of several."""

    @property
    def id(self) -> str:
        """Stable while the problem lasts, so that a cursor stays on it."""
        return f"{self.target}\0{self.key}\0{self.name}\0{self.part}"


def problems(state: ClusterState, now: float, rates: Rates | None = None) -> tuple[Problem, ...]:
    """Every problem of `state` at the server's time `now`, worst first and then by name.

    Without `rates` nobody is known to be at a limit.
    """
    models = list(_models(state, now))
    found = [*_cluster(state), *models, *_replicas(state, now), *_nodes(state, now), *_weights(state, models)]
    found += _standins(state)
    found += _scopes(state, now, rates or Rates())
    found.sort(key=lambda problem: (problem.severity, problem.target != Target.CLUSTER, problem.name, problem.key))
    return tuple(found[:MAX_PROBLEMS])


def all_well(state: ClusterState) -> str:
    """What is fine, in figures, for the end of the list."""
    ready = [model.state for model in state.models.values()].count("ready")
    connected = [node.state for node in state.nodes.values()].count("connected")
    serving = [replica.state for replica in state.replicas.values()].count("ready")
    models = f"{ready} of {plural(len(state.models), 'model')} ready"
    return (
        f"{models}, {plural(serving, 'replica')} serving, {connected} of {plural(len(state.nodes), 'node')} connected"
    )


def _cluster(state: ClusterState) -> Iterator[Problem]:
    head = state.head
    if head is None:
        return
    if head.leader is None and head.servers:
        yield _problem(
            Severity.BROKEN, Target.CLUSTER, "", "leader", "no control plane leads: nothing is changed or placed", ""
        )
    for number, sentence in enumerate(head.problems):
        yield _problem(Severity.WARNING, Target.CLUSTER, str(number), "cluster", sentence, "")


def _models(state: ClusterState, now: float) -> Iterator[Problem]:
    for name, model in state.models.items():
        if model.state in ("failed", "pending"):
            sentence = model.message or f"{model.state}: {model.ready} of {model.wanted} ready"
            yield _problem(Severity.BROKEN, Target.MODEL, name, name, sentence, "explain")
        elif model.state == "partial":
            yield _problem(Severity.WARNING, Target.MODEL, name, name, _partial(model), "explain")
        elif model.state in ("fetching", "starting"):
            yield _problem(Severity.COMING, Target.MODEL, name, name, _coming(state, model, now), "open")


def _standins(state: ClusterState) -> Iterator[Problem]:
    """Models for which others answer: nobody is refused, and somebody gets another model than was asked for."""
    for name, traffic in state.traffic.items():
        if name in state.models and (sentence := standins.attention(traffic.fell_back)):
            yield replace(_problem(Severity.WARNING, Target.MODEL, name, name, sentence, "open"), part="fallback")


def _partial(model: ModelRow) -> str:
    start = f"{model.ready} of {plural(model.wanted, 'replica')} ready"
    return f"{start}; {model.message}" if model.message else start


def _coming(state: ClusterState, model: ModelRow, now: float) -> str:
    away = partial(is_unheard, state)
    for replica in state.replicas_of(model.name):
        if replica.state in ("fetching", "checking", "starting") and not any(map(away, nodes_of(replica))):
            return f"{progress(replica, now)} on {replica.node}"
    return model.message or model.state


def progress(replica: ReplicaRow, now: float) -> str:
    """Where a replica stands, in figures: `fetching 61% of 188 GB`, `starting for 43 s`."""
    step = replica.progress
    if step is not None and replica.state in ("fetching", "checking", "pending"):
        word = "mirror fetching" if step.phase == "mirror" else step.phase or replica.state
        if step.total_bytes > 0:
            return f"{word} {100 * step.done_bytes / step.total_bytes:.0f}% of {size(step.total_bytes)}"
        return f"{word} {size(step.done_bytes)}"
    if replica.state == "starting":
        return f"starting for {age(now - replica.since)}"
    if replica.state == "draining":
        return f"draining, {replica.in_flight} in flight"
    return replica.state


def _replicas(state: ClusterState, now: float) -> Iterator[Problem]:
    for key, replica in state.replicas.items():
        if replica.state == "failed":
            sentence = (
                f"failed on {replica.node} {age(now - replica.since)} ago: {replica.message or 'it gave no reason'}"
            )
            yield _problem(Severity.WARNING, Target.REPLICA, key, replica.model, sentence, "logs")
        if (replica.shards or replica.compute is not None) and _falls_short(replica):
            yield from _computes(state, key, replica)


def _falls_short(replica: ReplicaRow) -> bool:
    """Whether any part of it says that it uses less than it was asked to."""
    said = [part.compute for part in replica.shards] or [replica.compute]
    return any(each is not None and each.less_than_asked for each in said)


def _computes(state: ClusterState, key: str, replica: ReplicaRow) -> Iterator[Problem]:
    """Parts that use less of their cards than they were asked to: they serve, far slower than anybody expects."""
    names = {shard.node for shard in replica.shards} or {replica.node}
    indexes = {card.uuid: card.index for name in names if name in state.nodes for card in state.nodes[name].cards}
    for node, sentence in shortfalls(replica, replica.shards, indexes.get):
        said = f"on {node}: {safe(sentence)}"
        yield replace(
            _problem(Severity.WARNING, Target.REPLICA, key, replica.model, said, "logs"), part=f"computes {node}"
        )


def _nodes(state: ClusterState, now: float) -> Iterator[Problem]:
    for name, node in state.nodes.items():
        if node.state in ("silent", "lost"):
            yield _problem(Severity.WARNING, Target.NODE, name, name, _unheard(state, node, now), "open")
        for number, sentence in enumerate(node.problems):
            problem = _problem(Severity.WARNING, Target.NODE, name, name, sentence, "open")
            yield replace(problem, part=str(number))
        for card in node.cards:  # thousands of them, every second, of which next to none has anything
            if (card.wear or not card.healthy) and (wrong := "; ".join(_worn(card))):
                sentence = f"{card.name}: {wrong}"
                worn = _problem(Severity.WARNING, Target.NODE, name, f"{name}:{card.index}", sentence, "open")
                yield replace(worn, row=card_key(name, card))


def _unheard(state: ClusterState, node: NodeRow, now: float) -> str:
    figures = state.figures.get(node.name)
    since = f"nothing heard for {age(now - figures.heard)}" if figures else "nothing heard"
    number = len(state.replicas_on(node.name))
    if not number:
        return f"lost: {since}" if node.state == "lost" else f"silent: {since}; lost after {LOST_AFTER_S:.0f} s"
    held = plural(number, "replica")
    if node.state == "lost":
        return f"lost: {since}; its {held} {'counts' if number == 1 else 'count'} as gone"
    return f"silent: {since}; its {held} {'is' if number == 1 else 'are'} left alone until {LOST_AFTER_S:.0f} s"


def _worn(card: CardRow) -> Iterator[str]:
    """What is wrong with a card: what keeps it from work, then what wears out."""
    if not card.healthy:
        yield card.problem or "not healthy"
    yield from (sentence.rstrip(".") for sentence in card.wear)


def _weights(state: ClusterState, models: Sequence[Problem]) -> Iterator[Problem]:
    """Fetches that failed, but for those whose model says so itself."""
    said = {problem.key: problem.sentence for problem in models}
    for row in state.weights.values():
        if row.state == "failed" and not (row.models and row.message and row.message in said.get(row.models[0], "")):
            name = row.models[0] if row.models else row.source
            sentence = f"weights cannot be fetched: {row.message or row.source}"
            target = Target.MODEL if row.models else Target.CLUSTER
            problem = _problem(Severity.BROKEN, target, name, name, sentence, "explain" if row.models else "")
            yield replace(problem, part=row.source)


def _scopes(state: ClusterState, now: float, rates: Rates) -> Iterator[Problem]:
    for topic, rows in (("keys", state.keys), ("scopes", state.scopes)):
        for key, row in rows.items():
            if not (row.budgets or row.limits.rpm or row.limits.tpm) or standing_of(row) == REVOKED:
                continue
            sentence = _budget(row, now) or _limit(row, rates.pace(topic, key, now))
            if sentence:
                target = target_of(row)
                subject = row.id if isinstance(row, KeyRow) else row.name
                yield _problem(Severity.WARNING, target, subject, row.name, f"{target}: {sentence}", "open")


def _budget(row: KeyRow | ScopeRow, now: float) -> str:
    purse = fullest(row)
    if purse is None or purse.share < NEAR:
        return ""
    budget = purse.budget
    figures = f"{money(purse.spent_micros)} of {money(budget.amount_micros)} a {budget.period}"
    again = f"{budget.period} ends in {age(period_end(budget.period, now) - now)}"
    if purse.share >= 1:
        return f"budget spent, {figures}: refused until the {again}"
    return f"{math.floor(100 * purse.share)}% of its budget spent, {figures}; the {again}"


def _limit(row: KeyRow | ScopeRow, pace: Pace) -> str:
    for limit, answered, word in ((row.limits.rpm, pace.requests, "requests"), (row.limits.tpm, pace.tokens, "tokens")):
        if limit and answered >= REACHED * limit:
            return f"at its limit, {answered:,} of {limit:,} {word} in the last minute: what is more is refused"
    return ""


def _problem(severity: Severity, target: Target, key: str, name: str, sentence: str, command: str) -> Problem:
    return Problem(severity=severity, target=target, key=key, name=name, sentence=sentence, command=command)
