"""Checks of engines on nodes: asked of their agents, each of which answers an engine at a time, and waited for.

Nothing is changed anywhere, so nothing is audited. A node that says nothing costs its own deadline and no other's.
"""

import itertools
from typing import Protocol

import trio

from llmgw.api.engine_types import EngineVerdict
from llmgw.control.inventory import Inventory
from llmgw.core.catalog import ENGINES
from llmgw.core.cluster import RUNTIME, Node, NodeLink
from llmgw.core.engine_checks import EngineCheck
from llmgw.core.errors import InvalidInput, NotFound

CHECK_DEADLINE_S = 300.0
"""A node's engines import one after the other all that they have, and a help of one of them may take a minute."""
MAX_VERDICTS = 32
"""Engines a node can have; it is not listened to for more."""


class CheckOrders(Protocol):
    """The agents, as far as checks go."""

    def check_engines(self, node: str, request_id: str, engine: str) -> bool:
        """Ask a node to check one engine, or all for an empty name; False when it is not connected."""


class _Asked:
    def __init__(self, node: str) -> None:
        self.node = node
        self.found: list[EngineCheck] = []
        self.failed = ""
        self.ended = trio.Event()


class EngineCheckService:
    """Has engines checked for operators."""

    def __init__(self, *, inventory: Inventory, orders: CheckOrders, deadline_s: float = CHECK_DEADLINE_S) -> None:
        self._inventory = inventory
        self._orders = orders
        self._deadline_s = deadline_s
        self._asked: dict[str, _Asked] = {}
        self._ids = itertools.count(1)

    def received(self, node: str, request_id: str, found: EngineCheck, *, end: bool) -> None:
        """A node's answer; one that nobody waits for, or that another node was asked for, is dropped."""
        asked = self._asked.get(request_id)
        if asked is None or asked.node != node:
            return
        if not found.engine:
            asked.failed = found.failed or "it refused without a reason"
        elif len(asked.found) < MAX_VERDICTS:
            asked.found.append(found)
        if end:
            asked.ended.set()

    def lost(self, node: str) -> None:
        """A node's connection is gone, and with it what it would have answered."""
        for asked in self._asked.values():
            if asked.node == node and not asked.ended.is_set():
                asked.failed = "its connection was lost while it was asked"
                asked.ended.set()

    async def check(self, *, engine: str | None, node: str | None) -> tuple[EngineVerdict, ...]:
        """By node and engine; engines that are not installed are told of where one was named. Raises InvalidInput."""
        known_here = (*ENGINES, RUNTIME)
        if engine is not None and engine not in known_here:
            raise InvalidInput(f"{engine[:80]!r} is not one of {', '.join(known_here)}", field="engine")
        nodes = [known for known in self._inventory.nodes() if node in (None, known.name)]
        if node is not None and not nodes:
            raise NotFound(f"there is no node {node!r}; `llmgw ctl nodes` lists them")
        told: dict[str, tuple[EngineVerdict, ...]] = {}

        async def ask(known: Node) -> None:
            told[known.name] = await self._ask(known, engine)

        async with trio.open_nursery() as nursery:
            for known in nodes:
                nursery.start_soon(ask, known)
        return tuple(verdict for name in sorted(told) for verdict in told[name])

    async def _ask(self, known: Node, engine: str | None) -> tuple[EngineVerdict, ...]:
        name = known.name
        if known.simulated:
            return (_unasked(name, "it is simulated, and has no engines", good=True),)
        request_id = f"check-{next(self._ids)}"
        asked = self._asked[request_id] = _Asked(name)
        try:
            connected = known.link is NodeLink.CONNECTED
            if not connected or not self._orders.check_engines(name, request_id, engine or ""):
                return (_unasked(name, "it is not connected"),)
            with trio.move_on_after(self._deadline_s):
                await asked.ended.wait()
        finally:
            del self._asked[request_id]
        verdicts = [_verdict(name, found) for found in asked.found if found.installed or engine is not None]
        if asked.failed:
            verdicts.append(_unasked(name, asked.failed))
        elif not asked.ended.is_set():
            late = f"it did not answer within {self._deadline_s:.0f} s, as agents older than this server never do"
            verdicts.append(_unasked(name, late))
        return tuple(verdicts)


def _verdict(node: str, found: EngineCheck) -> EngineVerdict:
    return EngineVerdict(
        node=node,
        engine=found.engine,
        version=found.version,
        installed=found.installed,
        good=found.good,
        written=found.written,
        allowed=found.allowed,
        unknown_written=found.unknown_written,
        unknown_allowed=found.unknown_allowed,
        failed=found.failed,
        message=found.said(node),
    )


def _unasked(node: str, why: str, *, good: bool = False) -> EngineVerdict:
    return EngineVerdict(node=node, good=good, failed=why, message=f"{node} could not be asked: {why}")
