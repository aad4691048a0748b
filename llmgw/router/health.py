"""What this router makes of each replica: a breaker, and whether its oldest request waits for too long.

closed → open (a connection that failed, or failures that add up) → half-open (its pause is over: exactly one request,
the probe, may go there) → closed, or open again with twice the pause. Only what began after a breaker opened can close
it, and a client that leaves proves nothing. Nobody looks at requests one by one: they wait in the order they came.
"""

import logging
from collections.abc import Callable, MutableMapping, Sequence

from llmgw.core.routing import RoutedReplica
from llmgw.router.breaker import CLOSED, Breaker, Caution, Failure, ReplicaHealth
from llmgw.router.limits import (
    FAILURES_IN_A_ROW,
    FAILURES_OF_RECENT,
    HUNG_AFTER_S,
    HUNG_TIMES,
    MAX_TOLD_S,
    PAUSE_FIRST_S,
    PAUSE_LAST_S,
    SHUN_S,
)
from llmgw.router.ports import Routes

log = logging.getLogger(__name__)

_LEARNING = 1 / 8
"""Weight of the newest first byte in what first bytes usually take, as TCP weighs its round trips."""


class Trial:
    """One attempt at a replica. Ends exactly once, by `close`; what it proved was said before."""

    __slots__ = ("_book", "_health", "began_at", "late_at", "streamed")

    def __init__(self, book: "HealthBook", health: ReplicaHealth, streamed: bool, now: float, late_at: float) -> None:
        self._book = book
        self._health = health
        self.streamed = streamed
        self.began_at = now
        self.late_at = late_at

    @property
    def probing(self) -> bool:
        """Whether a breaker waits for its outcome."""
        return self._health.probe is self

    def answered(self, now: float) -> None:
        """The first byte of an answer came."""
        self._book.answered(self._health, self, now)

    def succeeded(self) -> None:
        """The answer came to its end, or the engine refused what the client asked for: it is well."""
        self._book.succeeded(self._health, self)

    def failed(self, failure: Failure, now: float) -> None:
        """It broke off, or never began."""
        self._book.failed(self._health, self, failure, now)

    def close(self, now: float) -> None:
        """It is over, whatever became of it: a client that left frees the probe for another."""
        self._book.closed(self._health, self, now)


class HealthBook:
    """The health of every replica this router asked lately."""

    def __init__(
        self,
        breakers: MutableMapping[str, str],
        failures: MutableMapping[str, str],
        *,
        on_open: Callable[[str], None] = lambda model: None,
    ) -> None:
        """By replica id, `breakers` is kept at the states of those not closed and `failures` at why they are not.

        `on_open` is told the model of each that opens.
        """
        self._breakers = breakers
        self._failures = failures
        self._on_open = on_open
        self._replicas: dict[str, ReplicaHealth] = {}
        self._usual_s: dict[tuple[str, bool], float] = {}
        """What first bytes usually take, by model and whether the answer is streamed."""
        self.suspects: dict[str, ReplicaHealth] = {}
        """Replicas with anything to be said against them, by id. Nearly always empty: all `choose` looks at."""
        self._routes: Routes | None = None

    def begin(self, replica: RoutedReplica, *, streamed: bool, now: float) -> Trial:
        """An attempt starts; the first at a half-open breaker is its probe."""
        health = self._replicas.get(replica.id)
        if health is None or health.endpoint != replica.endpoint:
            health = self._replicas[replica.id] = ReplicaHealth(replica.id, replica.model, replica.endpoint)
            self._settle(health)
        late_at = now + self.patience_s(replica.model, streamed=streamed)
        trial = Trial(self, health, streamed, now, late_at)
        health.waiting[streamed][trial] = None
        if health.state is not CLOSED and health.probe is None and now >= health.until:
            health.probe = trial
            self._enter(health, Breaker.HALF_OPEN)
        return trial

    def patience_s(self, model: str, *, streamed: bool) -> float:
        """Seconds after which a first byte is late."""
        return max(HUNG_AFTER_S, HUNG_TIMES * self._usual_s.get((model, streamed), 0.0))

    def caution(self, replica_id: str, now: float) -> Caution:
        """What speaks against the replica."""
        health = self.suspects.get(replica_id)
        return Caution.NONE if health is None else health.caution(now)

    def next_probe_s(self, replicas: Sequence[RoutedReplica], now: float) -> float:
        """Seconds until a request may try one of these replicas, none of which may be asked now."""
        waits = [self.suspects[r.id].wait_s(now) for r in replicas if r.id in self.suspects]
        return min(waits, default=PAUSE_FIRST_S)

    def pardon(self, replica_id: str, now: float) -> None:
        """What it failed for was mended by its operator: the next request finds out whether that helped."""
        health = self._replicas.get(replica_id)
        if health is not None and health.state is Breaker.OPEN:
            health.until = now
            self._enter(health, Breaker.HALF_OPEN)

    def follow(self, routes: Routes) -> None:
        """Forget replicas that are gone or moved; cheap for routes that were seen before."""
        if routes is self._routes:
            return
        self._routes = routes
        kept: dict[str, dict[str, str]] = {}
        for health in list(self._replicas.values()):
            there = kept.get(health.model)
            if there is None:
                there = kept[health.model] = {r.id: r.endpoint for r in routes.replicas(health.model)}
            if there.get(health.id) != health.endpoint:
                del self._replicas[health.id]
                self.suspects.pop(health.id, None)
                self._breakers.pop(health.id, None)
                self._failures.pop(health.id, None)
        names = {model.name for model in routes.models()}
        self._usual_s = {key: usual for key, usual in self._usual_s.items() if key[0] in names}

    def tick(self, now: float) -> None:
        """Look at who waits for too long, and at pauses that are over; called every TICK_S."""
        for health in self._replicas.values():
            late = health.lets_wait(now)
            pardoned = 0.0 < health.shunned_until <= now
            if health.state is Breaker.OPEN and now >= health.until:
                self._enter(health, Breaker.HALF_OPEN)
            if late is not health.late or pardoned:
                health.late = late
                health.shunned_until = 0.0 if pardoned else health.shunned_until
                self._settle(health)

    # what trials say

    def answered(self, health: ReplicaHealth, trial: Trial, now: float) -> None:
        """See `Trial.answered`."""
        queue = health.waiting[trial.streamed]
        if trial not in queue:
            return
        del queue[trial]
        health.answered_at = now
        key = (health.model, trial.streamed)
        took_s = now - trial.began_at
        usual_s = self._usual_s.get(key)
        self._usual_s[key] = took_s if usual_s is None else usual_s + (took_s - usual_s) * _LEARNING
        if health.shunned_until:
            health.shunned_until = 0.0
            self._settle(health)
        if health.state is not CLOSED and trial.began_at >= health.opened_at:
            # On trial until an answer is complete: the next failure opens it again, for twice as long.
            health.streak = FAILURES_IN_A_ROW - 1
            health.pause_s = min(health.pause_s * 2, PAUSE_LAST_S)
            self._close_breaker(health)

    def succeeded(self, health: ReplicaHealth, trial: Trial) -> None:
        """See `Trial.succeeded`."""
        health.note(failed=False)
        if health.state is CLOSED or trial.began_at >= health.opened_at:
            health.streak = 0
            health.pause_s = PAUSE_FIRST_S
            if health.state is not CLOSED:
                self._close_breaker(health)

    def failed(self, health: ReplicaHealth, trial: Trial, failure: Failure, now: float) -> None:
        """See `Trial.failed`."""
        if failure.waited and health.probe is not trial and not health.unanswered(trial, now):
            return
        health.note(failed=True)
        health.streak += 1
        if failure.hung:
            health.shunned_until = now + SHUN_S
        if health.state is CLOSED:
            many = health.recent.bit_count() >= FAILURES_OF_RECENT
            if failure.at_once or many or health.streak >= FAILURES_IN_A_ROW:
                self._open(health, failure, now)
            elif failure.hung:
                self._settle(health)
        elif health.probe is trial:
            if not health.told:
                health.pause_s = min(health.pause_s * 2, PAUSE_LAST_S)
            self._open(health, failure, now)
        elif failure.pause_s > health.until - now:  # said to a request that was on its way when the breaker opened
            self._open(health, failure, now)

    def closed(self, health: ReplicaHealth, trial: Trial, now: float) -> None:
        """See `Trial.close`."""
        queue = health.waiting[trial.streamed]
        waited = trial in queue
        if waited:
            del queue[trial]
        if health.probe is trial:
            health.probe = None
        elif waited and health.state is CLOSED and health.in_vain(trial, now):
            # Its client's patience ended first: not the replica's proven fault, but the next had better go elsewhere.
            health.shunned_until = now + SHUN_S
            self._settle(health)

    def _open(self, health: ReplicaHealth, failure: Failure, now: float) -> None:
        health.told = failure.pause_s > 0.0
        health.probe = None
        health.opened_at = now
        health.until = now + min(failure.pause_s or health.pause_s, MAX_TOLD_S)
        health.hung = failure.hung
        health.words = failure.words
        self._on_open(health.model)
        self._enter(health, Breaker.OPEN)
        log.warning(
            "breaker of replica %s opened for %.0f s: %s", health.id, max(1.0, health.until - now), failure.words
        )

    def _close_breaker(self, health: ReplicaHealth) -> None:
        health.probe = None
        health.recent = 0
        health.shunned_until = 0.0
        self._enter(health, CLOSED)
        log.info("breaker of replica %s closed: it answers again", health.id)

    def _enter(self, health: ReplicaHealth, state: Breaker) -> None:
        health.state = state
        self._settle(health)

    def _settle(self, health: ReplicaHealth) -> None:
        """Bring `suspects` and the report in line; a replica forgotten meanwhile is in neither."""
        if self._replicas.get(health.id) is not health:
            return
        if health.state is CLOSED:
            self._breakers.pop(health.id, None)
            self._failures.pop(health.id, None)
        else:
            self._breakers[health.id] = health.state.value
            self._failures[health.id] = health.words
        if health.suspect:
            self.suspects[health.id] = health
        else:
            self.suspects.pop(health.id, None)
