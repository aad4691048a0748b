"""A card's figures through NVML, each asked for alone."""

from agent.discovery.gpu import CardSample
from agent.discovery.nvml_calls import Nvml, count, number
from llmgw.core import throttle

_GPU_TEMPERATURE = 0
"""NVML_TEMPERATURE_GPU."""
_CLOCK_SM = 1
_CLOCK_MEMORY = 2
_UNCORRECTED = 1
"""NVML_MEMORY_ERROR_TYPE_UNCORRECTED."""
_SINCE_DRIVER = 0
"""NVML_VOLATILE_ECC."""
_MEMORY_TEMPERATURE_FIELD = 82
"""NVML_FI_DEV_MEMORY_TEMP."""


def memory(calls: Nvml, handle: object) -> tuple[int, int] | None:
    """Total and used bytes; a unified-memory card leaves zeros in the answer, which say nothing."""
    info = calls.get("nvmlDeviceGetMemoryInfo", handle)
    total, used = count(getattr(info, "total", None)), count(getattr(info, "used", None))
    return None if not total or used is None or used > total else (total, used)


def split(calls: Nvml, handle: object) -> bool:
    """Whether the card is in MIG mode."""
    mode = calls.get("nvmlDeviceGetMigMode", handle)
    return isinstance(mode, list | tuple) and len(mode) > 0 and mode[0] == 1


def card_sample(calls: Nvml, handle: object, uuid: str, *, split: bool) -> CardSample:
    """Everything but the profile; of a split card, what holds for the whole of it."""
    held = None if split else memory(calls, handle)
    rates = None if split else calls.get("nvmlDeviceGetUtilizationRates", handle)
    reasons = calls.count("nvmlDeviceGetCurrentClocksEventReasons", handle)
    if reasons is None:
        reasons = calls.count("nvmlDeviceGetCurrentClocksThrottleReasons", handle)
    limit_mw = calls.number("nvmlDeviceGetEnforcedPowerLimit", handle)
    if not limit_mw:
        limit_mw = calls.number("nvmlDeviceGetPowerManagementLimit", handle)
    return CardSample(
        uuid=uuid,
        memory_used_bytes=held[1] if held else None,
        utilization_percent=_share(getattr(rates, "gpu", None)),
        memory_utilization_percent=_share(getattr(rates, "memory", None)),
        temperature_c=_heat(calls.number("nvmlDeviceGetTemperature", handle, _GPU_TEMPERATURE)),
        # A card without a sensor in its memory says 0 degrees.
        memory_temperature_c=_heat(calls.field_value(handle, _MEMORY_TEMPERATURE_FIELD)) or None,
        power_w=_watts(calls.number("nvmlDeviceGetPowerUsage", handle)),
        power_limit_w=_watts(limit_mw) or None,
        throttle_reasons=throttle.mask(reasons),
        sm_clock_mhz=calls.number("nvmlDeviceGetClockInfo", handle, _CLOCK_SM),
        memory_clock_mhz=calls.number("nvmlDeviceGetClockInfo", handle, _CLOCK_MEMORY),
        ecc_uncorrected=calls.count("nvmlDeviceGetTotalEccErrors", handle, _UNCORRECTED, _SINCE_DRIVER),
    )


def instance_sample(calls: Nvml, handle: object, uuid: str, card: CardSample) -> CardSample:
    """A MIG instance: its own memory and its card's heat, and nothing that would be counted twice or is not its own."""
    held = memory(calls, handle)
    return CardSample(
        uuid=uuid,
        memory_used_bytes=held[1] if held else None,
        temperature_c=card.temperature_c,
        memory_temperature_c=card.memory_temperature_c,
    )


def _share(value: object) -> float | None:
    found = number(value)
    return found if found is not None and 0 <= found <= 100 else None


def _heat(value: float | None) -> float | None:
    return value if value is not None and -50 <= value <= 200 else None


def _watts(milliwatts: float | None) -> float | None:
    return milliwatts / 1000 if milliwatts is not None and 0 <= milliwatts < 20_000_000 else None
