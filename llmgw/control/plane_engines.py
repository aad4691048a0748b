"""The part of the plane that is about engines on nodes."""

from collections.abc import Sequence

from llmgw.api import types as t
from llmgw.control.builds import BuildService
from llmgw.control.engine_checks import EngineCheckService


class EnginePlane:
    """`web.engine_ports.EngineControl` over the service of one server."""

    def __init__(self, checks: EngineCheckService, builds: BuildService) -> None:
        self._checks = checks
        self._builds = builds

    async def check_engines(self, *, engine: str | None, node: str | None) -> Sequence[t.EngineVerdict]:
        """What engines say of the flags they are given."""
        return await self._checks.check(engine=engine, node=node)

    async def node_builds(self, name: str) -> Sequence[t.BuildInfo]:
        """What a node is asked to install, and how far it is."""
        return self._builds.list(name)

    async def ask_build(self, name: str, request: t.BuildRequest, *, actor: str) -> t.Result:
        """Ask a node for a version of an engine."""
        return await self._builds.ask(name, request, actor=actor)
