"""Why a card's clocks are lower than they could be. The bits are NVML's, and bit 0 is ours: the reasons were read.

A mask of 0 is therefore "not reported", and 1 is "nothing holds it back".
"""

READ = 0x1
"""NVML's own bit 0 says that the card is idle, which holds nothing back and is left out."""
POWER_CAP = 0x4
HW_SLOWDOWN = 0x8
SW_THERMAL = 0x20
HW_THERMAL = 0x40
POWER_BRAKE = 0x80

WORDS = {
    0x2: "clocks set lower by an administrator",
    POWER_CAP: "at its power limit",
    HW_SLOWDOWN: "slowed down by hardware",
    0x10: "kept in step with a slower card",
    SW_THERMAL: "warm: the driver lowers clocks",
    HW_THERMAL: "too hot: hardware lowers clocks",
    POWER_BRAKE: "the power supply asked for less",
    0x100: "clocks set for a display",
}
"""Bit → what it says about the card."""
HELD_BACK = POWER_CAP | HW_SLOWDOWN | SW_THERMAL | HW_THERMAL | POWER_BRAKE
"""Bits that cost speed against the operator's will; the others are settings."""
_ALL = sum(WORDS)


def mask(nvml_reasons: int | None) -> int:
    """NVML's reasons as they travel; 0 for none read. Bits without a meaning here are dropped."""
    return 0 if nvml_reasons is None else (nvml_reasons & _ALL) | READ


def throttled(reasons: int) -> bool | None:
    """Whether the card is held back; none when that was not read."""
    return bool(reasons & HELD_BACK) if reasons & READ else None


def words(reasons: int) -> tuple[str, ...]:
    """What the mask says, in words, the lowest bit first."""
    return tuple(text for bit, text in WORDS.items() if reasons & bit)
