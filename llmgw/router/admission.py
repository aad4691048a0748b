"""Who is let in to a model at once, who waits, and who is woken when there is room.

A request is let in while the mean load of the model's replicas is below the limit; then requests wait here, where their
order can be chosen, instead of in engines, where it cannot. Every place that becomes free wakes whose turn it is and
nobody else. Nobody waits longer than a tick for what no event tells of: figures that grew old, breakers, new routes.
"""

import math
import time
from collections.abc import Sequence

from llmgw.core.admission import Band, retry_after_s
from llmgw.core.meters import NO_MODEL, Queue
from llmgw.core.routing import KeyRecord
from llmgw.router.bands import Bands, InUse, Uses
from llmgw.router.catalog import may_use
from llmgw.router.gauge import Gauge, Measured, leaves_room
from llmgw.router.pace import Pace
from llmgw.router.ports import RouterState, Routes
from llmgw.router.turned_away import TurnedAway, displaced, no_place, too_heavy, waited_too_long
from llmgw.router.waiting import ONE_BAND, BandLine, Standing, Waiter, WaitingRoom

CREDIT_S = 0.25
"""A model found well below its limit is not looked at again for this long, nor for as many requests as surely fit."""
UNMEASURED_S = 5.0
"""When to come back while nobody has been let in from the line yet, so that its pace is unknown."""


class _Credit:
    """Requests that a model surely takes yet."""

    __slots__ = ("left", "until")

    def __init__(self, left: int, until: float) -> None:
        self.left = left
        self.until = until


class Gate:
    """One router's admission. Synchronous; belongs to the trio thread."""

    def __init__(self, state: RouterState) -> None:
        self._state = state
        self.room = WaitingRoom()
        self._gauge = Gauge(state)
        self.peaks = self._gauge.peaks
        """Most requests this router had open at a replica since it last spoke; whoever opens one keeps it true."""
        self._let_in: dict[str, int] = {}
        """By model, those who were let in and have not begun."""
        self._credits: dict[str, _Credit] = {}
        self._paces: dict[str, Pace] = {}
        self._uses = Uses()
        self._routes: Routes = state.routes
        self._bands = Bands(self._routes.admission, self._routes.timeouts)
        state.on_loads = self.loads_heard
        state.on_stale_key = self.key_stale
        state.meters.queues = self.queues

    # -- the way in

    def lets_in(self, model: str, band_name: str, began_at: float) -> bool:
        """Whether a request may be sent to an engine now; else it must `line_up`. `began_at` is monotonic, of now."""
        if not self._state.loads and not self.room.count:
            return True
        credit = self._credits.get(model)
        if credit is not None and credit.left > 0 and began_at < credit.until:
            credit.left -= 1
            return True
        self._follow()
        band = self._bands.of(band_name)
        line = self.room.lines.get(model)
        if line is not None and line.goes_before(band.priority):
            return False
        if not self._takes(model, band, self._measure(model), began_at):
            return False
        if line is not None:
            line.pass_over(band)
        return True

    def begin(self, model: str, band_name: str) -> InUse | None:
        """A request is let in: what to `end` when it has ended, if that is counted."""
        if not self._bands.ranked and self._state.routes is self._routes:
            return None
        self._follow()
        return self._uses.begin(model, self._bands.of(band_name).name) if self._bands.ranked else None

    def line_up(self, model: str, key: KeyRecord, held_bytes: int) -> Waiter:
        """Let a request wait; raises TurnedAway when there is no place for it. Whoever lines up must `step_out`."""
        band = self._bands.of(key.band)
        now = time.monotonic()
        waiter = Waiter(model, band, key.id, held_bytes, now)
        refusal = self._no_room(waiter)
        if refusal is not None:
            raise refusal
        if model not in self.room.lines:
            pace = self._paces.setdefault(model, Pace(now))
            pace.at = now
        self._credits.pop(model, None)
        self.room.add(waiter)
        return waiter

    def ttl_s(self, waiter: Waiter) -> float:
        """Seconds it may wait."""
        return self._bands.ttl_s(waiter.band)

    def step_out(self, waiter: Waiter, *, taken: bool) -> TurnedAway | None:
        """It waits no more. If it was let in and has not `taken` its place, that is somebody else's; else why not."""
        if waiter.standing is Standing.WAITING:
            self.room.remove(waiter)
            waited_s = time.monotonic() - waiter.since
            return waited_too_long(waiter.model, waiter.band.name, waited_s, self._retry_after_s(waiter.model))
        if waiter.standing is Standing.DISPLACED:
            return displaced(waiter.model, waiter.band.name, self._retry_after_s(waiter.model))
        left = self._let_in[waiter.model] - 1
        if left:
            self._let_in[waiter.model] = left
        else:
            del self._let_in[waiter.model]
        if not taken:
            self.pump(waiter.model)
        return None

    def check_head(self, key: KeyRecord) -> None:
        """Raise TurnedAway if whatever this key may ask for would be, so that its body need not be read."""
        room, rules = self.room, self._routes.admission
        if not room.count or (room.count < rules.max_waiting * ONE_BAND and room.held_bytes < rules.max_waiting_bytes):
            return
        self._follow()
        refusal = self._no_room(Waiter("", self._bands.of(key.band), key.id, 0, 0.0), make=False)
        if refusal is None:
            return
        usable = {model.name for model in self._routes.models() if may_use(key, model)}
        if usable and usable <= room.lines.keys():  # a key that may use none is told so
            self._state.meters.turned_away(NO_MODEL, refusal.band, refusal.reason)
            raise refusal

    # -- waking

    def pump(self, model: str) -> None:
        """Let in whose turn it is, for as long as the model takes more."""
        while (line := self.room.lines.get(model)) is not None:
            now, measured = time.monotonic(), self._measure(model)
            band = next((band for band in line.turns() if self._takes(model, band.band, measured, now, band.due)), None)
            if band is None:
                return
            self._paces[model].let_in(now)
            waiter = self.room.take(model, band)
            waiter.standing = Standing.LET_IN
            self._let_in[model] = self._let_in.get(model, 0) + 1
            waiter.signal.set()

    def tick(self, now: float) -> None:
        """Notice what nobody tells of; called every TICK_S."""
        self._follow()
        if self.room.count:
            for model in list(self.room.lines):
                self.pump(model)

    def loads_heard(self) -> None:
        """Engines said how they are."""
        self._credits.clear()
        self._gauge.heard()
        for model in list(self.room.lines):
            self.pump(model)

    def queues(self) -> dict[str, Queue]:
        """Who waits now, by model."""
        now = time.monotonic()
        return {
            model: Queue(
                waiting={band.band.name: band.count for band in line.bands.values()},
                oldest_s=max(now - w.since for band in line.bands.values() for w in band.heads()),
            )
            for model, line in self.room.lines.items()
        }

    # -- how loaded a model is

    def saturation(self, model: str) -> float:
        """Mean load of the model's replicas, 0 to 1; of a model of which nothing is known, 0."""
        return self.measured(model).load

    def measured(self, model: str) -> Measured:
        """How loaded the model is now, and what its engines have to do."""
        self._follow()
        return self._measure(model)

    def _measure(self, model: str) -> Measured:
        return self._gauge.measure(self._routes.replicas(model), self._routes.admission, self._let_in.get(model, 0))

    def _takes(self, model: str, band: Band, measured: Measured, now: float, due: bool = False) -> bool:
        """Whether the model, as `measured`, takes another request of the band; `due` is one passed over too often."""
        rules = self._routes.admission
        if measured.load >= rules.saturation:
            return False
        if self._bands.ranked:
            kept = None if due else self._uses.kept(model, self._bands.higher(band), now)
            return kept is None or leaves_room(measured.works, kept)
        if measured.counted and model not in self.room.lines:
            # One request adds at most one to one queue, and nothing to it while the only engine has places free.
            fitting = (rules.saturation - measured.load) * rules.waiting_per_replica * measured.counted
            alone = measured.works[0].free if measured.counted == len(measured.works) == 1 else None
            self._credits[model] = _Credit(math.ceil(fitting) - 1 + int(alone or 0), now + CREDIT_S)
        return True

    def key_stale(self, key_id: str) -> None:
        """A key may have changed, or any (no id): those who wait with it look at it again, each in its own task."""
        for line in self.room.lines.values():
            for band in line.bands.values():
                for waiter in band.of_key(key_id):
                    waiter.signal.set()

    # -- room to wait

    def _no_room(self, newcomer: Waiter, *, make: bool = True) -> TurnedAway | None:
        """Why it cannot wait, having made room for it where that is right (unless told not to)."""
        room, rules, band = self.room, self._routes.admission, newcomer.band
        share = ONE_BAND if self._bands.several else 1.0
        count, held = room.of_band(band.name)
        places, weight = int(rules.max_waiting * share), int(rules.max_waiting_bytes * share)
        model, size = newcomer.model, newcomer.held_bytes
        again_s = self._retry_after_s(model)
        if count >= places:
            return no_place(model, band.name, count, places, whole=False, retry_after_s=again_s)
        if held + size > weight:
            return too_heavy(model, band.name, held, weight, size, again_s)
        full_for_good = room.bytes_from(band.priority)
        if full_for_good + size > rules.max_waiting_bytes:  # nobody is sent away for a request that would not fit then
            return too_heavy(model, band.name, full_for_good, rules.max_waiting_bytes, size, again_s)
        while room.count >= rules.max_waiting or room.held_bytes + size > rules.max_waiting_bytes:
            lower = room.lowest_below(band.priority)
            if not lower and room.count >= rules.max_waiting:
                return no_place(model, band.name, room.count, rules.max_waiting, whole=True, retry_after_s=again_s)
            if not lower:
                return too_heavy(model, band.name, room.held_bytes, rules.max_waiting_bytes, size, again_s)
            if not make:
                return None
            self._displace(lower)
        return None

    def _displace(self, lower: list[tuple[str, BandLine]]) -> None:
        """Send away the newest request of those that would wait longest."""
        _, line = max(lower, key=lambda found: self._retry_after_s(found[0]))
        waiter = line.newest_of_most()
        self.room.remove(waiter)
        waiter.standing = Standing.DISPLACED
        waiter.signal.set()

    def _retry_after_s(self, model: str) -> float:
        """When somebody turned away from the model's line, or from all (no model), had better come back."""
        now = time.monotonic()
        names: Sequence[str] = (model,) if model else tuple(self.room.lines)
        return min((self._expected_s(name, now) for name in names), default=1.0)

    def _expected_s(self, model: str, now: float) -> float:
        line, pace = self.room.lines.get(model), self._paces.get(model)
        ahead = line.count if line is not None else 0
        interval_s = pace.interval(now) if pace is not None else None
        return retry_after_s(ahead, interval_s, unknown_s=UNMEASURED_S, most_s=self._bands.ttl_s(self._bands.default))

    # -- what changes

    def _follow(self) -> None:
        """Follow new routes; cheap for those that were seen before."""
        routes = self._state.routes
        if routes is self._routes:
            return
        self._routes = routes
        self._bands = Bands(routes.admission, routes.timeouts)
        self._credits.clear()
        names = {model.name for model in routes.models()}
        self._uses.keep(names)
        self._paces = {name: pace for name, pace in self._paces.items() if name in names or name in self.room.lines}
        self._gauge.keep({replica.id for name in names for replica in routes.replicas(name)})
