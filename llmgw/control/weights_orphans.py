"""Orphans: what the mirror's disk holds that no model of the catalog needs. Listing them removes nothing.

Whether a set is needed or worked on is looked at again right before it goes, with nothing in between that could let a
model be added.
"""

from collections.abc import Callable, Mapping

from llmgw.api.types import OrphanInfo, OrphansRemove, Result, WeightsOrphans
from llmgw.control.leadership import Leadership
from llmgw.core.errors import InvalidInput, NotFound
from llmgw.core.sources import parse_source, shown_source, source_id
from llmgw.core.units import plural, size
from llmgw.core.weights import SetState, SetStatus
from llmgw.mirror.service import Mirror
from llmgw.store import audit as stored_audit

LEFTOVER = "leftover"
"""State of files of a set that was given up."""
AT_REST = (SetState.READY, SetState.FAILED)


class OrphanSets:
    """Lists and removes them. `sources` gives the catalog's models with their canonical sources."""

    def __init__(self, *, mirror: Mirror, leadership: Leadership, sources: Callable[[], Mapping[str, str]]) -> None:
        self._mirror = mirror
        self._leadership = leadership
        self._sources = sources

    async def list(self) -> WeightsOrphans:
        """Every orphan, the largest first."""
        found = []
        needed = self._needed()
        for status in self._mirror.sets():
            if _is_orphan(status, needed) and (kept := await self._mirror.kept(status.id)) is not None:
                found.append(
                    OrphanInfo(
                        id=status.id,
                        source=status.source,
                        state=status.state.value,
                        bytes=kept.bytes,
                        files=status.files,
                        in_place=status.in_place,
                        fetched=status.fetched,
                        used=status.used,
                    )
                )
        strays = await self._mirror.strays()
        ids = self._needed_ids() if strays else set()
        found += [
            OrphanInfo(id=stray.id, state=LEFTOVER, bytes=stray.bytes, files=stray.files, fetched=stray.changed)
            for stray in strays
            if stray.id not in ids
        ]
        found.sort(key=lambda orphan: (-orphan.bytes, orphan.source, orphan.id))
        return WeightsOrphans(orphans=tuple(found), total_bytes=sum(orphan.bytes for orphan in found))

    async def remove(self, request: OrphansRemove, *, actor: str) -> Result:
        """Remove those of the named sets that are orphans still; raises NotFound when none is."""
        asked = set(request.ids)
        chosen = [orphan for orphan in (await self.list()).orphans if orphan.id in asked]
        if not chosen:
            raise NotFound("none of these sets is an orphan any more; `llmgw ctl weights orphans` shows what is")
        before = {
            "sets": [shown_source(orphan.source) or orphan.id for orphan in chosen],
            "bytes": sum(orphan.bytes for orphan in chosen),
        }
        await self._leadership.lead(
            stored_audit.record,
            actor=actor,
            action="weights.remove-orphans",
            target=plural(len(chosen), "set"),
            before=before,
        )
        freed = [await self._remove(orphan) for orphan in chosen]
        gone = [count for count in freed if count is not None]
        left = len(asked) - len(gone)
        stays = f"; {plural(left, 'set')} left alone, needed or worked on meanwhile or gone before" if left else ""
        return Result(message=f"{plural(len(gone), 'orphan')} removed: {size(sum(gone))} freed on the mirror{stays}")

    async def _remove(self, orphan: OrphanInfo) -> int | None:
        """Bytes freed; none when it is no orphan any more."""
        if not orphan.source:
            return None if orphan.id in self._needed_ids() else await self._mirror.remove_stray(orphan.id)
        status = self._mirror.status(orphan.source)
        if status is None or not _is_orphan(status, self._needed()):
            return None
        return await self._mirror.remove(orphan.source)

    def _needed(self) -> set[str]:
        """Canonical sources that models need, the stopped ones' too."""
        return set(self._sources().values())

    def _needed_ids(self) -> set[str]:
        """Ids of the sets of these sources."""
        found = set()
        for source in self._needed():
            try:
                found.add(source_id(parse_source(source)))
            except InvalidInput:
                # A model that another version let in: what it needs has no name here, and nothing is removed by it.
                continue
        return found


def _is_orphan(status: SetStatus, needed: set[str]) -> bool:
    """Whether no model needs the set and no task works on it."""
    at_rest = status.state in AT_REST and not status.phase
    return at_rest and status.source not in needed and not status.source.startswith("sim:")
