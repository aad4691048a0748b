"""Strata's flags: what a profile may give its setup, and what the agent sets. Names and values are those of its setup.

Strata is set up for a model before it serves it, and what it is set up with holds for as long as it serves.
"""

from collections.abc import Sequence

from llmgw.core.beside import value_of
from llmgw.core.flag_kinds import FLOAT, WORD, choice, own, table

ALLOWED = table(
    family=(WORD, "--family"),
    size=(WORD, "--model"),
    kv=(choice("int8", "q4_0", "k8v4"), "--kv"),
    low=(choice("auto", "on", "off"), "--low-ram --kv-streaming"),
    budget=(FLOAT, "--resident-budget-gib"),
)
"""Every spelling of every flag a profile may give."""

_CARD = "it runs on the one card the scheduler chose"
SETS_ITSELF = own(
    context=("set context_length instead", "--context"),
    slots=("it answers one request at a time: slots is 1", "--parallel"),
    listen=("the agent chooses where the engine listens", "--host --port"),
    key=("the agent hands each engine its own key", "--api-key"),
    card=(_CARD, "--gpu --gpus --gpu-roles --layer-split --backend"),
    files=("weights come by source, and what it prepares is kept beside them", "--gguf-dir --data-dir"),
    vision=("it reads further model files", "--vision"),
    projection=("it changes what the model answers", "--experimental-speed-projection"),
    setup=("the agent sets it up and starts it", "--setup --yes --no-start --no-browser --calibrate --build"),
)
"""Flags the agent sets or keeps off, with the reason, under every abbreviation."""


def not_told(args: Sequence[str]) -> str:
    """Why it cannot be set up: it is not told which model it gets; empty when it is."""
    missing = [name for name in ("--family", "--model") if not value_of(args, (name,))]
    if not missing:
        return ""
    return f"strata is told which model it gets: add {' and '.join(missing)}, as in --family qwen --model IQ2_XS"
