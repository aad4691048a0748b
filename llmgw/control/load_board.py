"""What routers know of engines' work, and what one of them has yet to be told. A slow one is told only the newest.

Every change has a revision; a reader holds the last one it was sent. Rows stand in the order of their revisions, so
that what is new to a reader is at the end. What an engine says again is told again now and then (REFRESH_S): the moment
of every row a router has is at most so much older than what is known here.
"""

from collections.abc import Mapping

from llmgw.core.routing import LoadTable, ReplicaLoad

MAX_GONE = 4096
"""Replicas that are gone and still told one by one; a reader who missed more is told everything."""
REFRESH_S = 3.0
"""A load that only grew newer is told again after so long; agents say every load anew within LOAD_TOLD_EVERY_S."""
NOTHING_YET = -1
"""Revision of a reader that was told nothing."""


class LoadBoard:
    """The loads as of the newest revision."""

    def __init__(self) -> None:
        self.revision = 0
        """Of the newest change."""
        self._rows: dict[str, tuple[int, ReplicaLoad]] = {}
        self._gone: dict[str, int] = {}
        self._known_since = 0
        """Revision from which on `_gone` is complete."""

    def change(self, loads: Mapping[str, ReplicaLoad]) -> bool:
        """Take `loads` for all there is; whether there is something to tell."""
        gone = self._rows.keys() - loads.keys()
        moved = [name for name, load in loads.items() if name not in self._rows or _differ(self._rows[name][1], load)]
        if not gone and not moved:
            return False
        self.revision += 1
        for name in gone:
            del self._rows[name]
            self._gone.pop(name, None)
            self._gone[name] = self.revision
        for name in moved:
            self._rows.pop(name, None)
            self._gone.pop(name, None)
            self._rows[name] = (self.revision, loads[name])
        while len(self._gone) > MAX_GONE:
            self._known_since = self._gone.pop(next(iter(self._gone)))
        return True

    def since(self, revision: int) -> LoadTable:
        """What a reader that was told everything up to `revision` has to hear to know everything."""
        if revision < self._known_since:
            return LoadTable(loads={name: load for name, (_, load) in self._rows.items()}, whole=True)
        loads = {}
        for name, (changed, load) in reversed(self._rows.items()):
            if changed <= revision:
                break
            loads[name] = load
        gone = []
        for name, left in reversed(self._gone.items()):
            if left <= revision:
                break
            gone.append(name)
        return LoadTable(loads=loads, gone=tuple(gone))


def _differ(before: ReplicaLoad, after: ReplicaLoad) -> bool:
    if after.at - before.at >= REFRESH_S:
        return True
    return (before.running, before.waiting, before.slots, before.kv_used) != (
        after.running,
        after.waiting,
        after.slots,
        after.kv_used,
    )
