"""Compute capabilities: what a card can compute, as its driver says it (`8.9`), and what an engine needs of one."""

import re
from collections.abc import Mapping

Capability = tuple[int, int]

_TOLD = re.compile(r"([0-9]{1,3})\.([0-9]{1,2})")
_FREETOKEN: Capability = (8, 0)
_FREETOKEN_FORMATS: Mapping[str, Capability] = {"fp8": (8, 9), "nvfp4": (12, 0)}
"""By how the weights are stored; its other formats run on every card it runs on."""


def capability_of(text: str) -> Capability | None:
    """`8.9` as a pair that compares; none where a card does not say."""
    match = _TOLD.fullmatch(text)
    return (int(match[1]), int(match[2])) if match else None


def needed_capability(engine: str, quantization: str = "") -> Capability | None:
    """The least a card must have for an engine and weights stored so; none where the engine decides by itself."""
    return _FREETOKEN_FORMATS.get(quantization, _FREETOKEN) if engine == "freetoken" else None


def too_old(told: str, needed: Capability | None, *, what: str) -> str:
    """Why a card that says `told` cannot run `what`; empty when it can, or does not say."""
    there = capability_of(told)
    if needed is None or there is None or there >= needed:
        return ""
    return f"compute capability {told}, and {what} needs {needed[0]}.{needed[1]}"
