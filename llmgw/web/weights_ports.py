"""What the admin app needs of the control plane for weights; see `llmgw.web.ports`."""

from collections.abc import Sequence
from typing import Protocol

from llmgw.api.types import OrphansRemove, Result, WeightsFetch, WeightsInfo, WeightsOrphans, WeightsVerify


class WeightsControl(Protocol):
    """Sets of weights on the mirror."""

    async def weights(self) -> Sequence[WeightsInfo]:
        """Every set, by source."""
        ...

    async def fetch_weights(self, request: WeightsFetch, *, actor: str) -> Result:
        """Have a set brought to the mirror, or tried again; raises InvalidInput for what is no source."""
        ...

    async def verify_weights(self, request: WeightsVerify, *, actor: str) -> Result:
        """Have a set read back against its manifest; raises NotFound, or Conflict while it is not whole."""
        ...

    async def remove_weights(self, source: str, *, actor: str) -> Result:
        """Remove a set from the mirror; raises NotFound, or Conflict while a model needs it."""
        ...

    async def orphans(self) -> WeightsOrphans:
        """Sets that no model needs and nothing works on."""
        ...

    async def remove_orphans(self, request: OrphansRemove, *, actor: str) -> Result:
        """Remove those of the named sets that are orphans still; raises NotFound when none is."""
        ...
