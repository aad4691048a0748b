"""The part of the plane that is about fresh samples of nodes."""

from llmgw.api import types as t
from llmgw.control.samples import SampleService


class SamplePlane:
    """`web.ports.ControlPlane.sample` over the service of one server."""

    def __init__(self, samples: SampleService) -> None:
        self._samples = samples

    async def sample(self, name: str) -> t.Result:
        """Ask a node for a fresh sample."""
        return self._samples.ask(name)
