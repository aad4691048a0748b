"""How loaded an engine is, from what it said of itself and what this router has started there since. Pure.

An engine's word is as old as its last report; this router's own requests are of this moment. What is in the engine now
is therefore estimated as its own requests and those of others, of which the report knew.
"""

from typing import NamedTuple

from llmgw.core.admission import Admission
from llmgw.core.routing import ReplicaLoad

STALE_S = 15.0
"""Older figures are none: the engine may have emptied or filled since."""
ROOM_UNSEEN = 64
"""Requests that an engine is taken to work on at once while it has no queue and does not say how many it takes.

Engines that batch continuously take hundreds; the next report, a few seconds later, says whether they queue.
"""


class Work(NamedTuple):
    """What an engine most likely has to do now."""

    waiting: float
    """Requests in its own queue."""
    free: float | None
    """Further ones it could begin with at once; none is unknown."""
    slots: float
    """Requests it works on at once, as far as is known."""


NOTHING_KNOWN = Work(0.0, None, 0.0)


def work_of(load: ReplicaLoad, in_flight: float, open_then: int, *, fresh: bool) -> Work:
    """What an engine has to do, that said `load` when this router had `open_then` requests open there.

    `in_flight` is how many it has open now, with those about to be sent. Of figures that are not `fresh` only the
    number of slots holds.
    """
    slots = load.slots
    if not fresh or (load.running is None and load.waiting is None):
        if slots is None:
            return NOTHING_KNOWN
        return Work(max(0.0, in_flight - slots), max(0.0, slots - in_flight), slots)
    waiting = load.waiting or 0
    running = load.running if load.running is not None else min(open_then, slots or open_then)
    others = max(0, running + waiting - open_then)
    total = in_flight + others
    if slots is None:
        # Whoever queues is full with what runs; whoever does not takes more than that.
        slots = running if waiting else max(2 * running, ROOM_UNSEEN)
    ended = min(0.0, in_flight - open_then)
    queued = max(0.0, total - slots, waiting + ended)
    free = 0.0 if queued else max(0.0, slots - total)
    return Work(queued, free, slots)


def load_of(work: Work, kv_used: float | None, rules: Admission) -> float:
    """The engine's load, 0 to 1: the fuller of its queue and its KV cache, each against what counts as full."""
    load = work.waiting / rules.waiting_per_replica
    if kv_used is not None:
        load = max(load, kv_used / rules.kv_ceiling)
    return min(1.0, load)
