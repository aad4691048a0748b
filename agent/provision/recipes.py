"""What it takes to install each engine that is a Python package."""

from collections.abc import Mapping
from dataclasses import dataclass

from agent.provision.meant import Requirements
from llmgw.core.units import GB

CARD_CHECK = (
    "import torch; "
    "assert torch.cuda.is_available(), 'torch sees no card'; "
    "x = torch.ones(256, 256, device='cuda'); "
    "assert float((x @ x).sum()) == 256.0 ** 3, 'a product on the card is wrong'; "
    "print(torch.cuda.get_device_name(0))"
)
"""Run by the new environment's own Python: sees a card, and computes on it what is right."""
CUDA_13_CHECK = (
    "import torch; "
    "assert (torch.version.cuda or '').startswith('13.'), f'its torch is made for CUDA {torch.version.cuda}, not 13'; "
    + CARD_CHECK
)
"""The same, of a torch that speaks the CUDA its kernels are compiled with."""
FREETOKEN_NEEDS = Requirements(architecture="x86_64", drivers=(((8, 0), 580),), toolkit=13)


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
    beside: tuple[str, ...] = ()
    """Packages it can do without that go with it, so that replicas can span several nodes."""
    extras: str = ""
    """Of the package, those that bring its kernels."""
    requires: Requirements | None = None
    """What a machine has to have; none asks for any card."""

    def requirement(self, version: str) -> str:
        """What is asked of the index."""
        return f"{self.package}{f'[{self.extras}]' if self.extras else ''}=={version}"


RECIPES: Mapping[str, Recipe] = {
    recipe.engine: recipe
    for recipe in (
        Recipe(
            engine="vllm",
            package="vllm",
            program="vllm",
            disk_bytes=16 * GB,
            check=CARD_CHECK,
            beside=("ray>=2.52",),
        ),
        Recipe(engine="sglang", package="sglang", program="sglang", disk_bytes=20 * GB, check=CARD_CHECK),
        Recipe(
            engine="freetoken",
            package="freetoken",
            program="ft",
            disk_bytes=20 * GB,
            check=CUDA_13_CHECK,
            extras="accel",
            requires=FREETOKEN_NEEDS,
        ),
    )
}
