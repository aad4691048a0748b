"""Where the feed writes and the screen reads: messages go in as they come, one update comes out a frame."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from console.state.cluster import ClusterState
from console.state.diff import Diff
from console.state.history import History
from llmgw.api.watch import Message, ReplicaRow

_FIGURES = frozenset(("figures", "traffic"))
"""Topics that hold nothing but measurements."""


@dataclass(frozen=True, kw_only=True)
class Link:
    """How the feed is."""

    state: str = "connecting"
    """`connecting` before the first word, then `live` or `lost`."""
    since: float = 0.0
    """Our unix time when that began; for `lost`, when the last word came."""
    reason: str = ""
    """Why it is lost, as a sentence."""
    latency_s: float | None = None
    """Time from asking for the feed to its first byte."""

    @property
    def live(self) -> bool:
        """Whether what is shown is what is."""
        return self.state == "live"


@dataclass(frozen=True, kw_only=True)
class Update:
    """What a screen gets, at most once a frame."""

    state: ClusterState
    diff: Diff
    link: Link
    sampled: bool = False
    """Whether the history has new samples."""


def _moved(before: Mapping[str, ReplicaRow], after: Mapping[str, ReplicaRow], diff: Diff) -> bool:
    for key in diff.keys("replicas"):
        old, new = before.get(key), after.get(key)
        if old is None or new is None or (old.state, old.message) != (new.state, new.message):
            return True
    return False


class Store:
    """The console's one state. Only the feed's worker calls what changes it."""

    def __init__(self) -> None:
        self.state = ClusterState()
        self.history = History()
        self.link = Link()
        self._diff = Diff()
        self._told_link = self.link
        self._sampled = False
        self._moved = False
        """Whether a replica came, went, or is in another state."""

    def receive(self, message: Message, *, at: float) -> None:
        """One message of the feed, at our unix time `at`."""
        before = self.state.replicas
        self.state, diff = self.state.apply(message, at=at)
        self._moved = self._moved or _moved(before, self.state.replicas, diff)
        self._diff = self._diff.then(diff)
        self.history.rates.record(self.state, diff, message.now)
        self._sampled |= self.history.record(self.state, at)

    def set_link(self, link: Link) -> None:
        """How the feed is from now on."""
        if link.state == self.link.state and link.latency_s is None:
            link = replace(link, latency_s=self.link.latency_s)
        self.link = link

    @property
    def pressing(self) -> bool:
        """Whether more than figures waits to be shown: something came, went, or is in another state."""
        quiet = _FIGURES | (frozenset() if self._moved else {"replicas"})
        return self.link != self._told_link or any(
            keys for of in (self._diff.changed, self._diff.gone) for topic, keys in of.items() if topic not in quiet
        )

    def take(self) -> Update | None:
        """What came since the last call; none when nothing did."""
        if not self._diff and not self._sampled and self.link == self._told_link:
            return None
        update = Update(state=self.state, diff=self._diff, link=self.link, sampled=self._sampled)
        self._diff, self._sampled, self._moved, self._told_link = Diff(), False, False, self.link
        return update
