"""Which rows a table shows, and in which order. Sorting is stable over the keys' natural order, unknown values last.

A figure that changes moves its row no sooner than HOLD_S after rows moved last; names and states move theirs at once.
"""

import math
import re
from collections.abc import Iterable, Mapping
from typing import Generic, TypeVar

from console.state.filter import Filter
from console.widgets.columns import Column, Seen, SortValue, TableSpec

T = TypeVar("T")
HOLD_S = 10.0
"""Rows sorted by a figure keep their places so long: none can be read, pointed at or marked while it jumps."""
_DIGITS = re.compile(r"(\d+)")


def natural(key: str) -> list[tuple[int, int, str]]:
    """Sort key by which `gpu10` comes after `gpu9`."""
    parts = _DIGITS.split(key.casefold())
    return [(0, int(part), part) if i % 2 else (1, 0, part) for i, part in enumerate(parts[:15]) if part]


class Order(Generic[T]):
    """Keys of the rows that match, in order, kept up to date by the keys that changed."""

    def __init__(self, spec: TableSpec[T]) -> None:
        self._spec = spec
        self.filter = Filter()
        self.column = spec.sort
        self.descending = spec.descending
        self.keys: list[str] = []
        self._places: dict[str, int] = {}
        self._by_name: list[str] = []
        self._values: dict[str, SortValue] = {}
        self._matching: set[str] = set()
        self._held: set[str] = set()
        """Keys whose figure is another than the one they are sorted by."""
        self._moved_at = -math.inf

    def place(self, key: str) -> int | None:
        """Where a key is; none when it is not shown."""
        return self._places.get(key)

    def update(self, rows: Mapping[str, T], keys: Iterable[str], seen: Seen, *, whole: bool) -> bool:
        """Take in the rows under `keys`; whether the order is another."""
        new_keys = whole or any((key in rows) is not (key in self._values) for key in keys)
        holds = not whole and self._holds(seen.now)
        if not holds and self._held:
            keys = {*keys, *self._held}
        moved = new_keys
        for key in keys:
            moved |= self._take(rows, key, seen, holds=holds)
        if self._spec.in_order:
            return self._arrange(list(rows))
        if new_keys:
            self._by_name = sorted(rows, key=natural)
        if not moved or not self._arrange(self._by_name):
            return False
        self._moved_at = self._moved_at if holds else seen.now
        return True

    def _holds(self, now: float) -> bool:
        """Whether rows keep the figures they are sorted by; such columns are those that begin with the highest."""
        column = self._column(self.column)
        return column is not None and column.descending and now - self._moved_at < HOLD_S

    def set_filter(self, filter_: Filter, rows: Mapping[str, T], seen: Seen) -> bool:
        """Show the rows that match `filter_`; whether others are shown than before."""
        self.filter = filter_
        return self._again(rows, seen)

    def sort_by(self, column: str, descending: bool, rows: Mapping[str, T], seen: Seen) -> None:
        """Sort by another column, or the other way."""
        self.column, self.descending = column, descending
        self._again(rows, seen)

    def step(self, by: int) -> tuple[str, bool]:
        """The sortable column `by` further on, and the way it begins with."""
        names = ["", *(column.key for column in self._spec.columns if column.sort is not None)]
        here = names.index(self.column) if self.column in names else 0
        column = names[(here + by) % len(names)]
        chosen = self._column(column)
        return column, chosen.descending if chosen else False

    def _again(self, rows: Mapping[str, T], seen: Seen) -> bool:
        self._moved_at = seen.now
        for key in rows:
            self._take(rows, key, seen, holds=False)
        return self._arrange(list(rows) if self._spec.in_order else self._by_name)

    def _column(self, key: str) -> Column[T] | None:
        return next((column for column in self._spec.columns if column.key == key and column.sort is not None), None)

    def _take(self, rows: Mapping[str, T], key: str, seen: Seen, *, holds: bool) -> bool:
        self._held.discard(key)
        if key not in rows:
            self._matching.discard(key)
            return self._values.pop(key, None) is not None
        row = rows[key]
        moved = False
        if holds and key in self._values:
            self._held.add(key)
        else:
            column = self._column(self.column)
            value = column.sort(row, seen) if column is not None and column.sort is not None else None
            moved = self._values.get(key) != value
            self._values[key] = value
        matches = not self.filter or self.filter.matches(self._spec.words(row), self._spec.facts(row))
        if matches is not (key in self._matching):
            self._matching ^= {key}
            moved = True
        return moved

    def _arrange(self, by_name: list[str]) -> bool:
        keys = [key for key in by_name if key in self._matching]
        if self._column(self.column) is not None and not self._spec.in_order:
            values = self._values
            known = [key for key in keys if values[key] is not None]
            unknown = [key for key in keys if values[key] is None]
            known.sort(key=lambda key: values[key], reverse=self.descending)  # type: ignore[arg-type,return-value]
            keys = known + unknown
        elif self.descending and not self._spec.in_order:
            keys.reverse()
        if keys == self.keys:
            return False
        self.keys = keys
        self._places = {key: place for place, key in enumerate(keys)}
        return True
