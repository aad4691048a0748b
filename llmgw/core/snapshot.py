"""All that a decision may look at. Deciders take a snapshot and nothing else; what is not in it cannot sway them."""

import hashlib

import msgspec

from llmgw.core.catalog import DEFAULT_CONTEXT, Model, ModelFacts, Profile
from llmgw.core.cluster import Node, Replica


class WeightsState(msgspec.Struct, frozen=True, kw_only=True):
    """Where a model's weights stand on the mirror."""

    ready: bool = False
    failed: bool = False
    message: str = ""
    """Sentence for people: `fetching 41% of 98 MB`, or why it failed."""


class CatalogEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A wanted model with what is known of its weights."""

    model: Model
    facts: ModelFacts | None = None
    weights: WeightsState = WeightsState()
    failures: int = 0
    """Replicas of it that failed in a row; the pause before the next grows with it."""
    restart_after: float = 0.0
    """Replicas that began before this (leader's monotonic seconds) are replaced, one by one."""

    @property
    def context_length(self) -> int:
        """Tokens one request may span, as served; 0 where an outside endpoint alone knows, and for pictures."""
        if self.model.context_length is not None:
            return self.model.context_length
        if self.model.external or self.model.pictures:
            return 0
        trained = self.facts.trained_context if self.facts else 0
        return min(trained, DEFAULT_CONTEXT) if trained else DEFAULT_CONTEXT

    @property
    def max_output(self) -> int:
        """Longest answer in tokens, as served."""
        return self.model.max_output or self.context_length

    def spec_hash(self, profile: Profile) -> str:
        """Fingerprint of all that needs a restart to change."""
        parts = (
            self.model.source,
            profile.engine,
            profile.tp,
            profile.args,
            sorted(profile.env.items()),
            profile.slots,
            self.context_length,
            self.model.name,
            # Only where it spans several: nothing restarts that was started before there was such a shape.
            *((profile.pp, profile.nodes, profile.cards_per_node) if profile.pp * profile.nodes > 1 else ()),
        )
        return hashlib.sha256(msgspec.json.encode(parts)).hexdigest()[:16]


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """The cluster at one moment."""

    now: float
    """Leader's monotonic seconds."""
    entries: tuple[CatalogEntry, ...] = ()
    nodes: tuple[Node, ...] = ()
    replicas: tuple[Replica, ...] = ()
    in_flight: dict[str, int] = {}
    """Open requests by replica id, summed over routers."""
    settled: bool = True
    """Every known node has said what it runs, or has had the time to; until then nothing is started."""

    def node(self, name: str) -> Node | None:
        """The node of that name."""
        return next((n for n in self.nodes if n.name == name), None)
