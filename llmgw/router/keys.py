"""API keys as a router knows them: an answer is cached, trouble never is, and a key known once is never kept waiting.

The store is asked through the feed, once for each missing key however many wait for it. The question belongs to the
cache, not to the caller who asked first, so a caller that goes away takes nobody with it. While the control plane or
its store is away, known keys are honoured for as long as it takes; unknown ones are 503. A key that changed is
forgotten at once, and an answer that was on its way when it changed is asked for again.

Keys in clear are not kept: cached records are found by HMAC digest, and faster by a BLAKE2b hash under a key made
anew by each process.
"""

import hashlib
import logging
import os
import re
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field

import trio

from llmgw.core.routing import KeyAnswer, KeyRecord
from llmgw.router.ports import Refusal
from llmgw.router.ration import Ration, address_group

TTL_S = 30.0
"""A known key is asked for again after this long, in the background."""
REFRESH_BEFORE_S = 5.0
"""A key used this long before its end is asked for again already."""
NEGATIVE_TTL_S = 5.0
"""A key that was nobody's may be somebody's after this long."""
RETRY_S = 2.0
"""A refresh that failed is not tried again sooner."""
LOOKUP_WAIT_S = 3.0
"""A request with an unknown key waits this long for an answer, then it is 503."""
CONFIRM_WAIT_S = 1.0
"""A request with a key restored from disk waits this long for the control plane's word on it, then it is honoured."""
LOOKUP_EXPIRES_S = 10.0
"""A question unanswered for this long has failed."""
AWAY_GRACE_S = 1.0
"""A feed lost for less than this may just be reconnecting: requests with unknown keys wait for it."""
MAX_KNOWN = 10_000
MAX_NOBODYS = 2_000
MAX_PENDING = 1_000
"""Bounds of the cache: known keys, keys that are nobody's, questions open."""

_log = logging.getLogger(__name__)
_KEY = re.compile(rb"[\x21-\x7e]{8,200}")


@dataclass(slots=True)
class _Entry:
    """A known key. `confirmed`: this process heard of it from the control plane, it is not only restored."""

    digest: str
    record: KeyRecord
    refresh_at: float
    confirmed: bool
    fingerprint: bytes | None = None


@dataclass(slots=True)
class _Lookup:
    """A question on its way. `dirty`: the key changed since it was asked; `group`: whose guess it may prove to be."""

    asked_at: float
    group: str | None
    dirty: bool = False
    done: trio.Event = field(default_factory=trio.Event)


@dataclass(slots=True)
class _Late:
    """Answers that may come yet to questions given up. `dirty`: the key changed since one of them was asked."""

    count: int = 0
    dirty: bool = False


class KeyCache:
    """Answers whose key it is. Single-threaded; `feed_up`, `feed_down`, `answered`, `changed` are the feed's calls."""

    def __init__(
        self,
        digest: Callable[[bytes], str],
        *,
        ration: Ration | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`digest` turns a key into what the store knows of it (`core.secrets.key_digest`)."""
        self.ask: Callable[[str], None] = _ask_nobody
        """Sends the question for a digest to the control plane; set by the feed."""
        self.on_learned: Callable[[str, KeyRecord], None] = _learned_by_nobody
        """Called with a digest and its record when it is new or differs from what was known."""
        self.on_forgotten: Callable[[str], None] = _ask_nobody
        """Called with the digest of a key that must not be honoured on what was known of it."""
        self.on_stale: Callable[[str], None] = _ask_nobody
        """Called with the id of a key that may have changed, or without one when any may have."""
        self._digest = digest
        self._clock = clock
        self._ration = ration or Ration()
        self._salt = os.urandom(32)
        self._known: OrderedDict[str, _Entry] = OrderedDict()
        self._fast: dict[bytes, _Entry] = {}
        self._nobodys: OrderedDict[str, float] = OrderedDict()
        self._pending: dict[str, _Lookup] = {}
        self._given_up: dict[str, _Late] = {}
        """By digest; forgotten with the connection."""
        self._connected = False
        self._away_since = clock()
        self._failed_at = float("-inf")

    # what the data plane calls

    def cached(self, key: bytes) -> KeyRecord | None:
        """The record of a key the control plane confirmed once, without waiting; none means: `authenticate`."""
        entry = self._fast.get(self._fingerprint(key))
        if entry is None:
            return None
        self._touch(entry)
        return entry.record

    async def authenticate(self, key: bytes | None, client: str) -> KeyRecord:
        """The record of `key`, presented by the peer address `client`.

        Raises Refusal: 401 without a key or with nobody's, 429 when the address guesses too much, 503 when it cannot
        be found out now.
        """
        if key is None:
            raise _unauthenticated("no api key was given: send one as 'Authorization: Bearer KEY'", "missing_api_key")
        if _KEY.fullmatch(key) is None:
            raise _unauthenticated(
                "this is no api key: it takes 8 to 200 printable ASCII characters", "invalid_api_key"
            )
        found = self.cached(key)
        if found is not None:
            return found
        digest = self._digest(key)
        entry = self._known.get(digest)
        if entry is not None and (entry.confirmed or not self._answers_expected()):
            return self._use(entry, key)
        wait_s = CONFIRM_WAIT_S if entry is not None else LOOKUP_WAIT_S if self._connected else AWAY_GRACE_S
        with trio.move_on_after(wait_s):
            await self._looked_up(digest, address_group(client))
        return self._verdict(digest, key)

    # what the feed calls

    def feed_up(self) -> None:
        """The control plane is there: whatever was asked is asked (again)."""
        self._connected = True
        self._given_up.clear()
        self._failed_at = float("-inf")
        for entry in self._known.values():
            # It may have changed unheard.
            entry.refresh_at = 0.0
        for digest in self._pending:
            self.ask(digest)
        self.on_stale("")

    def feed_down(self) -> None:
        """The control plane is away."""
        self._connected = False
        self._away_since = self._clock()

    def answered(self, answer: KeyAnswer) -> None:
        """The control plane's word on a digest; one that nobody asked for is ignored."""
        outdated = self._is_outdated(answer.digest)
        lookup = self._pending.get(answer.digest)
        if lookup is None:
            return
        if lookup.dirty or outdated:
            lookup.dirty = False
            self.ask(answer.digest)
            return
        now = self._clock()
        if answer.error:
            self._fail(answer.digest, lookup, answer.error)
            return
        if answer.record is None or answer.record.revoked:
            self._forget(answer.digest)
            self._nobodys[answer.digest] = now + NEGATIVE_TTL_S
            if len(self._nobodys) > MAX_NOBODYS:
                self._nobodys.popitem(last=False)
        else:
            self._learn(answer.digest, answer.record, now)
        self._end(answer.digest, lookup, guess=answer.record is None)

    def changed(self, digest: str) -> None:
        """The key changed or was revoked: nothing that was known of it is used again."""
        entry = self._known.get(digest)
        if entry is not None:
            self._drop(digest)
        # Even if it is not cached here it may be kept on disk, by this router or another.
        self.on_forgotten(digest)
        self._nobodys.pop(digest, None)
        lookup = self._pending.get(digest)
        if lookup is not None:
            lookup.dirty = True
        late = self._given_up.get(digest)
        if late is not None:
            late.dirty = True
        self.on_stale(entry.record.id if entry is not None else "")

    def restore(self, digest: str, record: KeyRecord) -> None:
        """A record kept on disk by an earlier router: honoured, but confirmed first if the control plane answers."""
        if digest not in self._known and len(self._known) < MAX_KNOWN:
            self._known[digest] = _Entry(digest=digest, record=record, refresh_at=0.0, confirmed=False)

    def sweep(self) -> None:
        """Give up the questions that were never answered; called every second or so."""
        now = self._clock()
        for digest, lookup in list(self._pending.items()):
            if now - lookup.asked_at >= LOOKUP_EXPIRES_S:
                if digest in self._given_up or len(self._given_up) < MAX_PENDING:
                    late = self._given_up.setdefault(digest, _Late())
                    late.count += 1
                    late.dirty = late.dirty or lookup.dirty
                self._fail(digest, lookup, f"no answer within {LOOKUP_EXPIRES_S:.0f} s")

    def _is_outdated(self, digest: str) -> bool:
        """Whether an answer that came now may be the one to a question given up before the key changed."""
        late = self._given_up.get(digest)
        if late is None:
            return False
        late.count -= 1
        if not late.count:
            del self._given_up[digest]
        return late.dirty

    # looking up

    async def _looked_up(self, digest: str, group: str) -> None:
        """Wait until there is something to say on `digest`."""
        while (lookup := self._pending.get(digest)) is None:
            entry = self._known.get(digest)
            settled = entry.confirmed if entry else self._nobodys.get(digest, float("-inf")) > self._clock()
            if settled or not self._reachable():
                return
            turn = None if entry else self._ration.check(group, self._clock())
            if turn is not None:
                await turn.wait()
            elif not self._start(digest, None if entry else group):
                return
        if self._reachable():
            await lookup.done.wait()

    def _start(self, digest: str, group: str | None) -> bool:
        """Ask for `digest`; false when too much is being asked already."""
        if len(self._pending) >= MAX_PENDING:
            return False
        now = self._clock()
        self._pending[digest] = _Lookup(asked_at=now, group=group)
        if group is not None:
            self._ration.opened(group, now)
        if self._connected:
            self.ask(digest)
        return True

    def _verdict(self, digest: str, key: bytes) -> KeyRecord:
        entry = self._known.get(digest)
        if entry is not None:
            return self._use(entry, key)
        if self._nobodys.get(digest, 0.0) > self._clock():
            raise _unauthenticated("this api key is not known, or was revoked", "invalid_api_key")
        raise Refusal(
            503,
            "api keys cannot be checked at the moment; keys in use lately go on working, try this one again shortly",
            type="server_error",
            code="auth_unavailable",
            retry_after_s=RETRY_S,
        )

    def _fail(self, digest: str, lookup: _Lookup, error: str) -> None:
        now = self._clock()
        if now - self._failed_at >= TTL_S:
            _log.warning("api keys cannot be checked: %s", error)
        self._failed_at = now
        self._end(digest, lookup, guess=False)

    def _end(self, digest: str, lookup: _Lookup, *, guess: bool) -> None:
        del self._pending[digest]
        if lookup.group is not None:
            self._ration.closed(lookup.group, self._clock(), guess=guess)
        lookup.done.set()

    def _reachable(self) -> bool:
        return self._connected or self._clock() - self._away_since < AWAY_GRACE_S

    def _answers_expected(self) -> bool:
        return self._connected and self._clock() - self._failed_at >= RETRY_S

    # the cache

    def _fingerprint(self, key: bytes) -> bytes:
        return hashlib.blake2b(key, digest_size=16, key=self._salt).digest()

    def _use(self, entry: _Entry, key: bytes) -> KeyRecord:
        if entry.confirmed and entry.fingerprint is None:
            entry.fingerprint = self._fingerprint(key)
            self._fast[entry.fingerprint] = entry
        self._touch(entry)
        return entry.record

    def _touch(self, entry: _Entry) -> None:
        """`entry` was used: it is evicted last, and asked for again when it is near its end."""
        self._known.move_to_end(entry.digest)
        now = self._clock()
        if now >= entry.refresh_at and self._connected and entry.digest not in self._pending:
            entry.refresh_at = now + RETRY_S
            self._start(entry.digest, None)

    def _learn(self, digest: str, record: KeyRecord, now: float) -> None:
        self._nobodys.pop(digest, None)
        entry = self._known.get(digest)
        if entry is None:
            entry = self._known[digest] = _Entry(digest=digest, record=record, refresh_at=0.0, confirmed=True)
            self.on_learned(digest, record)
            if len(self._known) > MAX_KNOWN:
                self._drop(next(iter(self._known)))
        changed = entry.record != record
        if changed:
            self.on_learned(digest, record)
        entry.record, entry.confirmed, entry.refresh_at = record, True, now + TTL_S - REFRESH_BEFORE_S
        if changed:
            self.on_stale(record.id)

    def _forget(self, digest: str) -> None:
        entry = self._known.get(digest)
        if entry is not None:
            self._drop(digest)
            self.on_forgotten(digest)
            self.on_stale(entry.record.id)

    def _drop(self, digest: str) -> None:
        entry = self._known.pop(digest)
        if entry.fingerprint is not None:
            del self._fast[entry.fingerprint]


async def sweep_lookups(keys: KeyCache, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
    """Service: gives up questions that were never answered."""
    task_status.started()
    while True:
        await trio.sleep(1.0)
        keys.sweep()


def _unauthenticated(message: str, code: str) -> Refusal:
    return Refusal(401, message, type="authentication_error", code=code)


def _ask_nobody(_: str) -> None:
    """Nobody is connected."""


def _learned_by_nobody(_: str, __: KeyRecord) -> None:
    """Nobody keeps records."""
