"""Which replica a request goes to: where it has been before, unless others have much less to do; else the least wait.

What speaks against a replica goes before all of that: others are chosen only when there is none without a stain.
"""

from collections.abc import Collection, Mapping, Sequence

from llmgw.core.meters import LOAD, ONLY, PREFIX, STICKY
from llmgw.core.routing import ReplicaLoad, RoutedReplica, Scoring
from llmgw.router.affinity import BOUNDS, WORTH, PrefixTable, PrefixTables, chain
from llmgw.router.breaker import Caution
from llmgw.router.health import HealthBook
from llmgw.router.hints import Hints
from llmgw.router.ports import Routes
from llmgw.router.ring import distance, session_mark
from llmgw.router.seats import Group, Seat

_LEVEL_OF = {
    Caution.PROBE: -1,
    Caution.NONE: 0,
    Caution.LATE: 1,
    Caution.BROKEN: 3,
}
"""The lower goes first."""
_SPARE = 2
"""Of a replica with weight zero: asked before one that is broken."""
_LAST_RESORT = 10
"""Added to the level of what was tried already."""
_BARRED = 99
"""Of a replica that is not asked at all."""


class Chooser:
    """Chooses among the replicas of every model of one router."""

    def __init__(self, health: HealthBook, loads: Mapping[str, ReplicaLoad] | None = None) -> None:
        """`loads` is what engines say of their work, by replica id, kept up to date by its owner."""
        self._health = health
        self._loads: Mapping[str, ReplicaLoad] = loads if loads is not None else {}
        self._scoring = Scoring()
        self._routes: Routes | None = None
        self._groups: dict[str, Group] = {}
        self._tables = PrefixTables()

    def follow(self, routes: Routes) -> None:
        """Take in new routes; cheap for those that were seen before."""
        if routes is self._routes:
            return
        self._routes = routes
        self._health.follow(routes)
        self._scoring = routes.scoring
        for name in [name for name in self._groups if not routes.replicas(name)]:
            del self._groups[name]
            self._tables.drop(name)

    def choose(
        self,
        replicas: Sequence[RoutedReplica],
        in_flight: Mapping[str, int],
        *,
        tried: Collection[str],
        now: float,
        again: bool = True,
        hints: Hints | None = None,
    ) -> tuple[RoutedReplica, str] | None:
        """The replica of a model to try next, and by what it was chosen (`core.meters.CHOICES`).

        None when there is none, or none but those that keep their clients waiting. `tried` are passed over if others
        exist, and in any case unless `again`. One whose pause is over goes first, so that it is back as soon as it can
        be; but only in a request's first attempt, for a request must not spend all its attempts on finding out who is
        still broken.
        """
        alone = len(replicas) == 1
        if not replicas or (alone and not self._health.suspects and not tried):
            return (replicas[0], ONLY) if replicas else None
        group = self._group(replicas)
        least = self._least(group, in_flight, tried, now, again)
        if least is None:
            return None
        seat, by = least, ONLY if alone else LOAD
        if hints is not None and not alone and least.level == 0:
            seat, by = self._where_it_was(group, least, hints)
        group.take(seat, first=not tried)
        return seat.replica, by

    def has_other(self, replicas: Sequence[RoutedReplica], replica: RoutedReplica, tried: Collection[str]) -> bool:
        """Whether a request may go to another replica that nothing speaks against, should `replica` fail it."""
        suspects = self._health.suspects
        return any(r is not replica and r.id not in tried and r.id not in suspects for r in replicas)

    def has_any(self, replicas: Sequence[RoutedReplica], now: float) -> bool:
        """Whether one of them could be asked without making its client wait for what is broken."""
        suspects = self._health.suspects
        return any(r.id not in suspects or self._health.caution(r.id, now) is not Caution.HUNG for r in replicas)

    def _group(self, replicas: Sequence[RoutedReplica]) -> Group:
        model = replicas[0].model
        group = self._groups.get(model)
        if group is None:
            group = self._groups[model] = Group()
        if group.replicas is not replicas and group.follow(replicas):
            self._tables.drop(model)
        return group

    def _least(
        self, group: Group, in_flight: Mapping[str, int], tried: Collection[str], now: float, again: bool
    ) -> Seat | None:
        """The seat with the least wait on the lowest level; all seats are weighed."""
        suspects = self._health.suspects
        stained = bool(suspects or tried)
        by_load = self._scoring.load
        if by_load:
            group.learn(self._loads, in_flight, now)
        best: Seat | None = None
        best_level, best_share, best_turn, group_now = _BARRED, 0.0, 0.0, group.now
        for seat in group.seats:
            level = self._level(seat.id, tried, now, again) if stained else 0
            if not seat.weight and level < _SPARE:
                level = _SPARE
            seat.level = level
            if by_load:
                seat.work = seat.queue.work(in_flight.get(seat.id, 0), now)
                seat.share = seat.work / seat.capacity
            else:
                seat.work = seat.share = 0.0
            turn = seat.turn if seat.turn > group_now else group_now
            if level > best_level or level == _BARRED:
                continue
            share = seat.share
            if level < best_level or share < best_share or (share == best_share and turn < best_turn):
                best, best_level, best_share, best_turn = seat, level, share, turn
        return best

    def _level(self, replica_id: str, tried: Collection[str], now: float, again: bool) -> int:
        if replica_id in tried and not again:
            return _BARRED
        caution = self._health.caution(replica_id, now)
        if caution is Caution.HUNG:
            return _BARRED
        if caution is Caution.PROBE and tried:
            caution = Caution.BROKEN
        level = _LEVEL_OF[caution]
        return level + _LAST_RESORT if replica_id in tried else level

    def _where_it_was(self, group: Group, least: Seat, hints: Hints) -> tuple[Seat, str]:
        """The seat of the request's session or prefix, if it has one that is not much busier than `least`."""
        scoring = self._scoring
        if scoring.sticky:
            session = hints.session
            if session:
                return self._nearest(group, session_mark(hints.scope, session), least), STICKY
        prompt = hints.prompt if scoring.prefix else b""
        if not prompt:
            return least, LOAD
        marks = chain(prompt, hints.scope)
        table = self._tables.of(least.replica.model)
        seat = self._reader(group, table, marks, WORTH * len(prompt), least)
        found = (seat, PREFIX) if seat is not None else (least, LOAD)
        table.note(marks, found[0].bit)
        return found

    def _nearest(self, group: Group, session: int, least: Seat) -> Seat:
        margin = self._scoring.load_margin
        best, best_distance = least, -1.0
        for seat in group.seats:
            if seat.level == 0 and group.within(seat, least, margin):
                away = distance(session, seat.mark, seat.weight)
                if best_distance < 0.0 or away < best_distance:
                    best, best_distance = seat, away
        return best

    def _reader(
        self, group: Group, table: PrefixTable, marks: Sequence[int], wanted: float, least: Seat
    ) -> Seat | None:
        """Of the seats that read the most of a prompt, and `wanted` bytes at least, the one with the least to do."""
        margin = self._scoring.load_margin
        found = table.read(marks)
        looked_at = 0
        for depth in range(len(found) - 1, -1, -1):
            if BOUNDS[depth] < wanted:
                break
            readers = found[depth] & ~looked_at
            if not readers:
                continue
            looked_at |= readers
            best: Seat | None = None
            for seat in group.seats:
                if (
                    seat.bit & readers
                    and seat.level == 0
                    and (best is None or (seat.share, seat.turn) < (best.share, best.turn))
                    and group.within(seat, least, margin)
                ):
                    best = seat
            if best is not None:
                return best
        return None
