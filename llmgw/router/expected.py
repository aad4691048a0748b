"""How much one replica is believed to have to do: what its engine last said of itself, and what we sent it since.

An engine's own count holds every router's requests, and ours among them. Figures are a little old when they come, so of
ours those count as known to the engine that were open here at most since it spoke before: requests that ended on the
way must not be taken for those of others. It is never believed to have less to do than what is open here.
"""

import time

from llmgw.core.figures import LOAD_HOLDS_S
from llmgw.core.routing import ReplicaLoad

FULL_CACHE = 0.9
"""Share of an engine's KV cache in use from which what comes next waits, or pushes out what others still need."""
FULL_CACHE_TIMES = 2.0
"""Such an engine counts as having this much more to do than it says."""


class Queue:
    """What waits at one replica and is worked on there, in requests."""

    __slots__ = ("_busy", "_full", "_known_until", "_open", "_open_most", "_open_then", "load", "slots")

    def __init__(self) -> None:
        self.load: ReplicaLoad | None = None
        """What the engine said last."""
        self._known_until = 0.0
        self._busy = 0
        self._open = 0
        """This router's, when the replica was last looked at."""
        self._open_most = 0
        """The most of them since the engine spoke."""
        self._open_then = 0
        """The most of them between its last two words."""
        self._full = False
        self.slots = 0
        """Requests its engine works on at once, as it last said; 0 is not known."""

    def learn(self, load: ReplicaLoad | None, open_here: int, now: float) -> None:
        """Take in what the engine said anew; none is that nothing is known of it any more. `now` is monotonic."""
        self.load = load
        self._open_then, self._open_most = max(open_here, self._open_most), open_here
        self.slots, self._known_until = 0, 0.0
        if load is None:
            return
        self.slots = load.slots or 0
        if load.running is None and load.waiting is None:
            return
        self._busy = (load.running or 0) + (load.waiting or 0)
        self._full = load.kv_used is not None and load.kv_used >= FULL_CACHE
        self._known_until = now + LOAD_HOLDS_S - max(0.0, time.time() - load.at)

    def work(self, open_here: int, now: float) -> float:
        """Requests it has, those that wait included, of which `open_here` are this router's."""
        self._open = open_here
        if now >= self._known_until:
            return open_here
        work = float(max(open_here, self._busy + open_here - self._open_then))
        return work * FULL_CACHE_TIMES if self._full else work

    def take(self) -> None:
        """One more is opened here now."""
        if self._open >= self._open_most:
            self._open_most = self._open + 1
