"""One `<gpu>` of nvidia-smi's XML. A figure moved from place to place over the years, and every place is looked at."""

from collections.abc import Mapping, Sequence
from xml.etree.ElementTree import Element

from agent.discovery.gpu import ERRORS, NO_MEMORY, SPLIT, CardSample
from agent.discovery.smi_list import Listed
from agent.discovery.words import UUID, broken, count, figure, mebibytes, percent, positive, said, yes
from llmgw.core import throttle
from llmgw.core.wear import CardWear

_POWER = (
    "gpu_power_readings/average_power_draw",
    "gpu_power_readings/instant_power_draw",
    "gpu_power_readings/power_draw",
    "power_readings/power_draw",
)
_LIMIT = (
    "gpu_power_readings/current_power_limit",
    "power_readings/enforced_power_limit",
    "power_readings/power_limit",
)
_REASONS = {
    "applications_clocks_setting": 0x2,
    "sw_power_cap": throttle.POWER_CAP,
    "hw_slowdown": throttle.HW_SLOWDOWN,
    "sync_boost": 0x10,
    "sw_thermal_slowdown": throttle.SW_THERMAL,
    "hw_thermal_slowdown": throttle.HW_THERMAL,
    "hw_power_brake_slowdown": throttle.POWER_BRAKE,
    "display_clocks_setting": 0x100,
}
_REASON_TAGS = ("clocks_event_reasons", "clocks_throttle_reasons")
_VITAL = {"memory": "fb_memory_usage/total", "utilization": "utilization/gpu_util", "name": "product_name"}
"""Where an error means that the card does not answer, and not just that one figure is missing."""


def word(element: Element, *paths: str) -> str:
    """The first of the paths that says something."""
    return next((text for path in paths if (text := said(element.findtext(path)))), "")


def uuid(gpu: Element) -> str:
    """The card's UUID; empty when it is none."""
    text = word(gpu, "uuid")
    return text if UUID.fullmatch(text) else ""


def split(gpu: Element) -> bool:
    """Whether the card is in MIG mode."""
    return word(gpu, "mig_mode/current_mig").lower() == "enabled"


def errors(gpu: Element) -> tuple[str, ...]:
    """What the driver answers with an error where every card that works has an answer."""
    return tuple(name for name, path in _VITAL.items() if broken(gpu.findtext(path)))


def error(gpu: Element, path: str) -> str:
    """The driver's error in that place; empty where it has none."""
    told = gpu.findtext(path)
    return (told or "").strip().strip("[]") if broken(told) else ""


def problem(errors: Sequence[str], *, split: bool, memory: int | None) -> str:
    """Why the card takes no work, if it does not."""
    if errors:
        return ERRORS.format(errors=", ".join(errors))
    if split:
        return SPLIT
    return "" if memory else NO_MEMORY


def instances(gpu: Element) -> list[Element]:
    """MIG instances of a split card."""
    return gpu.findall("mig_devices/mig_device") if split(gpu) else []


def instance_ids(mig: Element) -> tuple[int, int]:
    """GPU instance and compute instance."""
    return count(word(mig, "gpu_instance_id")) or 0, count(word(mig, "compute_instance_id")) or 0


def instance_uuid(card: str, mig: Element, listed: Mapping[str, Listed]) -> str:
    """The instance's own UUID, else the older name by its ids, which CUDA takes as well."""
    own = word(mig, "uuid")
    if UUID.fullmatch(own):
        return own
    known = listed.get(f"{card}/{word(mig, 'index')}")
    gpu_instance, compute_instance = instance_ids(mig)
    return known.uuid if known else f"MIG-{card}/{gpu_instance}/{compute_instance}"


def memory_total(element: Element) -> int | None:
    """Bytes of a card or an instance; a total of 0 says nothing."""
    return mebibytes(word(element, "fb_memory_usage/total")) or None


def memory_used(element: Element) -> int | None:
    """Bytes in use, of a card or instance that says how many it has."""
    return mebibytes(word(element, "fb_memory_usage/used")) if memory_total(element) else None


def sample(gpu: Element, uuid: str) -> CardSample:
    """The card's figures; of a split card, what holds for the whole of it."""
    whole = not split(gpu) and not errors(gpu)
    return CardSample(
        uuid=uuid,
        memory_used_bytes=memory_used(gpu) if whole else None,
        utilization_percent=percent(word(gpu, "utilization/gpu_util")) if whole else None,
        memory_utilization_percent=percent(word(gpu, "utilization/memory_util")) if whole else None,
        temperature_c=figure(word(gpu, "temperature/gpu_temp")),
        memory_temperature_c=positive(word(gpu, "temperature/memory_temp")),
        power_w=figure(word(gpu, *_POWER)),
        power_limit_w=positive(word(gpu, *_LIMIT)),
        throttle_reasons=_reasons(gpu),
        sm_clock_mhz=figure(word(gpu, "clocks/sm_clock")),
        memory_clock_mhz=figure(word(gpu, "clocks/mem_clock")),
        ecc_uncorrected=_uncorrected(gpu),
    )


def wear(gpu: Element) -> CardWear:
    """The card's counts; what it does not keep is none."""
    rows = [count(word(gpu, f"remapped_rows/remapped_row_{kind}")) for kind in ("corr", "unc")]
    kept = [row for row in rows if row is not None]
    return CardWear(
        pcie_replays=count(word(gpu, "pci/replay_counter")),
        retired_pages_sbe=count(word(gpu, "retired_pages/multiple_single_bit_retirement/retired_count")),
        retired_pages_dbe=count(word(gpu, "retired_pages/double_bit_retirement/retired_count")),
        retirement_pending=yes(word(gpu, "retired_pages/pending_retirement", "retired_pages/pending_blacklist")),
        remapped_rows=sum(kept) if kept else None,
        remap_pending=yes(word(gpu, "remapped_rows/remapped_row_pending")),
        remap_failed=yes(word(gpu, "remapped_rows/remapped_row_failure")),
    )


def _reasons(gpu: Element) -> int:
    for tag in _REASON_TAGS:
        stem = tag.removesuffix("s")
        told = {name: word(gpu, f"{tag}/{stem}_{name}").lower() for name in _REASONS}
        if any(told.values()):
            return throttle.READ | sum(bit for name, bit in _REASONS.items() if told[name] == "active")
    return 0


def _uncorrected(gpu: Element) -> int | None:
    """Errors since the driver was loaded, of all memories of the card."""
    volatile = gpu.find("ecc_errors/volatile")
    if volatile is None:
        return None
    old = count(word(volatile, "double_bit/total"))
    kinds = [count(said(child.text)) for child in volatile if "_uncorrectable" in child.tag]
    found = [kind for kind in kinds if kind is not None]
    return old if old is not None else sum(found) if found else None
