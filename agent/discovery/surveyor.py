"""Looks at the machine at start and again now and then: a card can fall off the bus, an engine can be installed."""

import logging
from collections.abc import Callable, Mapping

import trio

from agent.config import AgentConfig
from agent.discovery.gpu import CardReading, GpuReader, ReaderFailed, open_reader, without_skipped
from agent.discovery.host import HostFacts, host_facts
from agent.discovery.inventory import build_inventory
from agent.discovery.nvidia_smi import NvidiaSmi
from agent.discovery.nvml import Nvml
from agent.engines.base import Engine
from agent.state import Outbox
from llmgw.core.cluster import EngineBuild
from llmgw.core.layout import AgentLayout
from llmgw.wire.llmgw.v1 import Inventory

log = logging.getLogger("agent.discovery")

LOOK_EVERY_S = 60.0
"""How often the inventory is built anew."""
LOOK_TIMEOUT_S = 60.0
"""A look that takes longer (a driver that hangs) is left to itself; the last inventory stands."""


class Surveyor:
    """The node's inventory, as it was last seen."""

    def __init__(
        self, config: AgentConfig, layout: AgentLayout, *, address: str, engines: Mapping[str, Engine]
    ) -> None:
        self._config = config
        self._layout = layout
        self._address = address
        self._engines = engines
        self._host: HostFacts | None = None
        self._reading = CardReading()
        self._builds: tuple[EngineBuild, ...] = ()
        self.limiter = trio.CapacityLimiter(1)
        """Its one token is needed to call the reader, so that one thread at a time does."""
        self._reader_problems: tuple[str, ...] = ()
        self.reader: GpuReader | None = None
        """Reader of the cards; none on a machine without."""
        self.problems: tuple[str, ...] = ()
        """Further sentences for the inventory."""

    @property
    def host(self) -> HostFacts:
        """CPU, memory and disk; look() comes first."""
        assert self._host is not None
        return self._host

    @property
    def card_uuids(self) -> frozenset[str]:
        """Cards of the inventory, which are the ones whose figures are told."""
        return frozenset(card.uuid for card in self.reading.cards)

    @property
    def reading(self) -> CardReading:
        """The cards as last read, without those agent.yaml skips."""
        return without_skipped(self._reading, self._config.skip_gpus)

    def inventory(self) -> Inventory:
        """What is known, in the protocol's words."""
        return build_inventory(
            address=self._address,
            host=self.host,
            reserve_bytes=self._config.memory_reserve_bytes,
            reading=self.reading,
            engines=self._builds,
            problems=(*self.problems, *self._reader_problems),
        )

    async def look(self) -> None:
        """Look once. Never raises: what cannot be read is a sentence in the inventory."""
        with trio.move_on_after(LOOK_TIMEOUT_S):
            await trio.to_thread.run_sync(self._look, abandon_on_cancel=True, limiter=self.limiter)
        if self._host is None:
            self._host = host_facts(self._layout.weights)

    async def run(self, outbox: Outbox, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Look again now and then, for ever, and tell what changed."""
        task_status.started()
        told = bytes(self.inventory())
        while True:
            await trio.sleep(LOOK_EVERY_S)
            if not self.limiter.borrowed_tokens:
                await self.look()
            now = self.inventory()
            if bytes(now) != told:
                told = bytes(now)
                outbox.inventory(now)

    def _look(self) -> None:
        self._host = host_facts(self._layout.weights)
        self._builds = tuple(engine.detect() for engine in self._engines.values())
        if self.reader is None:
            self.reader, self._reader_problems = open_reader(self._factories())
        if self.reader is not None:
            try:
                self._reading = self.reader.cards()
                self._reader_problems = ()
            except ReaderFailed as error:
                self._reader_problems = (f"The cards cannot be read now, what is listed is their last state: {error}.",)

    def _factories(self) -> list[Callable[[], GpuReader]]:
        readers: list[Callable[[], GpuReader]] = [Nvml, NvidiaSmi]
        return readers if self._config.prefer_nvml else readers[::-1]
