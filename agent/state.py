"""What the agent has to tell, the latest of each kind only. Telling never waits; what waits to be told is bounded."""

from collections.abc import Hashable

import trio

from llmgw.wire.llmgw.v1 import AgentMessage, CardWear, EngineLoads, FetchProgress, Inventory, Sensors, ShardStatus


class Outbox:
    """State messages on their way to the link: a newer word on the same shard, source or sensor replaces the older.

    Nothing is lost that is still true: a reconnect's Hello carries the state, and within one connection each
    subject's last word is sent. The subjects are the node's shards and sources, so the memory is bounded.
    """

    def __init__(self, outbound: trio.MemorySendChannel[AgentMessage]) -> None:
        self._outbound = outbound
        self._waiting: dict[Hashable, AgentMessage] = {}
        self._woken = trio.Event()

    def shard(self, status: ShardStatus) -> None:
        """Report a shard's state."""
        self._put(("shard", status.shard_id), AgentMessage(shard_status=status))

    def progress(self, progress: FetchProgress) -> None:
        """Report how far a download is."""
        self._put(("fetch", progress.source), AgentMessage(fetch_progress=progress))

    def sensors(self, sensors: Sensors) -> None:
        """Report figures of the machine and its cards."""
        self._put("sensors", AgentMessage(sensors=sensors))

    def wear(self, wear: CardWear) -> None:
        """Report counts of what wears out."""
        self._put("wear", AgentMessage(card_wear=wear))

    def loads(self, loads: EngineLoads) -> None:
        """Report what engines say of their work."""
        self._put("loads", AgentMessage(engine_loads=loads))

    def inventory(self, inventory: Inventory) -> None:
        """Report what the machine is."""
        self._put("inventory", AgentMessage(inventory=inventory))

    def _put(self, subject: Hashable, message: AgentMessage) -> None:
        # A replaced message goes to the end, so that news of one subject never passes older news of itself.
        self._waiting.pop(subject, None)
        self._waiting[subject] = message
        self._woken.set()

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Send what waits, for ever."""
        task_status.started()
        while True:
            while self._waiting:
                subject = next(iter(self._waiting))
                await self._outbound.send(self._waiting.pop(subject))
            self._woken = trio.Event()
            await self._woken.wait()
