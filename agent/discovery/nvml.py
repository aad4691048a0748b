"""Cards through NVML. Every figure is asked for alone, so one that the card does not have costs only itself."""

import re
from collections.abc import Callable, Iterator, Mapping
from types import ModuleType

import msgspec

from agent.discovery import nvml_figures
from agent.discovery.gpu import (
    ERRORS,
    MAX_CARDS,
    NO_MEMORY,
    SPLIT,
    CardReading,
    CardSample,
    ReaderFailed,
    instance_index,
)
from agent.discovery.gpu_class import gpu_class, mig_class
from agent.discovery.nameless import named
from agent.discovery.nvml_calls import Nvml as Calls
from agent.discovery.nvml_calls import count, text
from agent.discovery.nvml_gpm import Gpm
from agent.discovery.nvml_wear import XidEvents, card_wear
from agent.discovery.words import UUID, bus_id
from llmgw.core.cluster import Card
from llmgw.core.wear import CardWear

SAMPLE_EVERY_S = 5.0
"""A sample is a dozen library calls a card, a few hundred microseconds."""
ASKED_EVERY_S = 1.0
"""While somebody looks; the profile is over the time between two samples, and this is long enough for it."""
MAX_INSTANCES = 16
"""MIG instances looked for on one card; no card has more than 7 GPU instances."""
_P2P_NVLINK = 2
"""NVML_P2P_CAPS_INDEX_NVLINK."""
_VITAL = {
    "memory": "nvmlDeviceGetMemoryInfo",
    "utilization": "nvmlDeviceGetUtilizationRates",
    "name": "nvmlDeviceGetName",
}
"""Where an error means that the card does not answer, and not just that one figure is missing."""
_PROFILE = re.compile(r"\bMIG (\S+)")


class Nvml:
    """A GpuReader over NVIDIA's library; `library` stands in for pynvml in tests."""

    name = "NVML"
    sample_every_s = SAMPLE_EVERY_S
    asked_every_s = ASKED_EVERY_S

    def __init__(self, library: ModuleType | None = None) -> None:
        self._library = library
        self._calls: Calls | None = None
        self._gpm: Gpm | None = None
        self._xids: XidEvents | None = None

    def open(self) -> None:
        """Load the library; raises ReaderFailed."""
        if self._library is None:
            try:
                import pynvml
            except ImportError as error:
                raise ReaderFailed("the Python package nvidia-ml-py is not installed") from error
            self._library = pynvml
        calls = Calls(self._library)
        calls.need("nvmlInit")
        self._calls, self._gpm, self._xids = calls, Gpm(calls), XidEvents(calls)

    def cards(self) -> CardReading:
        """Facts of each card; raises ReaderFailed when there is no telling how many there are."""
        driver = self._nvml.text("nvmlSystemGetDriverVersion")
        cards: list[Card] = []
        problems = self._each(lambda index: cards.extend(self._describe(index, driver)), "cannot be read")
        indexes: dict[str, int] = {}
        for card in cards:
            if not card.parent:
                # Of two that bear one name the first is listed.
                indexes.setdefault(card.uuid, card.index)
        linked = self._linked(indexes)
        whole = tuple(_with_peers(card, linked.get(card.uuid)) for card in cards)
        return CardReading(cards=whole[:MAX_CARDS], problems=problems, unread=len(problems))

    def sample(self) -> tuple[CardSample, ...]:
        """Figures of each card; raises ReaderFailed."""
        samples: list[CardSample] = []
        self._each(lambda index: samples.extend(self._measure(index)), "")
        return tuple(samples)

    def wear(self) -> Mapping[str, CardWear]:
        """Counts of each card; raises ReaderFailed."""
        calls = self._nvml
        assert self._xids is not None
        worn: dict[str, CardWear] = {}

        def read(index: int) -> None:
            handle = calls.need("nvmlDeviceGetHandleByIndex", index)
            uuid = self._uuid(handle, index)
            assert self._xids is not None
            self._xids.watch(handle, uuid)
            if uuid not in worn:
                worn[uuid] = card_wear(calls, handle)

        self._each(read, "")
        return self._xids.added_to(worn)

    def close(self) -> None:
        """Let the library go."""
        if self._calls is not None:
            if self._gpm is not None:
                self._gpm.close()
            if self._xids is not None:
                self._xids.close()
            self._calls.get("nvmlShutdown")

    @property
    def _nvml(self) -> Calls:
        assert self._calls is not None, "open() comes first"
        return self._calls

    def _each(self, do: Callable[[int], None], problem: str) -> tuple[str, ...]:
        """Do it for every card; a card that cannot be read costs only itself. Raises ReaderFailed without a count."""
        problems = []
        number = count(self._nvml.need("nvmlDeviceGetCount"))
        if number is None:
            raise ReaderFailed("the driver gives no number of cards")
        for index in range(min(MAX_CARDS, number)):
            try:
                do(index)
            except ReaderFailed as error:
                problems.append(f"Card {index} {problem}: {error}.")
        return tuple(problems)

    def _describe(self, index: int, driver: str) -> Iterator[Card]:
        """A card and, when it is split, its instances."""
        calls = self._nvml
        handle = calls.need("nvmlDeviceGetHandleByIndex", index)
        uuid = self._uuid(handle, index)
        name = calls.text("nvmlDeviceGetName", handle)
        memory = nvml_figures.memory(calls, handle)
        split = nvml_figures.split(calls, handle)
        errors = ", ".join(vital for vital, call in _VITAL.items() if calls.trouble(call, handle))
        pci = calls.get("nvmlDeviceGetPciInfo", handle)
        card = Card(
            uuid=uuid,
            index=index,
            name=name,
            gpu_class=gpu_class(name, memory[0] if memory else None),
            memory_total_bytes=memory[0] if memory and not split and not errors else None,
            compute_capability=_capability(calls.get("nvmlDeviceGetCudaComputeCapability", handle)),
            driver=driver,
            healthy=not errors,
            problem=ERRORS.format(errors=errors) if errors else SPLIT if split else "" if memory else NO_MEMORY,
            bus_id=bus_id(text(getattr(pci, "busId", None))),
            pcie_generation=calls.count("nvmlDeviceGetMaxPcieLinkGeneration", handle) or None,
            pcie_width=calls.count("nvmlDeviceGetMaxPcieLinkWidth", handle) or None,
        )
        yield card
        if split:
            for instance, gpu_instance, compute_instance in self._instances(handle):
                found = self._instance(card, instance, gpu_instance, compute_instance)
                if found is not None:
                    yield found

    def _uuid(self, handle: object, index: int) -> str:
        """The card's name; raises ReaderFailed for one that has none, or does not answer."""
        calls = self._nvml
        uuid = calls.text("nvmlDeviceGetUUID", handle)
        if UUID.fullmatch(uuid):
            return uuid
        why = calls.trouble("nvmlDeviceGetUUID", handle)
        uuid = "" if why else named(calls.text("nvmlDeviceGetName", handle), index)
        if not uuid:
            raise ReaderFailed(why or "the driver gives it no UUID")
        return uuid

    def _instance(self, card: Card, handle: object, gpu_instance: int, compute_instance: int) -> Card | None:
        calls = self._nvml
        uuid = calls.text("nvmlDeviceGetUUID", handle)
        if not UUID.fullmatch(uuid):
            return None
        name = calls.text("nvmlDeviceGetName", handle)
        named = _PROFILE.search(name)
        profile = named[1] if named else ""
        memory = nvml_figures.memory(calls, handle)
        return Card(
            uuid=uuid,
            index=instance_index(card.index, gpu_instance, compute_instance),
            name=name or card.name,
            gpu_class=mig_class(card.gpu_class, profile, memory[0] if memory else None),
            memory_total_bytes=memory[0] if memory and card.healthy else None,
            compute_capability=card.compute_capability,
            driver=card.driver,
            healthy=card.healthy,
            problem=("" if memory else NO_MEMORY) if card.healthy else card.problem,
            bus_id=card.bus_id,
            parent=card.uuid,
            mig_profile=profile,
        )

    def _instances(self, handle: object) -> Iterator[tuple[object, int, int]]:
        """Handle, GPU instance and compute instance of each MIG device of a card."""
        calls = self._nvml
        most = calls.count("nvmlDeviceGetMaxMigDeviceCount", handle)
        for place in range(min(MAX_INSTANCES, MAX_INSTANCES if most is None else most)):
            instance = calls.get("nvmlDeviceGetMigDeviceHandleByIndex", handle, place)
            if instance is None:
                continue
            gpu_instance = calls.count("nvmlDeviceGetGpuInstanceId", instance)
            compute_instance = calls.count("nvmlDeviceGetComputeInstanceId", instance)
            yield instance, place if gpu_instance is None else gpu_instance, compute_instance or 0

    def _measure(self, index: int) -> Iterator[CardSample]:
        calls = self._nvml
        assert self._gpm is not None
        handle = calls.need("nvmlDeviceGetHandleByIndex", index)
        uuid = self._uuid(handle, index)
        split = nvml_figures.split(calls, handle)
        sample = nvml_figures.card_sample(calls, handle, uuid, split=split)
        yield self._gpm.added_to(sample, handle, split=split)
        if split:
            for instance, _, _ in self._instances(handle):
                name = calls.text("nvmlDeviceGetUUID", instance)
                if name:
                    yield nvml_figures.instance_sample(calls, instance, name, sample)

    def _linked(self, indexes: Mapping[str, int]) -> dict[str, tuple[str, ...]]:
        """The cards each card reaches over NVLink; a card of which nothing is known is left out."""
        calls = self._nvml
        handles = {uuid: calls.get("nvmlDeviceGetHandleByIndex", index) for uuid, index in indexes.items()}
        found = {}
        for uuid, handle in handles.items():
            others = [(o, h) for o, h in handles.items() if o != uuid]
            said = {o: calls.count("nvmlDeviceGetP2PStatus", handle, h, _P2P_NVLINK) for o, h in others}
            if any(status is not None for status in said.values()):
                found[uuid] = tuple(other for other, status in said.items() if status == 0)
        return found


def _with_peers(card: Card, peers: tuple[str, ...] | None) -> Card:
    return card if peers is None else msgspec.structs.replace(card, nvlink_peers=peers)


def _capability(value: object) -> str:
    """`9.0` of the library's pair."""
    if isinstance(value, list | tuple) and len(value) == 2:
        major, minor = count(value[0]), count(value[1])
        return "" if major is None or minor is None else f"{major}.{minor}"
    return ""
