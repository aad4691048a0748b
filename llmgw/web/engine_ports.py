"""What the admin app needs of the control plane for engines; see `llmgw.web.ports`."""

from collections.abc import Sequence
from typing import Protocol

from llmgw.api.types import BuildInfo, BuildRequest, EngineVerdict, Result


class EngineControl(Protocol):
    """Engines on nodes."""

    async def check_engines(self, *, engine: str | None, node: str | None) -> Sequence[EngineVerdict]:
        """Ask nodes, or one, whether their engines, or one, take every flag; raises InvalidInput and NotFound."""
        ...

    async def node_builds(self, name: str) -> Sequence[BuildInfo]:
        """What a node is asked to install, an engine each; raises NotFound."""
        ...

    async def ask_build(self, name: str, request: BuildRequest, *, actor: str) -> Result:
        """Ask a node for a version of an engine; raises InvalidInput and NotFound."""
        ...
