"""Figures of the machine and its cards, told when one of them changed enough to matter, and no oftener than needed."""

import logging
import math
from collections.abc import Callable, Collection, Sequence
from pathlib import Path

import trio

from agent.discovery.gpu import CardSample, GpuReader, ReaderFailed
from agent.discovery.host import CpuMeter, disk_free, load_1m, memory_available
from agent.state import Outbox
from llmgw.wire.llmgw.v1 import Sensors

log = logging.getLogger("agent.sensors")

SAMPLE_EVERY_S = 5.0
"""Figures of the machine are read this often; cards no oftener than their reader allows."""
READER_TIMEOUT_S = 15.0
"""A card reader that takes longer is left to itself, and not asked again before it has come back: no thread more."""
_MEMORY_STEP = 16 * 1024 * 1024
"""Memory and disk figures are rounded down to this, so that noise is not news."""


class Meter:
    """Turns readings into a message, or into none when nothing changed."""

    def __init__(self, weights: Path, *, shown: Callable[[], Collection[str]]) -> None:
        """`shown` names the cards of the inventory; others are left out."""
        self._weights = weights
        self._shown = shown
        self._cpu = CpuMeter()
        self._last = b""

    def forget(self) -> None:
        """The next message is sent whatever it says: a new connection knows nothing."""
        self._last = b""

    def message(self, cards: Sequence[CardSample]) -> Sensors | None:
        """All figures in columns; none when they are what was last told. Blocking for a moment."""
        available, free = memory_available(), disk_free(self._weights)
        cpu, load = self._cpu.percent(), load_1m()
        shown = self._shown()
        kept = [card for card in cards if card.uuid in shown]
        sensors = Sensors(
            uuids=[card.uuid for card in kept],
            memory_used_bytes=_column([card.memory_used_bytes for card in kept]),
            utilization_percent=_column([card.utilization_percent for card in kept]),
            temperature_c=_column([card.temperature_c for card in kept]),
            power_w=_column([None if card.power_w is None else round(card.power_w) for card in kept]),
            cpu_percent=None if cpu is None else float(round(cpu)),
            load_1m=None if load is None else round(load, 1),
            memory_available_bytes=_rounded(available),
            disk_free_bytes=_rounded(free),
        )
        encoded = bytes(sensors)
        if encoded == self._last:
            return None
        self._last = encoded
        return sensors


class SensorService:
    """Samples for ever and tells the control plane."""

    def __init__(
        self, meter: Meter, reader: GpuReader | None, outbox: Outbox, *, limiter: trio.CapacityLimiter
    ) -> None:
        """`limiter` has one token: whoever holds it may call the reader."""
        self._meter = meter
        self._reader = reader
        self._outbox = outbox
        self._cards: tuple[CardSample, ...] = ()
        self._limiter = limiter
        self._sampled_at = -math.inf
        self._wake = trio.Event()

    def tell_again(self) -> None:
        """Tell everything at once, changed or not: a new connection knows nothing."""
        self._meter.forget()
        self._wake.set()

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Sample and tell, for ever."""
        task_status.started()
        while True:
            await self._sample_cards()
            sensors = await trio.to_thread.run_sync(self._meter.message, self._cards)
            if sensors is not None:
                self._outbox.sensors(sensors)
            with trio.move_on_after(SAMPLE_EVERY_S):
                await self._wake.wait()
            self._wake = trio.Event()

    async def _sample_cards(self) -> None:
        reader = self._reader
        if reader is None or trio.current_time() - self._sampled_at < reader.sample_every_s:
            return
        self._sampled_at = trio.current_time()
        try:
            with trio.fail_after(READER_TIMEOUT_S):
                self._cards = await trio.to_thread.run_sync(
                    reader.sample, abandon_on_cancel=True, limiter=self._limiter
                )
        except (ReaderFailed, trio.TooSlowError) as error:
            # Absent, never the last word for ever: what is shown must be what is.
            self._cards = ()
            log.warning("The cards cannot be read: %s", str(error) or "the reader did not come back")


def _column(values: Sequence[float | int | None]) -> list[float]:
    """One entry a card, NaN for "not reported"; empty when no card reports it."""
    if all(value is None for value in values):
        return []
    return [math.nan if value is None else float(value) for value in values]


def _rounded(value: int | None) -> int | None:
    return None if value is None else value - value % _MEMORY_STEP
