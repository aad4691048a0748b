"""An audited change taken apart: every value by its path, as it was and as it is. Bounded whatever an entry holds."""

from collections.abc import Iterator
from dataclasses import dataclass

import msgspec

from console.signs import signs
from llmgw.api.watch import AuditRow

MAX_VALUES = 2000
"""Values looked at on each side; the rest is said to be there."""
MAX_DEPTH = 12
"""Levels taken apart; what lies deeper is shown as JSON."""
MAX_KEPT = 512
"""Entries kept taken apart; the feed brings 200."""
SHOWN_IN_ROW = 3
"""Changed values named in a table's row."""
NOTHING = (None, "", "null", "[]", "{}")
"""Values that say that there is none."""


@dataclass(frozen=True, kw_only=True)
class Value:
    """One value on both sides; none is "not there"."""

    path: str
    before: str | None
    after: str | None

    @property
    def changed(self) -> bool:
        """Whether the sides differ."""
        return self.before != self.after


@dataclass(frozen=True, kw_only=True)
class Change:
    """All values of an entry, and whether some were left out."""

    values: tuple[Value, ...]
    cut: bool

    @property
    def changed(self) -> tuple[Value, ...]:
        """Those that differ."""
        return tuple(value for value in self.values if value.changed)


_kept: dict[int, tuple[AuditRow, Change]] = {}


def change_of(entry: AuditRow) -> Change:
    """The entry's values in the order of `after`, what went away at the end."""
    kept = _kept.get(entry.id)
    # Another cluster has other entries under the same numbers.
    if kept is None or kept[0] is not entry:
        if len(_kept) >= MAX_KEPT:
            _kept.clear()
        kept = _kept[entry.id] = (entry, _change(entry.before, entry.after))
    return kept[1]


def _change(before: object, after: object) -> Change:
    old, old_cut = _flat(before)
    new, new_cut = _flat(after)
    paths = [*new, *(path for path in old if path not in new)]
    values = tuple(Value(path=path, before=old.get(path), after=new.get(path)) for path in paths)
    return Change(values=values, cut=old_cut or new_cut)


def describe(entry: AuditRow) -> str:
    """The change in a few words: `scaling.max 1 → 4, stopped false → true`; a new thing's first values."""
    start = "new: " if entry.before is None and entry.after is not None else ""
    start = "gone: " if entry.after is None and entry.before is not None else start
    # What the row names anyway is left to its other columns.
    changed = [value for value in change_of(entry).changed if entry.target not in (value.before, value.after)]
    # Of a new thing's values, those that were not given tell nothing.
    telling = [value for value in changed if not start or (value.before or value.after) not in NOTHING] or changed
    said = [_said(value, bare=bool(start)) for value in telling[:SHOWN_IN_ROW]]
    if len(changed) > len(said):
        said.append(f"{len(changed) - len(said)} more")
    return start + ", ".join(said)


def arrow() -> str:
    """Between before and after."""
    return "->" if signs().ascii else "→"


def _said(value: Value, *, bare: bool) -> str:
    if value.before is None or value.after is None:
        side = value.after if value.before is None else value.before
        return f"{'' if bare else '+' if value.before is None else '-'}{value.path} {side}".strip()
    return f"{value.path} {value.before} {arrow()} {value.after}".strip()


def _flat(document: object) -> tuple[dict[str, str], bool]:
    found: dict[str, str] = {}
    if document is None:
        return found, False
    for path, value in _leaves(document, "", 0):
        if len(found) >= MAX_VALUES:
            return found, True
        found[path] = value
    return found, False


def _leaves(value: object, path: str, depth: int) -> Iterator[tuple[str, str]]:
    if depth < MAX_DEPTH and isinstance(value, dict) and value:
        for key, inner in value.items():
            yield from _leaves(inner, f"{path}.{key}" if path else str(key), depth + 1)
    elif depth < MAX_DEPTH and isinstance(value, list) and any(isinstance(item, dict | list) for item in value):
        for place, item in enumerate(value):
            yield from _leaves(item, f"{path}[{place}]", depth + 1)
    else:
        yield path, value if isinstance(value, str) else msgspec.json.encode(value).decode()
