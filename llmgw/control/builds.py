"""Which engines nodes are to install: what operators asked for, kept in the store, told to agents on every new stream.

An agent is always told all of it. So one that was away when something changed needs nobody to remember that.
"""

from collections.abc import Iterable, Mapping
from typing import Protocol

from llmgw.api.types import BuildInfo, BuildRequest, Result
from llmgw.control.inventory import Inventory
from llmgw.control.leadership import Leadership
from llmgw.core.cluster import EngineBuild, Node, NodeLink
from llmgw.core.engine_builds import AUTO, INSTALLED, NONE, PACKAGED, check_build, version_meant
from llmgw.core.errors import InvalidInput, NotFound
from llmgw.store import nodes as stored_nodes
from llmgw.store.nodes import NodeRow


class BuildOrders(Protocol):
    """The agents, as far as installing goes."""

    def set_builds(self, node: str, builds: Mapping[str, str]) -> bool:
        """Tell a node all that is asked of it; False when it is not connected."""


class BuildService:
    """What operators do with the engines of single nodes."""

    def __init__(self, *, leadership: Leadership, inventory: Inventory, orders: BuildOrders) -> None:
        self._leadership = leadership
        self._inventory = inventory
        self._orders = orders
        self._builds: dict[str, dict[str, str]] = {}

    def replace(self, rows: Iterable[NodeRow]) -> None:
        """As the store has them now; nodes for which that is another are told."""
        before, self._builds = self._builds, {row.name: row.builds for row in rows if row.evicted is None}
        for name, builds in self._builds.items():
            if builds != before.get(name, {}):
                self._orders.set_builds(name, builds)

    def connected(self, node: str) -> None:
        """A node has a new stream, and is told what is asked of it."""
        self._orders.set_builds(node, self._builds.get(node, {}))

    def list(self, name: str) -> tuple[BuildInfo, ...]:
        """Every engine that can be installed: what is asked for, what is there, and how far it is."""
        node = self._node(name)
        there = {build.engine: build for build in node.engines}
        asked = self._builds.get(name, {})
        return tuple(_info(engine, asked.get(engine, AUTO), there.get(engine)) for engine in INSTALLED)

    async def ask(self, name: str, request: BuildRequest, *, actor: str) -> Result:
        """Ask a node for a version of an engine, for none, or for what its own agent.yaml says (`auto`)."""
        node, engine, version = self._node(name), request.engine, request.version
        if version != AUTO or engine not in INSTALLED:
            check_build(engine, version)
        version = version_meant(engine, version)
        installs = version not in (AUTO, NONE)
        if installs and engine in PACKAGED and node.link is NodeLink.CONNECTED and not node.cards:
            raise InvalidInput(
                f"{name} has no card, and {engine} needs one: name a node with cards, or install {INSTALLED[-1]}"
            )
        if node.simulated:
            raise InvalidInput(f"{name} is simulated, and installs nothing")
        row = await self._leadership.lead(stored_nodes.set_build, name, engine, _stored(version), actor=actor)
        self._builds[name] = row.builds
        told = self._orders.set_builds(name, row.builds)
        return Result(message=_sentence(name, engine, version, told=told))

    def _node(self, name: str) -> Node:
        found = next((node for node in self._inventory.nodes() if node.name == name), None)
        if found is None:
            raise NotFound(f"there is no node {name!r}; `llmgw ctl nodes` lists them")
        return found


def _stored(version: str) -> str | None:
    return None if version == AUTO else version


def _info(engine: str, asked: str, there: EngineBuild | None) -> BuildInfo:
    if there is None:
        return BuildInfo(engine=engine, asked=asked)
    return BuildInfo(
        engine=engine,
        asked=asked,
        version=there.version if there.usable else "",
        state=there.installing or there.why_not,
    )


def _sentence(node: str, engine: str, version: str, *, told: bool) -> str:
    if version == AUTO:
        done = f"{engine} on {node} is what its own agent.yaml says"
    elif version == NONE:
        done = f"{engine} is not installed on {node}; what is there stays on its disk and is not started from"
    else:
        done = f"{node} installs {engine} {version}; until it is whole the one before starts engines"
    return done if told else f"{done}, once it is connected again"
