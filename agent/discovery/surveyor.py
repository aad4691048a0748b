"""Looks at the machine at start and again now and then: a card can fall off the bus, an engine can be installed."""

import logging
import os
from collections.abc import Callable, Mapping
from pathlib import Path

import trio
from msgspec.structs import replace

from agent.config import AgentConfig
from agent.discovery.completing import completed
from agent.discovery.continuity import carried_on
from agent.discovery.cuda import Toolkit, toolkits
from agent.discovery.gpu import CardReading, GpuReader, ReaderFailed, open_reader, without_skipped
from agent.discovery.host import HostFacts, host_facts
from agent.discovery.inventory import build_inventory
from agent.discovery.nvidia_smi import NvidiaSmi
from agent.discovery.nvml import Nvml
from agent.discovery.parts import cpu_nodes, machine_parts
from agent.discovery.proc_cards import known_cards
from agent.discovery.smi import Smi
from agent.discovery.smi_table import SmiTable
from agent.discovery.smi_xml import SmiXml
from agent.discovery.topology import Joined, read_topology
from agent.engines.base import Engine
from agent.state import Outbox
from llmgw.core.cluster import Card, EngineBuild, MachinePart
from llmgw.core.layout import AgentLayout
from llmgw.wire.llmgw.v1 import Inventory

log = logging.getLogger("agent.discovery")

LOOK_EVERY_S = 60.0
"""How often the inventory is built anew."""
LOOK_TIMEOUT_S = 60.0
"""A look that takes longer (a driver that hangs) is left to itself; the last inventory stands."""
_STALE = "what is listed is their last state"


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
        self._toolkits: tuple[Toolkit, ...] | None = None
        self._topology: dict[int, Joined] | None = None
        self._parts: tuple[MachinePart, ...] = ()
        self._cpu_nodes = 0
        self._reopen = False
        """The reader failed: the driver may have been loaded anew, and what was opened before is of no use."""
        self._wanted = trio.Event()
        self.limiter = trio.CapacityLimiter(1)
        """Its one token is needed to call the reader, so that one thread at a time does."""
        self._reader_problems: tuple[str, ...] = ()
        self.reader: GpuReader | None = None
        """Reader of the cards; none on a machine without."""
        self.installing: Callable[[str], str] = lambda _: ""
        """What is being installed in an engine's place, as a sentence; empty for nothing."""
        self.problems: tuple[str, ...] = ()
        """Further sentences for the inventory."""

    @property
    def host(self) -> HostFacts:
        """CPU, memory and disk; look() comes first."""
        assert self._host is not None
        return self._host

    @property
    def cards(self) -> tuple[Card, ...]:
        """Cards of the inventory, which are the ones whose figures are told."""
        return self.reading.cards

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
            toolkits=self._toolkits or (),
            cpu_nodes=self._cpu_nodes,
            parts=self._parts,
            problems=(*self.problems, *self._reader_problems),
        )

    async def look(self) -> None:
        """Look once. Never raises: what cannot be read is a sentence in the inventory."""
        with trio.move_on_after(LOOK_TIMEOUT_S) as scope:
            await trio.to_thread.run_sync(self._look, abandon_on_cancel=True, limiter=self.limiter)
        if scope.cancelled_caught:
            name = self.reader.name if self.reader is not None else "the reader of the cards"
            self._reader_problems = (f"{name} has not come back for {LOOK_TIMEOUT_S:g} s; {_STALE}.",)
        if self._host is None:
            self._host = host_facts(self._layout.weights)

    def soon(self) -> None:
        """Look again without waiting for the next turn: an engine has been installed, or was not."""
        self._wanted.set()

    async def run(self, outbox: Outbox, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Look again now and then, for ever, and tell what changed."""
        task_status.started()
        told = bytes(self.inventory())
        while True:
            with trio.move_on_after(LOOK_EVERY_S):
                await self._wanted.wait()
            self._wanted = trio.Event()
            if not self.limiter.borrowed_tokens:
                await self.look()
            now = self.inventory()
            if bytes(now) != told:
                told = bytes(now)
                outbox.inventory(now)

    def _look(self) -> None:
        self._host = host_facts(self._layout.weights)
        self._parts = machine_parts(Path(self._config.ib_root))
        self._cpu_nodes = cpu_nodes()
        if self._toolkits is None:
            self._toolkits = toolkits(os.environ)
        try:
            self._open()
            if self.reader is not None:
                self._reading = self._completed(self.reader.cards())
                self._reader_problems = ()
        except ReaderFailed as error:
            self._reopen = True
            self._reader_problems = (f"The cards cannot be read now: {error}; {_STALE}.",)
        # After the cards: whether a node is meant for an engine may hang on them.
        found = (engine.detect() for engine in self._engines.values())
        builds = (build for build in found if build is not None)
        self._builds = tuple(replace(b, installing=self.installing(b.engine)) if b.usable else b for b in builds)

    def _open(self) -> None:
        """See to it that there is a reader, if this machine has cards at all. Raises ReaderFailed."""
        if self.reader is None:
            self.reader, self._reader_problems = open_reader(self._factories())
        elif self._reopen:
            self.reader.close()
            self.reader.open()
        self._reopen = False

    def _completed(self, reading: CardReading) -> CardReading:
        assert self._host is not None
        memory = max(0, self._host.memory_total_bytes - self._config.memory_reserve_bytes)
        whole = completed(reading, memory_bytes=memory, topology=self._asked_topology)
        return carried_on(self._reading.cards, whole, known_cards())

    def _asked_topology(self) -> Mapping[int, Joined]:
        """How cards are joined, by the tool, once: it is soldered or plugged."""
        if self._topology is None:
            self._topology = read_topology(Smi())
        return self._topology

    def _factories(self) -> list[Callable[[], GpuReader]]:
        tools: list[Callable[[], GpuReader]] = [SmiXml, NvidiaSmi, SmiTable]
        return [Nvml, *tools] if self._config.prefer_nvml else [*tools, Nvml]
