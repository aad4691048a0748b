"""The part of the plane that is about weights on the mirror."""

from collections.abc import Sequence

from llmgw.api import types as t
from llmgw.control.weights_service import WeightsService


class WeightsPlane:
    """`web.weights_ports.WeightsControl` over the service of one server."""

    def __init__(self, weights: WeightsService) -> None:
        self._weights = weights

    async def weights(self) -> Sequence[t.WeightsInfo]:
        """Every set."""
        return self._weights.list()

    async def fetch_weights(self, request: t.WeightsFetch, *, actor: str) -> t.Result:
        """Have a set brought, or tried again."""
        return await self._weights.fetch(request, actor=actor)

    async def verify_weights(self, request: t.WeightsVerify, *, actor: str) -> t.Result:
        """Have a set read back."""
        return await self._weights.verify(request, actor=actor)

    async def remove_weights(self, source: str, *, actor: str) -> t.Result:
        """Remove a set that no model needs."""
        return await self._weights.remove(source, actor=actor)

    async def orphans(self) -> t.WeightsOrphans:
        """Sets that no model needs."""
        return await self._weights.orphans.list()

    async def remove_orphans(self, request: t.OrphansRemove, *, actor: str) -> t.Result:
        """Remove those of the named sets that are orphans still."""
        return await self._weights.orphans.remove(request, actor=actor)
