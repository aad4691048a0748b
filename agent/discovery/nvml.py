"""Cards through NVML. Every figure is asked for alone, so one that the card does not have costs only itself."""

import contextlib
from collections.abc import Callable
from types import ModuleType
from typing import TypeVar

from agent.discovery.gpu import CardReading, CardSample, ReaderFailed
from agent.discovery.gpu_class import gpu_class
from llmgw.core.cluster import Card

T = TypeVar("T")

SAMPLE_EVERY_S = 5.0
"""A sample is a few library calls a card."""
MAX_CARDS = 256


class Nvml:
    """A GpuReader over NVIDIA's library; `library` stands in for pynvml in tests."""

    name = "NVML"
    sample_every_s = SAMPLE_EVERY_S

    def __init__(self, library: ModuleType | None = None) -> None:
        self._library = library

    def open(self) -> None:
        """Load the library; raises ReaderFailed."""
        if self._library is None:
            try:
                import pynvml
            except ImportError as error:
                raise ReaderFailed("the Python package nvidia-ml-py is not installed") from error
            self._library = pynvml
        self._or_failed(self._nvml.nvmlInit)

    def cards(self) -> CardReading:
        """Facts of each card; raises ReaderFailed."""
        driver = _text(self._or_none(self._nvml.nvmlSystemGetDriverVersion))
        cards: list[Card] = []
        problems: list[str] = []
        for index in range(self._count()):
            try:
                cards.append(self._card(index, driver))
            except ReaderFailed as error:
                problems.append(f"Card {index} cannot be read: {error}.")
        return CardReading(cards=tuple(cards), problems=tuple(problems))

    def sample(self) -> tuple[CardSample, ...]:
        """Figures of each card; raises ReaderFailed."""
        samples = []
        for index in range(self._count()):
            with contextlib.suppress(ReaderFailed):
                samples.append(self._sample(index))
        return tuple(samples)

    def close(self) -> None:
        """Let the library go."""
        if self._library is not None:
            self._or_none(self._nvml.nvmlShutdown)

    @property
    def _nvml(self) -> ModuleType:
        assert self._library is not None, "open() comes first"
        return self._library

    def _count(self) -> int:
        return min(MAX_CARDS, int(self._or_failed(self._nvml.nvmlDeviceGetCount)))

    def _card(self, index: int, driver: str) -> Card:
        nvml = self._nvml
        handle = self._or_failed(nvml.nvmlDeviceGetHandleByIndex, index)
        uuid = _text(self._or_failed(nvml.nvmlDeviceGetUUID, handle))
        name = _text(self._or_none(nvml.nvmlDeviceGetName, handle))
        capability = self._or_none(nvml.nvmlDeviceGetCudaComputeCapability, handle)
        mode = self._or_none(nvml.nvmlDeviceGetMigMode, handle)
        split = mode is not None and mode[0] == 1
        memory = None if split else self._memory(handle)
        problem = ""
        if split:
            problem = "The card is split into MIG instances; the instances take work, the card does not."
        elif memory is None:
            problem = "The driver reports no memory of its own for the card, so nothing can be placed on it."
        return Card(
            uuid=uuid,
            index=index,
            name=name,
            gpu_class=gpu_class(name, memory[0] if memory else None),
            memory_total_bytes=memory[0] if memory else None,
            compute_capability=f"{capability[0]}.{capability[1]}" if capability else "",
            driver=driver,
            problem=problem,
        )

    def _sample(self, index: int) -> CardSample:
        nvml = self._nvml
        handle = self._or_failed(nvml.nvmlDeviceGetHandleByIndex, index)
        memory = self._memory(handle)
        rates = self._or_none(nvml.nvmlDeviceGetUtilizationRates, handle)
        power_mw = self._or_none(nvml.nvmlDeviceGetPowerUsage, handle)
        temperature = self._or_none(nvml.nvmlDeviceGetTemperature, handle, nvml.NVML_TEMPERATURE_GPU)
        return CardSample(
            uuid=_text(self._or_failed(nvml.nvmlDeviceGetUUID, handle)),
            memory_used_bytes=memory[1] if memory else None,
            utilization_percent=float(rates.gpu) if rates is not None and 0 <= rates.gpu <= 100 else None,
            temperature_c=None if temperature is None else float(temperature),
            power_w=None if power_mw is None else power_mw / 1000,
        )

    def _memory(self, handle: object) -> tuple[int, int] | None:
        """Total and used bytes; a unified-memory card leaves zeros in the answer, which say nothing."""
        info = self._or_none(self._nvml.nvmlDeviceGetMemoryInfo, handle)
        return (int(info.total), int(info.used)) if info is not None and info.total > 0 else None

    def _or_failed(self, call: Callable[..., T], *args: object) -> T:
        try:
            return call(*args)
        except self._nvml.NVMLError as error:
            raise ReaderFailed(str(error)) from error

    def _or_none(self, call: Callable[..., T], *args: object) -> T | None:
        try:
            return call(*args)
        except self._nvml.NVMLError:
            return None


def _text(value: str | bytes | None) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else value or ""
