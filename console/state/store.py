"""Where the feed writes and the screen reads: messages go in as they come, one update comes out a frame."""

from dataclasses import dataclass, replace

from console.state.cluster import ClusterState
from console.state.diff import Diff
from console.state.history import History
from llmgw.api.watch import Message


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


class Store:
    """The console's one state. Only the feed's worker calls what changes it."""

    def __init__(self) -> None:
        self.state = ClusterState()
        self.history = History()
        self.link = Link()
        self._diff = Diff()
        self._told_link = self.link
        self._sampled = False

    def receive(self, message: Message, *, at: float) -> None:
        """One message of the feed, at our unix time `at`."""
        self.state, diff = self.state.apply(message, at=at)
        self._diff = self._diff.then(diff)
        self._sampled |= self.history.record(self.state, at)

    def set_link(self, link: Link) -> None:
        """How the feed is from now on."""
        if link.state == self.link.state and link.latency_s is None:
            link = replace(link, latency_s=self.link.latency_s)
        self.link = link

    def take(self) -> Update | None:
        """What came since the last call; none when nothing did."""
        if not self._diff and not self._sampled and self.link == self._told_link:
            return None
        update = Update(state=self.state, diff=self._diff, link=self.link, sampled=self._sampled)
        self._diff, self._sampled, self._told_link = Diff(), False, self.link
        return update
