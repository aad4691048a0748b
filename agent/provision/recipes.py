"""What it takes to install each engine that is a Python package."""

from collections.abc import Mapping
from dataclasses import dataclass

from llmgw.core.units import GB

CARD_CHECK = (
    "import torch; "
    "assert torch.cuda.is_available(), 'torch sees no card'; "
    "x = torch.ones(256, 256, device='cuda'); "
    "assert float((x @ x).sum()) == 256.0 ** 3, 'a product on the card is wrong'; "
    "print(torch.cuda.get_device_name(0))"
)
"""Run by the new environment's own Python: sees a card, and computes on it what is right."""


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """How one engine is installed."""

    engine: str
    package: str
    """Name on the index; the version is pinned."""
    program: str
    """What is in the environment's `bin` then."""
    disk_bytes: int
    """Room it needs, the index's files that are kept beside it included."""
    check: str
    """Python that fails unless the engine could use a card."""


RECIPES: Mapping[str, Recipe] = {
    recipe.engine: recipe
    for recipe in (
        Recipe(engine="vllm", package="vllm", program="vllm", disk_bytes=16 * GB, check=CARD_CHECK),
        Recipe(engine="sglang", package="sglang", program="sglang", disk_bytes=20 * GB, check=CARD_CHECK),
    )
}
