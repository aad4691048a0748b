"""What a profile on cards keeps in the node's memory beside them, by its flags and variables as they were written.

llama.cpp and FreeToken leave the experts of a mixture there: of a token's many experts few are used, so a card that
holds the rest of the model is enough for one that is far larger than its memory.
"""

from collections.abc import Mapping, Sequence

from llmgw.core.cluster import GIB

ALL_EXPERTS = ("--cpu-moe", "-cmoe")
SOME_EXPERTS = ("--n-cpu-moe", "-ncmoe")
"""llama.cpp: of how many layers, the first ones, the experts stay in memory."""
MOE_STRATEGY = ("--moe-strategy",)
PIN_BUDGET = "FREETOKEN_PIN_BUDGET_GB"
RESIDENT = "fused"
"""FreeToken's strategy that keeps experts on the card."""


def layers_in_memory(args: Sequence[str], layers: int) -> int:
    """Of how many of a model's layers llama.cpp keeps the experts in memory."""
    if any(word in ALL_EXPERTS for word in args):
        return layers
    value = value_of(args, SOME_EXPERTS)
    return min(layers, int(value)) if value.isascii() and value.isdigit() else 0


def experts_on_card(args: Sequence[str]) -> bool:
    """Whether FreeToken was told to keep experts on the card."""
    return value_of(args, MOE_STRATEGY) == RESIDENT


def pinned_bytes(env: Mapping[str, str]) -> int:
    """Memory FreeToken was told it may lock; 0 where nothing was said, or nothing that counts as a size."""
    try:
        count = float(env.get(PIN_BUDGET, "0"))
    except ValueError:
        return 0
    return round(count * GIB) if 0 < count < 1e6 else 0


def value_of(args: Sequence[str], spellings: Sequence[str]) -> str:
    """The last value given to a flag, as `--x v` or `--x=v`; empty when it is not there."""
    found = ""
    for i, word in enumerate(args):
        name, equals, value = word.partition("=")
        if name in spellings:
            found = value if equals else "".join(args[i + 1 : i + 2])
    return found
