"""One table of counters a machine: a row a scope, shared by its routers, each change made under the row's own lock.

A process killed anywhere leaves every word old or new, and its locks to the kernel. Rows are found by a hash of kind
and id, under the table's lock. A row that was idle for `IDLE_S` may be given to another scope, rows with budgets last;
its generation changes, by which its former users notice. It changes too when a process stopped inside a section is
gone past: a section compares it just before it writes, so one that wakes begins again instead of undoing the rest.
"""

import hashlib
import mmap
import time
from pathlib import Path
from struct import Struct

from llmgw.router.counter_file import (
    ALLOCATE_ROWS,
    BUCKET_WORDS,
    BUCKETS,
    H_ALLOCATED,
    H_ROWS,
    H_SLOTS_HIGH,
    H_USED,
    INDEX_AT,
    ROW_BYTES,
    ROW_HEAD_WORDS,
    ROW_WORDS,
    ROWS,
    ROWS_AT,
    SLOTS,
    WORD,
    allocate,
    open_file,
    private_map,
)
from llmgw.router.counter_locks import Locks, complain

IDLE_S = 120
"""A row that counted nothing for this long may be another's: its minutes are out of view by then."""
FULL_RETRY_S = 1.0
"""After a search of the whole table for an idle row was in vain it is not repeated for this long."""
# Words of a row.
R_GENERATION, R_HASH, R_HASH_2, R_USED_AT, R_BUDGETED = range(5)
R_OPEN = ROW_HEAD_WORDS
R_RESERVED = ROW_HEAD_WORDS + SLOTS

COUNTS = Struct("11q")
"""Words from `R_USED_AT` on: used at, budgeted, requests, tokens, last requests, last tokens, minute, day's micros,
day, month's micros, month. A period's number stands behind its counts: a write cut short leaves no old sum in it."""
HEAD = Struct("14q")
"""The same with generation and hash before them."""
COUNTS_OFFSET = R_USED_AT * WORD
COUNTS_END = COUNTS_OFFSET + COUNTS.size

Hash = tuple[int, int]

_pair = Struct("2q")


def scope_hash(kind: str, name: str) -> Hash:
    """What a scope's row is known by: 128 bits, so that two scopes never share one."""
    first, second = _pair.unpack(hashlib.blake2b(f"{kind}\0{name}".encode(), digest_size=_pair.size).digest())
    return first, second


class Counters:
    """The table as one process sees it. Single-threaded; nothing here waits longer than a few `PATIENCE_S`."""

    def __init__(self, memory: mmap.mmap, descriptor: int | None) -> None:
        """Over the map of a counter file; without a descriptor it is this process's own and needs no locks."""
        self.memory = memory
        self.words = memoryview(memory).cast("q")
        self.slot = 0
        """Where in a row this process counts what it has open; `slots.claim` sets it."""
        self.locks = Locks(descriptor, ROWS_AT) if descriptor is not None else None
        """None for counters of this process alone."""
        self._rows = self.words[H_ROWS]
        self._hand = 0
        self._full_until = 0.0

    @classmethod
    def open(cls, path: Path, *, rows: int = ROWS, create: bool = True) -> "Counters":
        """The machine's counters; raises OSError when they cannot be had."""
        descriptor, memory = open_file(path, rows=rows, create=create)
        counters = cls(memory, descriptor)
        try:
            # A file system without locks is found out here and not by the first request.
            if counters.lock_table():
                counters.unlock_table()
        except OSError:
            counters.close()
            raise
        return counters

    @classmethod
    def private(cls, *, rows: int = ROWS) -> "Counters":
        """Counters of this process alone."""
        counters = cls(private_map(rows), None)
        counters.words[H_SLOTS_HIGH] = 1
        return counters

    @property
    def shared(self) -> bool:
        """Whether other processes count here too."""
        return self.locks is not None

    def close(self) -> None:
        """Let go of the file. Twice is harmless."""
        self.words.release()
        self.memory.close()
        if self.locks is not None:
            self.locks.close()

    def lock_table(self) -> bool:
        """Lock the giving out of rows and slots; false when somebody keeps it. Raises OSError where no lock works."""
        return self.locks is None or self.locks.lock_table()

    def unlock_table(self) -> None:
        """Unlock it."""
        if self.locks is not None:
            self.locks.unlock_table()

    def lock(self, bases: tuple[int, ...]) -> None:
        """Lock the rows that begin at these bytes, which ascend."""
        if self.locks is None:
            return
        for base in self.locks.lock(bases):
            self.words[base // WORD + R_GENERATION] += 1

    def unlock(self) -> None:
        """Unlock every row."""
        if self.locks is not None:
            self.locks.unlock()

    def generation(self, base: int) -> int:
        """The row's generation; it changes when the row is given to another scope or a stopped process is gone past."""
        return self.words[base // WORD + R_GENERATION]

    def belongs(self, base: int, scope: Hash) -> bool:
        """Whether the row is this scope's."""
        at = base // WORD
        return (self.words[at + R_HASH], self.words[at + R_HASH_2]) == scope

    def find(self, scope: Hash, *, budgeted: bool, now: int) -> int | None:
        """The byte where the scope's row begins, given out if it had none; none when there is no row to be had.

        `budgeted` rows are taken from their scope last. `now` is Unix seconds. No row may be locked by this process.
        """
        try:
            if not self.lock_table():
                return None
        except OSError as error:
            complain(f"the shared counters cannot be locked: {error}")
            return None
        try:
            return self._find(scope, budgeted, now)
        finally:
            self.unlock_table()

    def open_requests(self, base: int) -> int:
        """Requests open in all routers."""
        at = base // WORD + R_OPEN
        return sum(self.words[at : at + self.words[H_SLOTS_HIGH]])

    def reserved_micros(self, base: int) -> int:
        """Micros reserved by all routers for what is open."""
        at = base // WORD + R_RESERVED
        return sum(self.words[at : at + self.words[H_SLOTS_HIGH]])

    def clear_slot(self, slot: int) -> None:
        """What this slot has open in any row is open no more; under the table's lock, for a process that is gone."""
        words = self.words
        for row in range(words[H_USED]):
            at = ROWS_AT // WORD + row * ROW_WORDS + slot
            for place in (at + R_OPEN, at + R_RESERVED):
                if words[place]:
                    words[place] = 0

    def _find(self, scope: Hash, budgeted: bool, now: int) -> int | None:
        words = self.words
        bucket = self._bucket(scope)
        free = oldest = -1
        for entry in range(bucket, bucket + BUCKET_WORDS):
            row = words[entry] - 1
            base = ROWS_AT + row * ROW_BYTES
            if not 0 <= row < words[H_USED] or self._bucket(self._hash_of(base)) != bucket:
                # Empty, or left behind by a process killed while it gave the row to another scope.
                free = entry if free < 0 else free
            elif self.belongs(base, scope):
                return base
            elif free < 0 and self._is_idle(base, now):
                oldest = entry
        if free < 0:
            if oldest < 0:
                return None
            free, taken = oldest, ROWS_AT + (words[oldest] - 1) * ROW_BYTES
        else:
            taken = self._fresh() or self._idle_row(now)
            if not taken:
                return None
        self._give(taken, scope, budgeted, now)
        words[free] = (taken - ROWS_AT) // ROW_BYTES + 1
        return taken

    def _give(self, base: int, scope: Hash, budgeted: bool, now: int) -> None:
        """Make the row this scope's, empty. The order is what makes a kill harmless: no hash before all is empty."""
        words, at = self.words, base // WORD
        old = self._bucket(self._hash_of(base))
        for entry in range(old, old + BUCKET_WORDS):
            if words[entry] == (base - ROWS_AT) // ROW_BYTES + 1:
                words[entry] = 0
        self.lock((base,))
        try:
            words[at + R_GENERATION] += 1
            words[at + R_HASH] = words[at + R_HASH_2] = 0
            self.memory[base + COUNTS_OFFSET : base + ROW_BYTES] = bytes(ROW_BYTES - COUNTS_OFFSET)
            words[at + R_USED_AT], words[at + R_BUDGETED] = now, int(budgeted)
            words[at + R_HASH], words[at + R_HASH_2] = scope
        finally:
            self.unlock()

    def _fresh(self) -> int:
        """A row that was never given out; 0 when all were, or the disk has no room for more."""
        words = self.words
        row = words[H_USED]
        if row >= self._rows:
            return 0
        if row >= words[H_ALLOCATED] and self.locks is not None:
            count = min(ALLOCATE_ROWS, self._rows - row)
            try:
                allocate(self.locks.descriptor, row, count)
            except OSError as error:
                complain(f"the shared counters cannot grow: {error}")
                return 0
            words[H_ALLOCATED] = row + count
        words[H_USED] = row + 1
        return ROWS_AT + row * ROW_BYTES

    def _idle_row(self, now: int) -> int:
        """An idle row, one without budgets if there is one; 0 for none."""
        if time.monotonic() < self._full_until:
            return 0
        used = self.words[H_USED]
        budgeted = 0
        for step in range(used):
            row = (self._hand + step) % used
            base = ROWS_AT + row * ROW_BYTES
            if self._is_idle(base, now):
                if not self.words[base // WORD + R_BUDGETED]:
                    self._hand = row + 1
                    return base
                budgeted = budgeted or base
        if not budgeted:
            self._full_until = time.monotonic() + FULL_RETRY_S
        return budgeted

    def _is_idle(self, base: int, now: int) -> bool:
        """Nothing open and nothing counted lately; a time far ahead was written by a clock since set back."""
        quiet_s = abs(now - self.words[base // WORD + R_USED_AT])
        return quiet_s > IDLE_S and not self.open_requests(base) and not self.reserved_micros(base)

    def _hash_of(self, base: int) -> Hash:
        at = base // WORD
        return self.words[at + R_HASH], self.words[at + R_HASH_2]

    def _bucket(self, scope: Hash) -> int:
        return INDEX_AT + (scope[0] & (BUCKETS - 1)) * BUCKET_WORDS
