"""Usage rows on their way to the store: written to disk before they are sent, and kept there until they are stored.

Every row goes to an append-only segment within `FLUSH_S` of being recorded, so a router killed with SIGKILL loses at
most the rows of its last 200 ms. Rows of the newest segment are sent from memory; once those are too many because the
control plane is away, the segment is sealed and read back later, one at a time, so memory stays flat. Batches may be
sent twice (a row's id makes that harmless), never zero times. Neither a full disk nor a spool over its cap stops a
router: what can be kept nowhere is dropped, counted and said.
"""

import logging
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path

import trio

from llmgw.core.routing import UsageBatch, UsageRow
from llmgw.router.spool import Segment, SpoolDirectory

FLUSH_S = 0.2
"""Recorded rows are on disk after at most this long."""
SEND_S = 1.0
"""Rows are sent after at most this long."""
RESEND_S = 60.0
"""A batch that was not acknowledged for this long is sent again."""
BATCH_ROWS = 500
"""Rows in a batch at most."""
MAX_QUEUED = 5_000
"""Rows kept in memory: more are on disk only, or dropped where the disk takes nothing."""
COPIED_ROWS = 1_000
"""A full segment with at most this many rows not stored is rewritten instead of being sent again from disk."""
ADOPT_S = 30.0
"""How often spools left behind by dead routers are looked for."""

_log = logging.getLogger(__name__)


class UsageSpool:
    """The rows of one router. `record` is the data plane's; `feed_up`, `feed_down`, `stored` are the feed's."""

    def __init__(self, root: Path, index: int, *, clock: Callable[[], float] = time.monotonic) -> None:
        """Spool under `root`/router-`index`; nothing is touched before `run`."""
        self.send: Callable[[UsageBatch], None] = _send_nowhere
        """Gives a batch to the feed; set by the feed."""
        self.dropped = 0
        """Rows kept nowhere since the router started."""
        self._clock = clock
        self._directory = SpoolDirectory(root, index)
        self._fresh: deque[UsageRow] = deque()
        self._unsent: deque[UsageRow] = deque()
        self._backlog: deque[Segment] = deque()
        self._replaying: deque[UsageRow] = deque()
        self._replayed_from: Segment | None = None
        self._batch: UsageBatch | None = None
        self._batch_is_replay = False
        self._batch_at = 0.0
        self._seq = 0
        self._connected = False
        self._sent_at = clock()
        self._wake = trio.Event()
        self._complained_at = float("-inf")

    @property
    def waiting(self) -> bool:
        """Whether any row recorded here or found on disk is not known to be stored."""
        return bool(
            self._fresh or self._unsent or self._backlog or self._replaying or self._replayed_from or self._batch
        )

    @property
    def waiting_rows(self) -> int:
        """How many these are, those in files as far as the files say."""
        batch = 0 if self._batch is None else len(self._batch.rows)
        return (
            len(self._fresh)
            + len(self._unsent)
            + len(self._replaying)
            + batch
            + sum(segment.rows for segment in self._backlog)
        )

    def record(self, row: UsageRow) -> None:
        """Keep `row`. Never blocks, never raises."""
        if len(self._fresh) >= MAX_QUEUED:
            self.dropped += 1
            return
        self._fresh.append(row)

    def feed_up(self) -> None:
        """The control plane is there: what was not acknowledged is sent again."""
        self._connected = True
        if self._batch is not None:
            self._batch_at = self._clock()
            self.send(self._batch)
        self._wake.set()

    def feed_down(self) -> None:
        """The control plane is away: rows collect."""
        self._connected = False

    def stored(self, seq: int) -> None:
        """The batch `seq` is in the store; an acknowledgement of another is ignored."""
        if self._batch is None or self._batch.seq != seq:
            return
        self._batch = None
        self._wake.set()

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Service: writes, sends and replays. Disk trouble is counted and said, never raised."""
        adopt_at = self._clock()
        task_status.started()
        while True:
            self._wake = trio.Event()
            if self._clock() >= adopt_at:
                await self._adopt()
                adopt_at = self._clock() + ADOPT_S
            await self._write()
            await self._advance()
            if self._connected and self._batch is None and (self._backlog or self._replaying):
                await trio.lowlevel.checkpoint()
                continue
            with trio.move_on_after(FLUSH_S):
                await self._wake.wait()

    async def finish(self, *, deadline_s: float) -> None:
        """Before the router ends, while `run` still runs: up to `deadline_s` for the store to take what waits."""
        with trio.move_on_after(deadline_s):
            while self._fresh or (self._connected and self.waiting):
                self._sent_at = float("-inf")
                self._wake.set()
                await trio.sleep(FLUSH_S / 10)

    def close(self) -> None:
        """After `run` ended: the last rows to disk, and the spool to whichever router finds it."""
        try:
            if self._fresh or self._directory.lacking:
                self._directory.append([*self._in_memory(), *self._fresh])
            elif not self._unsent and (self._batch is None or self._batch_is_replay):
                self._directory.truncate()
        except OSError as error:
            self.dropped += len(self._fresh)
            self._complain("the last usage cannot be written to disk", error)
        self._directory.close()

    async def _adopt(self) -> None:
        try:
            found = await trio.to_thread.run_sync(self._directory.adopt)
        except OSError as error:
            self._complain("spools left by other routers cannot be read", error)
            return
        if found:
            _log.info("replaying usage left by routers that ended: %d files", len(found))
        self._backlog.extend(found)

    async def _write(self) -> None:
        """Append what is fresh to the newest segment; seal it when it, or what memory holds of it, is too much."""
        if self._fresh:
            rows = list(self._fresh)
            # What a full disk refused earlier goes with it; a row written twice is stored once.
            written = [*self._in_memory(), *rows] if self._directory.lacking else rows
            try:
                await trio.to_thread.run_sync(self._directory.append, written)
            except OSError as error:
                self._complain("usage cannot be written to disk and is kept in memory only", error)
                if len(self._unsent) + len(rows) > MAX_QUEUED:
                    return
            for _ in rows:
                self._fresh.popleft()
            self._unsent.extend(rows)
        if (self._directory.full or len(self._unsent) > MAX_QUEUED) and not self._directory.lacking:
            await self._seal()

    def _in_memory(self) -> list[UsageRow]:
        """Rows of the newest segment that are not known to be stored."""
        live = self._batch.rows if self._batch is not None and not self._batch_is_replay else ()
        return [*live, *self._unsent]

    async def _seal(self) -> None:
        """Begin a new segment: the old one becomes backlog, to be sent from disk, and its rows leave memory.

        If most rows of the old one are stored already, the others are copied instead and it is removed.
        """
        try:
            if len(remaining := self._in_memory()) <= COPIED_ROWS:
                await trio.to_thread.run_sync(self._directory.replace, remaining)
                return
            sealed = await trio.to_thread.run_sync(self._directory.seal)
        except OSError as error:
            self._complain("a file of usage cannot be completed", error)
            return
        if sealed is None:
            return
        sealed.rows = len(remaining)
        self._backlog.append(sealed)
        self._unsent.clear()
        if not self._batch_is_replay:
            self._batch = None

    async def _advance(self) -> None:
        """Send the next batch when one is due; clear away what is stored completely."""
        if self._batch is not None:
            if self._connected and self._clock() - self._batch_at >= RESEND_S:
                self._batch_at = self._clock()
                self.send(self._batch)
            return
        await self._clear_stored()
        if not self._connected:
            return
        if not self._unsent or self._clock() - self._sent_at < SEND_S:
            await self._load_backlog()
            if self._replaying:
                self._send_from(self._replaying, replay=True)
            return
        if len(self._unsent) < BATCH_ROWS:
            self._sent_at = self._clock()
        self._send_from(self._unsent, replay=False)

    def _send_from(self, rows: deque[UsageRow], *, replay: bool) -> None:
        self._seq += 1
        taken = tuple(rows.popleft() for _ in range(min(BATCH_ROWS, len(rows))))
        self._batch = UsageBatch(seq=self._seq, rows=taken)
        self._batch_is_replay = replay
        self._batch_at = self._clock()
        self.send(self._batch)

    async def _clear_stored(self) -> None:
        """Called without a batch under way: what is neither in memory nor in the backlog is stored."""
        try:
            if not self._unsent and self._directory.size > 0:
                await trio.to_thread.run_sync(self._directory.truncate)
            if self._replayed_from is not None and not self._replaying:
                await trio.to_thread.run_sync(self._replayed_from.remove)
        except OSError as error:
            self._complain("a file of stored usage cannot be removed and will be sent again", error)
        if not self._replaying:
            self._replayed_from = None

    async def _load_backlog(self) -> None:
        if self._replaying or self._replayed_from is not None or not self._backlog:
            return
        self._replayed_from = segment = self._backlog.popleft()
        try:
            rows, torn = await trio.to_thread.run_sync(segment.read)
        except OSError as error:
            self._replayed_from = None
            self._complain(f"usage in {segment.path} cannot be read and waits for the next start", error)
            return
        if torn:
            _log.warning("%d damaged records in %s were skipped", torn, segment.path)
        self._replaying.extend(rows)

    def _complain(self, what: str, error: OSError) -> None:
        """Say what is wrong with the disk, at most every half minute."""
        now = self._clock()
        if now - self._complained_at >= ADOPT_S:
            self._complained_at = now
            _log.error("%s: %s (%d rows dropped so far)", what, error, self.dropped)


def _send_nowhere(_: UsageBatch) -> None:
    """The feed has not begun."""
