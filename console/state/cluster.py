"""The cluster as one immutable value. `apply` is the only way to the next one, and it says which keys differ.

A row that does not decode is left out and counted: a newer server's row must not end the console.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from types import MappingProxyType
from typing import TypeVar, cast

import msgspec

from console.state.diff import NOTHING, Diff
from console.state.index import ReplicaIndex
from console.state.loads import NO_LOAD, NodeLoad, node_load, total_load
from llmgw.api.watch import (
    ROW_TYPES,
    AuditRow,
    ClusterRow,
    Delta,
    FiguresRow,
    KeyRow,
    Message,
    ModelRow,
    NodeRow,
    ReplicaRow,
    ScopeRow,
    Snapshot,
    Tick,
    TrafficRow,
    WeightsRow,
)

R = TypeVar("R")
Rows = Mapping[str, R]
NO_ROWS: Mapping[str, object] = MappingProxyType({})
ALL = "*"
"""Key of the traffic of all models together."""

_DECODERS = {topic: msgspec.json.Decoder(type_) for topic, type_ in ROW_TYPES.items()}
_SKEW_S = 0.5
"""Clocks that differ by less are taken as equal, so that a slow message does not move every age."""


_NO_REPLICAS = ReplicaIndex({})


def _none() -> Mapping[str, R]:
    return cast("Mapping[str, R]", NO_ROWS)


@dataclass(frozen=True, kw_only=True)
class ClusterState:
    """Everything the feed has told, after one message."""

    heard: bool = False
    """Whether a snapshot has come; before that an empty topic says nothing."""
    epoch: str = ""
    rev: int = 0
    offset_s: float = 0.0
    """The server's clock less ours."""
    actor: str = ""
    role: str = "viewer"
    cluster: Rows[ClusterRow] = field(default_factory=_none)
    models: Rows[ModelRow] = field(default_factory=_none)
    replicas: Rows[ReplicaRow] = field(default_factory=_none)
    nodes: Rows[NodeRow] = field(default_factory=_none)
    figures: Rows[FiguresRow] = field(default_factory=_none)
    traffic: Rows[TrafficRow] = field(default_factory=_none)
    weights: Rows[WeightsRow] = field(default_factory=_none)
    keys: Rows[KeyRow] = field(default_factory=_none)
    scopes: Rows[ScopeRow] = field(default_factory=_none)
    audit: Rows[AuditRow] = field(default_factory=_none)
    loads: Mapping[str, NodeLoad] = field(default_factory=_none)
    """Node → what its cards do."""
    index: ReplicaIndex = _NO_REPLICAS
    unreadable: int = 0
    """Rows left out because they did not decode."""

    @property
    def head(self) -> ClusterRow | None:
        """The cluster's own row."""
        return self.cluster.get("cluster")

    @cached_property
    def load(self) -> NodeLoad:
        """What all cards do."""
        return total_load(self.loads.values())

    def now(self, local_s: float) -> float:
        """The server's unix time at our time `local_s`; ages are measured with it."""
        return local_s + self.offset_s

    def rows(self, topic: str) -> Mapping[str, msgspec.Struct]:
        """A topic's rows by key."""
        return cast("Mapping[str, msgspec.Struct]", getattr(self, topic))

    def node_load(self, name: str) -> NodeLoad:
        """What one node's cards do."""
        return self.loads.get(name, NO_LOAD)

    def replicas_of(self, model: str) -> tuple[ReplicaRow, ...]:
        """A model's replicas."""
        return self.index.of_model(model)

    def nodes_of_model(self, model: str) -> tuple[str, ...]:
        """The nodes that a model's replicas are on."""
        return self.index.nodes_of_model(model)

    def replicas_on(self, node: str) -> tuple[ReplicaRow, ...]:
        """The replicas on a node."""
        return self.index.on_node(node)

    def apply(self, message: Message, *, at: float) -> "tuple[ClusterState, Diff]":
        """The state after `message`, received at our unix time `at`, and what differs."""
        base = replace(self, rev=message.rev, offset_s=self._offset(message.now - at))
        if isinstance(message, Tick):
            return base, Diff()
        change = _Change(self)
        if isinstance(message, Snapshot):
            for topic in ROW_TYPES:
                change.replace(topic, message.rows.get(topic, {}))
            base = replace(base, heard=True, epoch=message.epoch, actor=message.actor, role=message.role)
        else:
            change.update(message)
        return change.onto(base)

    def _offset(self, measured_s: float) -> float:
        return self.offset_s if self.heard and abs(measured_s - self.offset_s) < _SKEW_S else measured_s


class _Change:
    """New mappings for the topics a message touches; the others are kept as they are, object and all."""

    def __init__(self, before: ClusterState) -> None:
        self._before = before
        self._topics: dict[str, dict[str, msgspec.Struct]] = {}
        self._changed: dict[str, frozenset[str]] = {}
        self._gone: dict[str, frozenset[str]] = {}
        self._unreadable = 0

    def replace(self, topic: str, raw: Mapping[str, msgspec.Raw]) -> None:
        """All rows of `topic` anew; rows equal to those before keep their object."""
        old = self._before.rows(topic)
        new: dict[str, msgspec.Struct] = {}
        changed: set[str] = set()
        for key, row in self._decoded(topic, raw):
            if old.get(key) == row:
                row = old[key]
            else:
                changed.add(key)
            new[key] = row
        gone = old.keys() - new.keys()
        if changed or gone:
            self._topics[topic] = new
            self._note(topic, frozenset(changed), frozenset(gone))

    def update(self, delta: Delta) -> None:
        """Rows set and gone by `delta`; topics of a newer server are passed over."""
        for topic in ({*delta.rows, *delta.gone}) & ROW_TYPES.keys():
            old = self._before.rows(topic)
            new = dict(old)
            changed: set[str] = set()
            for key, row in self._decoded(topic, delta.rows.get(topic, {})):
                if old.get(key) != row:
                    new[key] = row
                    changed.add(key)
            gone = frozenset(delta.gone.get(topic, ())) & new.keys()
            for key in gone:
                del new[key]
            if changed or gone:
                self._topics[topic] = new
                self._note(topic, frozenset(changed) - gone, gone & old.keys())

    def onto(self, base: ClusterState) -> tuple[ClusterState, Diff]:
        """`base` with the changed topics, and all that follows from them."""
        diff = Diff(changed=self._changed, gone=self._gone)
        fields: dict[str, object] = dict(self._topics)
        if "replicas" in self._topics:
            replicas = cast("Rows[ReplicaRow]", self._topics["replicas"])
            fields["index"] = self._before.index.after(replicas, diff.keys("replicas"))
        if diff.touches("nodes", "figures"):
            fields["loads"] = self._loads(diff)
        return replace(base, **fields, unreadable=base.unreadable + self._unreadable), diff  # type: ignore[arg-type]

    def _loads(self, diff: Diff) -> dict[str, NodeLoad]:
        nodes = cast("Rows[NodeRow]", self._topics.get("nodes", self._before.nodes))
        figures = cast("Rows[FiguresRow]", self._topics.get("figures", self._before.figures))
        loads = dict(self._before.loads)
        for name in diff.keys("nodes", "figures"):
            node = nodes.get(name)
            if node is None:
                loads.pop(name, None)
            else:
                loads[name] = node_load(node, figures.get(name))
        return loads

    def _decoded(self, topic: str, raw: Mapping[str, msgspec.Raw]) -> list[tuple[str, msgspec.Struct]]:
        decode = _DECODERS[topic].decode
        rows: list[tuple[str, msgspec.Struct]] = []
        for key, document in raw.items():
            try:
                rows.append((key, decode(document)))
            except (msgspec.MsgspecError, ValueError, RecursionError):
                self._unreadable += 1
        return rows

    def _note(self, topic: str, changed: frozenset[str], gone: frozenset[str]) -> None:
        self._changed[topic] = self._changed.get(topic, NOTHING) | changed
        self._gone[topic] = self._gone.get(topic, NOTHING) | gone
        if not self._gone[topic]:
            del self._gone[topic]
        if not self._changed[topic]:
            del self._changed[topic]
