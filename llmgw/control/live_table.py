"""The rows of the live feed, encoded once for all readers. A reader holds a revision; a delta is what is newer than it.

Nothing is kept for anyone in particular, so a slow reader costs nothing and misses only intermediate versions. Removed
keys are remembered while there is room; whoever's revision is older than what was forgotten gets everything anew.
"""

import secrets
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import msgspec
import trio

from llmgw.api.watch import Delta, Snapshot

MAX_TOMBSTONES = 4096
"""Removed keys remembered of a topic."""

Wanted = Mapping[str, frozenset[str] | None]
"""Topics and which keys of each; none is all."""
_encoder = msgspec.json.Encoder()


@dataclass(slots=True)
class _Topic:
    rows: dict[str, tuple[int, msgspec.Raw]] = field(default_factory=dict)
    """In the order of their revisions, oldest first."""
    gone: dict[str, int] = field(default_factory=dict)
    """Revision of each removal, oldest first."""
    horizon: int = 0
    """Removals up to this revision may be forgotten."""


class LiveTable:
    """Topic → key → row. `announce` after a round of changes wakes the readers."""

    def __init__(self, topics: Iterable[str], *, max_tombstones: int = MAX_TOMBSTONES) -> None:
        self.run = secrets.token_hex(6)
        """Names this table's life; revisions of another mean nothing."""
        self.rev = 0
        self.changed = trio.Event()
        """Set, and replaced, by `announce`."""
        self._announced = 0
        self._max_tombstones = max_tombstones
        self._topics = {topic: _Topic() for topic in topics}

    def put(self, topic: str, key: str, row: msgspec.Struct) -> bool:
        """Keep the row; false when it is the same as before, and then nobody hears of it."""
        return self.put_encoded(topic, key, _encoder.encode(row))

    def put_encoded(self, topic: str, key: str, row: bytes) -> bool:
        """`put` for a row that is JSON already."""
        held = self._topics[topic]
        before = held.rows.get(key)
        if before is not None:
            if bytes(before[1]) == row:
                return False
            # Taken out first, so that the dictionary's order stays that of the revisions.
            del held.rows[key]
        self.rev += 1
        held.rows[key] = (self.rev, msgspec.Raw(row))
        held.gone.pop(key, None)
        return True

    def remove(self, topic: str, key: str) -> bool:
        """Forget the row; false when there was none."""
        held = self._topics[topic]
        if held.rows.pop(key, None) is None:
            return False
        self.rev += 1
        held.gone[key] = self.rev
        if len(held.gone) > self._max_tombstones:
            held.horizon = held.gone.pop(next(iter(held.gone)))
        return True

    def publish(self, topic: str, rows: Mapping[str, msgspec.Struct]) -> None:
        """Make the topic hold exactly these rows."""
        for key in self._topics[topic].rows.keys() - rows.keys():
            self.remove(topic, key)
        for key, row in rows.items():
            self.put(topic, key, row)

    def keys(self, topic: str) -> frozenset[str]:
        """Keys of the topic's rows."""
        return frozenset(self._topics[topic].rows)

    def announce(self) -> None:
        """Wake whoever waits for `changed`, if anything did change."""
        if self.rev != self._announced:
            self._announced = self.rev
            self.changed.set()
            self.changed = trio.Event()

    def rows(self, wanted: Wanted) -> dict[str, dict[str, msgspec.Raw]]:
        """All rows wanted, every wanted topic named even when it is empty."""
        found: dict[str, dict[str, msgspec.Raw]] = {}
        for topic, keys in wanted.items():
            held = self._topics[topic].rows
            if keys is None:
                found[topic] = {key: row for key, (_, row) in held.items()}
            else:
                found[topic] = {key: held[key][1] for key in sorted(keys & held.keys())}
        return found

    def newer(self, topic: str, keys: frozenset[str] | None, since: int) -> dict[str, msgspec.Raw]:
        """Rows of the topic with a revision over `since`; the work is that of what is found."""
        held = self._topics[topic].rows
        if keys is not None:
            return {key: held[key][1] for key in keys if key in held and held[key][0] > since}
        found: dict[str, msgspec.Raw] = {}
        for key, (rev, row) in reversed(held.items()):
            if rev <= since:
                break
            found[key] = row
        return found

    def removed(self, topic: str, keys: frozenset[str] | None, since: int) -> tuple[str, ...]:
        """Keys of the topic removed after `since` and not back."""
        found: list[str] = []
        for key, rev in reversed(self._topics[topic].gone.items()):
            if rev <= since:
                break
            if keys is None or key in keys:
                found.append(key)
        return tuple(found)

    def reaches_back(self, wanted: Wanted, since: int) -> bool:
        """Whether all that happened to the wanted topics after `since` is still known."""
        return 0 <= since <= self.rev and all(self._topics[topic].horizon <= since for topic in wanted)


class Cursor:
    """Where one reader stands: a revision, and nothing else that grows."""

    def __init__(self, table: LiveTable, wanted: Wanted, *, epoch: str | None = None, since: int | None = None) -> None:
        """Continues after `since` when `epoch` is that of the same table and of the same `wanted`."""
        self._table = table
        self._wanted = wanted
        listed = [(topic, None if keys is None else sorted(keys)) for topic, keys in sorted(wanted.items())]
        # What is wanted is part of the epoch: rows that were not wanted before may be older than `since`.
        self.epoch = f"{table.run}-{zlib.crc32(msgspec.json.encode(listed)):08x}"
        self._rev: int | None = since if since is not None and epoch == self.epoch else None

    @property
    def rev(self) -> int:
        """Revision of the last message."""
        return self._rev or 0

    def take(self, *, now: float, actor: str, role: str) -> Snapshot | Delta | None:
        """The next message; none when nothing wanted changed. The first is never none."""
        table, since = self._table, self._rev
        self._rev = table.rev
        if since is None or not table.reaches_back(self._wanted, since):
            rows = table.rows(self._wanted)
            return Snapshot(epoch=self.epoch, rev=table.rev, now=now, actor=actor, role=role, rows=rows)
        if since == table.rev:
            return None
        changed = {topic: new for topic, keys in self._wanted.items() if (new := table.newer(topic, keys, since))}
        gone = {topic: names for topic, keys in self._wanted.items() if (names := table.removed(topic, keys, since))}
        return Delta(rev=table.rev, now=now, rows=changed, gone=gone) if changed or gone else None

    def first(self, *, now: float, actor: str, role: str) -> Snapshot | Delta:
        """`take` for the first message: a continued reader hears at once that it is."""
        return self.take(now=now, actor=actor, role=role) or Delta(rev=self.rev, now=now)
