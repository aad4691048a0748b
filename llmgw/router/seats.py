"""The replicas of one model as a router weighs them against each other: their work, their weights, whose turn it is."""

from collections.abc import Mapping, Sequence

from llmgw.core.routing import ReplicaLoad, RoutedReplica
from llmgw.router.expected import Queue
from llmgw.router.ring import replica_mark

MAX_BITS = 1024
"""Bits that are given out to one model's replicas, come and gone, before all is forgotten and they begin anew."""
NEAR = 1.25
"""One replica with so many times what another has is still as good: the difference is within what comes and goes."""


class Seat:
    """One replica. Level, work and share are as the chooser found them for the request at hand."""

    __slots__ = ("bit", "capacity", "id", "level", "mark", "queue", "replica", "share", "turn", "weight", "work")

    def __init__(self, replica: RoutedReplica, bit: int) -> None:
        self.replica = replica
        self.id = replica.id
        self.weight = max(0.0, replica.weight)
        self.mark = replica_mark(replica.id)
        self.bit = bit
        """Its bit in the model's table of prefixes."""
        self.queue = Queue()
        self.turn = 0.0
        """When, in the group's own time, it has its next turn among equals."""
        self.capacity = 1.0
        """Of the group's work, how much it is good for: its slots by its weight, or its weight alone."""
        self.level = 0
        self.work = 0.0
        """Requests it is believed to have."""
        self.share = 0.0
        """Its work by its capacity: what a request that goes there may expect to wait, in no unit."""


class Group:
    """All replicas of one model, in the order of the routing."""

    __slots__ = ("_known", "_next_bit", "now", "replicas", "seats", "slotted")

    def __init__(self) -> None:
        self.replicas: Sequence[RoutedReplica] = ()
        self.seats: list[Seat] = []
        self.slotted = False
        """Whether all engines say how many requests they work on at once; else those that do are not compared by it."""
        self.now = 0.0
        """The group's time: the turn of the replica that was chosen last."""
        self._known: dict[str, Seat] = {}
        self._next_bit = 0

    def follow(self, replicas: Sequence[RoutedReplica]) -> bool:
        """The model has these replicas now; whether what is known by their bits must be forgotten."""
        self.replicas = replicas
        begins_anew = self._next_bit + len(replicas) > MAX_BITS
        if begins_anew:
            self._next_bit, self._known = 0, {}
        seats = []
        for replica in replicas:
            seat = Seat(replica, 0)
            before = self._known.get(replica.id)
            if before is not None and before.replica.endpoint == replica.endpoint:
                seat.bit, seat.queue, seat.turn = before.bit, before.queue, before.turn
            else:
                seat.bit, seat.turn = 1 << self._next_bit, self.now
                self._next_bit += 1
            seats.append(seat)
        self.seats = seats
        self._known = {seat.id: seat for seat in seats}
        self._measure()
        return begins_anew

    def learn(self, loads: Mapping[str, ReplicaLoad], in_flight: Mapping[str, int], now: float) -> None:
        """Take in what engines said since the last call."""
        news = False
        for seat in self.seats:
            load = loads.get(seat.id)
            if load is not seat.queue.load:
                seat.queue.learn(load, in_flight.get(seat.id, 0), now)
                news = True
        if news:
            self._measure()

    def _measure(self) -> None:
        self.slotted = bool(self.seats) and all(seat.queue.slots for seat in self.seats)
        for seat in self.seats:
            weight = seat.weight or 1.0
            seat.capacity = weight * seat.queue.slots if self.slotted else weight

    def take(self, seat: Seat, *, first: bool) -> None:
        """A request goes there; in its `first` try it takes a turn, after which those of all others come nearer.

        A second try takes none: else one of two that always refuses would have the first turn of every request.
        """
        seat.queue.take()
        if first:
            self.now = max(seat.turn, self.now)
            seat.turn = self.now + 1.0 / seat.capacity

    def within(self, seat: Seat, least: Seat, margin: float) -> bool:
        """Whether a request had better go to `seat`, where it was before, than to `least`, which has the least to do.

        It never waits for a slot in one place while there is a free one in the other.
        """
        like_least = least.share * seat.capacity
        if seat.work > like_least + margin and seat.work > like_least * NEAR:
            return False
        return not self.slotted or seat.work < seat.queue.slots or least.work >= least.queue.slots
