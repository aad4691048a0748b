"""One replica as this router knows it: the state of its breaker, who waits there, and what that says against it.

`health.HealthBook` is the only writer. Times are monotonic seconds.
"""

from collections import OrderedDict
from dataclasses import dataclass, field
from enum import Enum, IntEnum
from typing import Final, Protocol

from llmgw.router.limits import PAUSE_FIRST_S, RECENT_OUTCOMES

_RECENT_MASK = (1 << RECENT_OUTCOMES) - 1


class Breaker(Enum):
    """Whether requests may go to a replica."""

    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half-open"


CLOSED: Final = Breaker.CLOSED
"""What nearly all are, bound once: an enum's member is looked up by way of its metaclass, each time."""


class Caution(IntEnum):
    """What speaks against a replica, from nothing to everything; `choose` prefers the smaller value."""

    PROBE = -1
    """It may have healed, and whoever finds out first had better be one request."""
    NONE = 0
    LATE = 1
    """Its oldest request has waited for its first byte far longer than usual."""
    BROKEN = 2
    """Its breaker is open, but asking costs little: it failed at once."""
    HUNG = 3
    """Its breaker is open, and asking means to wait."""


@dataclass(frozen=True, slots=True)
class Failure:
    """Why an attempt speaks against its replica."""

    words: str
    """For an operator: "it answered 500"."""
    at_once: bool = False
    """One of these opens the breaker."""
    hung: bool = False
    """It took its time, or asked to be left alone: the next request must not find out the same way."""
    pause_s: float = 0.0
    """What the replica itself asked for; 0 is the breaker's own pause."""
    waited: bool = False
    """No first byte came in time, which proves nothing while others get theirs: some answers simply take long."""


class Waiting(Protocol):
    """An attempt at the replica."""

    streamed: bool
    began_at: float
    late_at: float
    """When its first byte is late."""


@dataclass(slots=True, eq=False)
class ReplicaHealth:
    """One replica at one endpoint."""

    id: str
    model: str
    endpoint: str
    state: Breaker = Breaker.CLOSED
    streak: int = 0
    """Failures since the last success."""
    recent: int = 0
    """The last RECENT_OUTCOMES outcomes, a bit each, set for a failure."""
    pause_s: float = PAUSE_FIRST_S
    opened_at: float = 0.0
    until: float = 0.0
    hung: bool = False
    told: bool = False
    """The pause is the replica's own wish."""
    words: str = ""
    probe: Waiting | None = None
    """The one attempt that may find out whether it healed."""
    answered_at: float = float("-inf")
    """When it last gave a first byte."""
    late: bool = False
    shunned_until: float = 0.0
    """It kept somebody waiting in vain until lately."""
    waiting: tuple[OrderedDict[Waiting, None], OrderedDict[Waiting, None]] = field(
        default_factory=lambda: (OrderedDict(), OrderedDict())
    )
    """Attempts without a first byte, unstreamed ones and streamed ones, the oldest first."""

    @property
    def suspect(self) -> bool:
        """Whether anything is to be said against it."""
        return self.state is not CLOSED or self.late or self.shunned_until > 0.0

    def caution(self, now: float) -> Caution:
        """What speaks against it."""
        if self.state is CLOSED:
            return Caution.LATE if self.late or self.shunned_until > now else Caution.NONE
        if self.probe is None and now >= self.until:
            return Caution.PROBE
        return Caution.HUNG if self.hung else Caution.BROKEN

    def wait_s(self, now: float) -> float:
        """Until a request may try it, if its breaker is not closed."""
        # Nobody knows when a probe ends; if it fails, the pause after it is twice this one.
        return self.pause_s if self.probe is not None else max(0.0, self.until - now)

    def note(self, *, failed: bool) -> None:
        """Remember an outcome."""
        self.recent = (self.recent << 1 | failed) & _RECENT_MASK

    def unanswered(self, attempt: Waiting, now: float) -> bool:
        """Whether nobody else got a first byte there lately: an answer that takes long is no silence of the replica."""
        return now - self.answered_at > min(now, attempt.late_at) - attempt.began_at

    def in_vain(self, attempt: Waiting, now: float) -> bool:
        """Whether the attempt is late, and the replica is why."""
        return attempt.late_at < now and self.unanswered(attempt, now)

    def lets_wait(self, now: float) -> bool:
        """Whether the first in any line waits in vain: they wait in the order they came."""
        return any(line and self.in_vain(next(iter(line)), now) for line in self.waiting)
