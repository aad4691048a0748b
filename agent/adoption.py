"""What an agent finds running when it starts: its own engines are taken over, strangers are never touched.

An engine is ours when boot, pid, start time and mark all match the journal. A process that bears this cluster's and
this node's mark but belongs to no shard that was taken over is ended: it holds memory nobody knows of.
"""

import logging
import signal
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

import trio

from agent.engines.environment import mark
from agent.journal import Entry, Journal
from agent.process import EngineProcess, adopt, is_session_leader, marked_processes, name_of, signal_every
from llmgw.core.processes import boot_id, start_time

log = logging.getLogger("agent.adoption")

ORPHAN_GRACE_S = 5.0
"""An engine that belongs to nobody gets so long after SIGTERM."""
ORPHAN_POLL_S = 0.1


@dataclass(frozen=True, kw_only=True)
class Survivor:
    """An engine that outlived its agent."""

    entry: Entry
    process: EngineProcess
    key: str


@dataclass(frozen=True, kw_only=True)
class Casualty:
    """A shard whose engine is gone."""

    entry: Entry
    why: str


@dataclass(frozen=True, kw_only=True)
class Findings:
    """Everything the journal and /proc said."""

    survivors: tuple[Survivor, ...]
    casualties: tuple[Casualty, ...]
    orphans: tuple[str, ...]
    """Marks of this cluster and node that no survivor bears."""
    problems: tuple[str, ...]
    """Sentences on journal files that could not be read."""


def take_stock(journal: Journal, *, cluster_id: str, node: str) -> Findings:
    """Look for every journalled engine and for every process with our marks. Blocking; changes nothing that runs."""
    entries, problems = journal.load()
    running = _engines_of(node)
    survivors: list[Survivor] = []
    casualties: list[Casualty] = []
    for entry in entries:
        if entry.cluster_id != cluster_id:
            problems.append(f"The journal names shard {entry.shard_id} of another cluster; it is left alone.")
            continue
        found = _find(entry, running)
        if isinstance(found, str):
            casualties.append(Casualty(entry=entry, why=found))
        else:
            survivors.append(found)
    known = {survivor.process.mark for survivor in survivors}
    prefix = mark(cluster_id, "")
    orphans = {found for _, found, of in marked_processes() if of == node and found.startswith(prefix)} - known
    return Findings(
        survivors=tuple(survivors),
        casualties=tuple(casualties),
        orphans=tuple(sorted(orphans)),
        problems=tuple(problems),
    )


def _engines_of(node: str) -> dict[str, int]:
    """By mark the process that was started with it: of all that begin a session, as its children may, the eldest."""
    leaders = [(pid, found) for pid, found, of in marked_processes() if of == node and is_session_leader(pid)]
    leaders.sort(key=lambda leader: (start_time(leader[0]) or 0, leader[0]), reverse=True)
    return {found: pid for pid, found in leaders}


def _find(entry: Entry, running: dict[str, int]) -> Survivor | str:
    """The entry's engine, or why there is none."""
    shard_mark = mark(entry.cluster_id, entry.shard_id)
    name = entry.process
    if name is None:
        # The agent died between the intent and the note of the process: the mark tells whether it came to a start.
        pid = running.get(shard_mark)
        name = name_of(pid) if pid is not None else None
        if name is None:
            return "the agent ended before it had started the engine"
    try:
        key = Path(entry.key_file).read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        # Nobody could ask it anything: it is left to `orphans`, if it runs at all.
        return f"the engine's key file cannot be read: {error}"
    process = adopt(name, mark=shard_mark)
    if process is not None:
        return Survivor(entry=entry, process=process, key=key)
    return "the engine ended while the agent was away" if name.boot_id == boot_id() else "the machine was restarted"


async def end_orphans(marks: Collection[str]) -> None:
    """SIGTERM, after ORPHAN_GRACE_S SIGKILL, to every process that bears one of `marks`. Return when none is left."""
    for orphan in marks:
        log.warning("Ending processes that no shard of this node owns", extra={"mark": orphan})
        await trio.to_thread.run_sync(signal_every, orphan, signal.SIGTERM)
    deadline = trio.current_time() + ORPHAN_GRACE_S
    left = set(marks)
    while left:
        await trio.sleep(ORPHAN_POLL_S)
        alive = await trio.to_thread.run_sync(lambda: {found for _, found, _ in marked_processes()})
        left &= alive
        if trio.current_time() > deadline:
            for orphan in left:
                await trio.to_thread.run_sync(signal_every, orphan, signal.SIGKILL)
