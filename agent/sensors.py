"""Figures of the machine and its cards, told when one of them changed enough to matter, and no oftener than needed.

Nothing is spawned for a sample while the cards are read through NVML.
"""

import logging
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path

import msgspec
import trio

from agent.columns import MachineFigures, sensors_message, wear_message
from agent.discovery.dcgm import Exporter, filled_in
from agent.discovery.gpu import CardSample, GpuReader, ReaderFailed, sharers
from agent.discovery.host import CpuMeter, disk_free, load_1m, memory_available, memory_total
from agent.discovery.hwmon import CpuPower, temperatures
from agent.discovery.kernel_log import KernelLog
from agent.discovery.process_tree import TreeMeter
from agent.discovery.traffic import NO_TRAFFIC, TrafficMeter
from agent.state import Outbox
from llmgw.core.cluster import Card
from llmgw.core.wear import CardWear as Worn
from llmgw.wire.llmgw.v1 import CardWear, Sensors

log = logging.getLogger("agent.sensors")

SAMPLE_EVERY_S = 5.0
"""Figures of the machine are read this often; cards no oftener than their reader allows."""
ASKED_EVERY_S = 1.0
"""While somebody looks they are read this often, however often the node is asked."""
DEAR_TIMES = 10.0
"""Cards that take long to read rest this many times as long, whoever asks: a driver at its limit gets no more work."""
WEAR_EVERY_S = 60.0
"""Counts of what wears out move slowly."""
NOTHING_KEPT = Worn()
"""Of a card that keeps no count."""
READER_TIMEOUT_S = 15.0
"""A card reader that takes longer is left to itself, and not asked again before it has come back: no thread more."""


class Meter:
    """Turns readings into a message, or into none when nothing changed."""

    def __init__(
        self,
        weights: Path,
        *,
        cards: Callable[[], Sequence[Card]],
        engines: Callable[[], Mapping[str, int]] = dict,
        traffic: TrafficMeter | None = None,
    ) -> None:
        """`cards` are those of the inventory, others are left out; `engines` are pids by shard id.

        `traffic` counts what goes through the machine's ports, where that is wanted.
        """
        self._weights = weights
        self._cards = cards
        self._engines = engines
        self._cpu = CpuMeter()
        self._power = CpuPower()
        self._traffic = traffic
        self._trees = TreeMeter()
        self._last = b""

    def forget(self) -> None:
        """The next message is sent whatever it says: a new connection knows nothing."""
        self._last = b""

    def message(self, samples: Sequence[CardSample]) -> Sensors | None:
        """All figures in columns; none when they are what was last told. Blocking for a moment."""
        available = memory_available()
        heat, inlet = temperatures()
        machine = MachineFigures(
            cpu_percent=self._cpu.percent(),
            load_1m=load_1m(),
            memory_available_bytes=available,
            disk_free_bytes=disk_free(self._weights),
            cpu_temperature_c=heat,
            cpu_power_w=self._power.watts(),
            inlet_temperature_c=inlet,
            traffic=self._traffic.rates() if self._traffic is not None else NO_TRAFFIC,
        )
        cards = self._cards()
        shown, together = {card.uuid: card for card in cards}, sharers(cards)
        told = [_without_used(s) if s.uuid in together else s for s in samples if s.uuid in shown]
        # Of two that bear one name the first is listed, so its figures are told.
        kept = {s.uuid: _with_host_memory(shown[s.uuid], s, available) for s in reversed(told)}
        message = sensors_message(machine, tuple(reversed(kept.values())), self._trees.figures(self._engines()))
        encoded = bytes(message)
        if encoded == self._last:
            return None
        self._last = encoded
        return message


class SensorService:
    """Samples for ever and tells the control plane."""

    def __init__(
        self,
        meter: Meter,
        outbox: Outbox,
        *,
        reader: Callable[[], GpuReader | None],
        cards: Callable[[], Sequence[Card]],
        exporter: Exporter,
        limiter: trio.CapacityLimiter,
        kernel_log: KernelLog | None = None,
    ) -> None:
        """`reader` is asked for before every sample: a driver may come up after the agent.

        `limiter` has one token: whoever holds it may call the reader.
        """
        self._meter = meter
        self._outbox = outbox
        self._reader = reader
        self._cards = cards
        self._exporter = exporter
        self._limiter = limiter
        self._samples: tuple[CardSample, ...] = ()
        self._sampled_at = -math.inf
        self._took_s = 0.0
        """What reading the cards took last."""
        self._read_at = -math.inf
        self._asked = False
        """Somebody looks, and waits for what is read next."""
        self._log = kernel_log or KernelLog()
        self._worn_at = -math.inf
        self._worn = b""
        self._wake = trio.Event()

    def tell_again(self) -> None:
        """Tell everything at once, changed or not: a new connection knows nothing."""
        self._meter.forget()
        self._worn, self._worn_at = b"", -math.inf
        self._wake.set()

    def sample_soon(self) -> None:
        """Somebody looks: read as soon as the pace allows, and tell it even where nothing changed."""
        self._asked = True
        self._wake.set()

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Sample and tell, for ever."""
        task_status.started()
        while True:
            self._read_at = trio.current_time()
            asked, self._asked = self._asked, False
            await self._sample_cards(asked=asked)
            # The exporter's figures are fetched for every telling: they have their own pace, and fail by themselves.
            wanted = self._unprofiled()
            profiles = await self._exporter.profiles(wanted)
            told = filled_in(self._samples, {uuid: profiles[uuid] for uuid in wanted if uuid in profiles})
            if asked:
                # An answer is waited for.
                self._meter.forget()
            sensors = await trio.to_thread.run_sync(self._meter.message, told)
            if sensors is not None:
                self._outbox.sensors(sensors)
            await self._tell_wear()
            with trio.move_on_after(SAMPLE_EVERY_S):
                await self._wake.wait()
                if self._asked:
                    await trio.sleep_until(self._read_at + ASKED_EVERY_S)
            self._wake = trio.Event()

    def _unprofiled(self) -> Collection[str]:
        """Whole cards that were read and have no profile of their own."""
        cards = self._cards()
        split = {card.parent for card in cards}
        whole = {card.uuid for card in cards if not card.parent and card.healthy and card.uuid not in split}
        return [sample.uuid for sample in self._samples if sample.uuid in whole and not sample.profile_source]

    async def _sample_cards(self, *, asked: bool) -> None:
        reader = self._reader()
        if reader is None or self._read_at - self._sampled_at < self._pause_s(reader, asked=asked):
            return
        self._sampled_at = self._read_at
        try:
            with trio.fail_after(READER_TIMEOUT_S):
                self._samples = await trio.to_thread.run_sync(
                    reader.sample, abandon_on_cancel=True, limiter=self._limiter
                )
        except (ReaderFailed, trio.TooSlowError) as error:
            # Absent, never the last word for ever: what is shown must be what is.
            self._samples = ()
            log.warning("The cards cannot be read: %s", str(error) or "the reader did not come back")
        self._took_s = trio.current_time() - self._read_at

    def _pause_s(self, reader: GpuReader, *, asked: bool) -> float:
        """Least time between two samples of the cards."""
        usual_s = reader.sample_every_s
        return min(usual_s, max(reader.asked_every_s, DEAR_TIMES * self._took_s)) if asked else usual_s

    async def _tell_wear(self) -> None:
        reader = self._reader()
        if reader is None or trio.current_time() - self._worn_at < WEAR_EVERY_S:
            return
        self._worn_at = trio.current_time()
        addresses = {card.uuid: card.bus_id for card in self._cards() if not card.parent}

        def read() -> CardWear:
            # A card that fell off the bus tells nothing any more, and the kernel's log tells why.
            known = {**dict.fromkeys(addresses, NOTHING_KEPT), **reader.wear()}
            worn = self._log.added_to(known, addresses)
            kept = {uuid: wear for uuid, wear in worn.items() if uuid in addresses and wear != NOTHING_KEPT}
            return wear_message(kept)

        try:
            with trio.fail_after(READER_TIMEOUT_S):
                message = await trio.to_thread.run_sync(read, abandon_on_cancel=True, limiter=self._limiter)
            if message.uuids and bytes(message) != self._worn:
                self._worn = bytes(message)
                self._outbox.wear(message)
        except (ReaderFailed, trio.TooSlowError) as error:
            log.warning("What wears out cannot be read: %s", str(error) or "the reader did not come back")


def _without_used(sample: CardSample) -> CardSample:
    """What several use of one memory is nobody's own."""
    return msgspec.structs.replace(sample, memory_used_bytes=None)


def _with_host_memory(card: Card, sample: CardSample, available: int | None) -> CardSample:
    """A chip that uses the node's memory uses what the node has not left."""
    if not card.unified or available is None:
        return sample
    return msgspec.structs.replace(sample, memory_used_bytes=max(0, memory_total() - available))
