"""Where engines said that they compute, as agents tell it: outside text and figures, bounded and harmless."""

from llmgw.agents.plausible import MAX_TOKENS, clean, size_of
from llmgw.core.compute import MAX_DEVICES, MAX_LINE_CHARS, MAX_NAME_CHARS, Compute, ComputeDevice
from llmgw.wire.llmgw import v1 as wire


def compute_from(said: wire.ComputeSaid | None) -> Compute | None:
    """What an engine said; more layers on cards than it has are no figure. None from agents that do not tell."""
    if said is None:
        return None
    on_cards, layers = said.layers_on_cards, said.layers
    counted = on_cards is not None and layers is not None and on_cards <= layers <= MAX_TOKENS
    return Compute(
        cpu_only=said.cpu_only,
        layers_on_cards=on_cards if counted else None,
        layers=layers if counted else None,
        devices=tuple(
            ComputeDevice(name=clean(device.name, MAX_NAME_CHARS), held_bytes=size_of(device.held_bytes))
            for device in said.devices[:MAX_DEVICES]
        ),
        less_than_asked=said.less_than_asked,
        line=clean(said.line, MAX_LINE_CHARS),
    )
