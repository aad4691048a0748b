"""A scope's row of the counters as this process knows it: read as of a moment, and written whole.

Reading and writing happen inside a section, with the row locked. Every request with limits passes here twice for each
of its scopes, which is why counts travel as plain tuples.
"""

import struct

from llmgw.core.limits import Spending, month_number
from llmgw.router.counter_file import H_SLOTS_HIGH, SLOTS, WORD
from llmgw.router.counters import (
    COUNTS,
    COUNTS_END,
    COUNTS_OFFSET,
    HEAD,
    R_GENERATION,
    R_OPEN,
    R_RESERVED,
    Counters,
    Hash,
)
from llmgw.router.windows import MINUTE_S, Spent, Window, begun_anew, raised, rolled

MINUTES_A_DAY = 1440

Counts = tuple[int, int, int, int, int, int, int, int, int]
"""Requests, tokens, the last minute's requests, its tokens, the minute; micros of the day, the day, of the month, the
month. As in the row."""


class Moment:
    """A point in time in every unit that rows are kept in; `move` makes it another."""

    __slots__ = ("at", "day", "elapsed", "minute", "month", "seconds")

    def __init__(self) -> None:
        self.at = self.elapsed = 0.0
        self.seconds = self.minute = self.day = self.month = -1

    def move(self, at: float) -> None:
        """Be `at`, in Unix seconds."""
        self.at = at
        self.seconds = int(at)
        self.elapsed = at - self.minute * MINUTE_S
        if not 0.0 <= self.elapsed < MINUTE_S:
            self.minute = self.seconds // 60
            self.elapsed = at - self.minute * MINUTE_S
            if self.minute // MINUTES_A_DAY != self.day:
                self.day = self.minute // MINUTES_A_DAY
                self.month = month_number(at)


class Row:
    """One row. Its place never changes: a scope that is given another row gets another of these."""

    __slots__ = (
        "_counts_at",
        "_counts_end",
        "_first",
        "_memory",
        "_open_at",
        "_words",
        "base",
        "budgeted",
        "counters",
        "generation",
        "hash",
        "heard",
        "seen",
    )

    def __init__(self, counters: Counters, base: int, scope: Hash, seen: Counts | None) -> None:
        """The row at byte `base`; `seen` is what this process wrote last into another row that was the scope's."""
        self.counters = counters
        self.base = base
        self.hash = scope
        self.generation = counters.generation(base)
        self.budgeted = 0
        self.heard: Spending | None = None
        """What the store said last that is counted in the row already."""
        self.seen = seen
        """What this process wrote last: should the row be lost, the next one starts with what was spent."""
        self._words = counters.words
        self._memory = counters.memory
        self._first = base // WORD
        self._open_at = self._first + R_OPEN + counters.slot
        self._counts_at, self._counts_end = base + COUNTS_OFFSET, base + COUNTS_END

    @property
    def ours(self) -> bool:
        """Whether the row is still this scope's."""
        return self.counters.belongs(self.base, self.hash)

    @property
    def undisturbed(self) -> bool:
        """Whether nobody went past this process, stopped inside its section, since it loaded the row."""
        return self._words[self._first + R_GENERATION] == self.generation

    @property
    def open_requests(self) -> int:
        """Requests open in all routers."""
        return self._over_slots(self._first + R_OPEN)

    @property
    def reserved_micros(self) -> int:
        """Micros reserved by all routers for what is open."""
        return self._over_slots(self._first + R_RESERVED)

    def _over_slots(self, at: int) -> int:
        """The sum over the routers' words from `at` on; a machine has few, so that a slice would cost more."""
        words, total = self._words, 0
        for word in range(at, at + words[H_SLOTS_HIGH]):
            total += words[word]
        return total

    def load(self, moment: Moment) -> Counts | None:
        """What is counted as of `moment`; none when the row was given to another scope."""
        (generation, first, second, _, _, requests, tokens, last, last_tokens, minute, day_micros, day, month_micros,
         month) = HEAD.unpack_from(self._memory, self.base)  # fmt: skip
        if generation != self.generation:
            if (first, second) != self.hash:
                return None
            self.generation = generation
        if minute != moment.minute:
            minute, requests, tokens, last, last_tokens = rolled(
                Window(minute, requests, tokens, last, last_tokens), moment.minute
            )
        if day != moment.day or month != moment.month:
            day_micros, day, month_micros, month = begun_anew(
                Spent(day_micros, day, month_micros, month), moment.day, moment.month
            )
        return requests, tokens, last, last_tokens, minute, day_micros, day, month_micros, month

    def catch_up(self, counts: Counts, heard: Spending) -> Counts:
        """The counts, spending raised to what the store said and, in a row given out anew, to what was seen before."""
        spent = Spent(*counts[5:])
        if self.heard is None and self.seen is not None:
            spent = raised(spent, *self.seen[5:])
        spent = raised(spent, heard.day_micros, heard.day, heard.month_micros, heard.month)
        return (*counts[:5], *spent)

    def write(self, counts: Counts, moment: Moment, open_more: int, reserve_more: int) -> None:
        """Put these counts into the row, and so much more to what this process has open and reserved."""
        requests, tokens, last, last_tokens, minute, day_micros, day, month_micros, month = counts
        try:
            # And not `pack_into`, which zeroes first what it then writes: a kill in between would lose what was spent.
            self._memory[self._counts_at : self._counts_end] = COUNTS.pack(
                moment.seconds, self.budgeted, requests, tokens, last, last_tokens, minute,
                day_micros, day, month_micros, month,
            )  # fmt: skip
        except struct.error:
            # Beyond 64 bits: the row is damaged, these are no figures of ours.
            self._memory[self._counts_at : self._counts_end] = bytes(COUNTS.size)
        words, at = self._words, self._open_at
        now_open = words[at] + open_more
        words[at] = now_open if now_open > 0 else 0
        if reserve_more:
            reserved = words[at + SLOTS] + reserve_more
            words[at + SLOTS] = reserved if reserved > 0 else 0
        self.seen = counts
