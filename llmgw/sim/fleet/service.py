"""The fleet's process tree, from top to bottom. One asyncio loop holds all links, one listener all replicas.

hall (listener, pacer)
  enrolment → link loop
    node: orders, shards; its link (the silent node's is hushed now and then)
  sensors, and loads: one round each over all nodes
"""

import contextlib
import logging
import resource
import signal
from collections.abc import Callable

import trio

from agent.link import link_loop
from llmgw.api.client import AdminClient
from llmgw.api.problems import Unreachable
from llmgw.sim.fleet.enrol import RETRY_S, Enroller, FleetError, Tokens, node_layout
from llmgw.sim.fleet.hall import Hall
from llmgw.sim.fleet.node import SimNode
from llmgw.sim.fleet.options import FleetOptions
from llmgw.sim.fleet.roster import NodePlan, roster

log = logging.getLogger("llmgw.sim.fleet")

SENSE_EVERY_S = 5.0
"""Each node's sensors are read this often; the nodes' turns are spread over it."""
LOADS_EVERY_S = 1.0
"""Each node's engines are asked for their work this often, as by an agent."""
NODES_AT_A_TIME = 50
"""Nodes that are asked before others may run."""
CONNECTS_PER_S = 60.0
"""New streams a second: a fleet that starts is no thundering herd."""
SERVER_S = 120.0
"""Longest wait for the admin API at the start."""
FIRST_SILENCE_S = 240.0
"""The silent node is heard for so long before it falls silent the first time."""
SILENCE_S = 90.0
"""Long enough to be silent, then lost."""
HEARD_S = 300.0
"""Between two silences."""


async def run(options: FleetOptions, client: AdminClient | None, say: Callable[[str], None]) -> None:
    """Run the fleet until SIGTERM or SIGINT. Raises FleetError, ClientError, OSError when it cannot come up."""
    _raise_descriptor_limit()
    with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        hall = Hall(options.host, options.port)
        cluster_id = await _cluster_id(client) if client is not None else ""
        enroller = Enroller(options.data, Tokens(client, options.tokens), cluster_id=cluster_id, say=say)
        fleet = Fleet(options, hall)
        async with trio.open_nursery() as nursery:
            await nursery.start(hall.run)
            nursery.start_soon(fleet.run, enroller)
            await anext(signals)
            nursery.cancel_scope.cancel()


async def _cluster_id(client: AdminClient) -> str:
    """Whose nodes these will be; waits for a server that is just starting."""
    deadline = trio.current_time() + SERVER_S
    while True:
        try:
            status = await trio.to_thread.run_sync(client.status, abandon_on_cancel=True)
        except Unreachable:
            if trio.current_time() >= deadline:
                raise
            await trio.sleep(RETRY_S)
        else:
            return status.cluster_id


class Fleet:
    """All nodes of the fleet."""

    def __init__(self, options: FleetOptions, hall: Hall) -> None:
        self._options = options
        self._hall = hall
        self.nodes: list[SimNode] = []
        """Nodes that are members, in the order in which they came up."""

    async def run(self, enroller: Enroller) -> None:
        """Join who has not joined, connect everybody, and tell sensors, for ever."""
        plans = roster(self._options)
        members, come = trio.open_memory_channel[NodePlan](len(plans))
        async with trio.open_nursery() as nursery:
            # Enrolment opens loops of its own, so it stays outside the links' one.
            nursery.start_soon(enroller.run, plans, members)
            nursery.start_soon(self._sense)
            nursery.start_soon(self._tell_loads)
            async with link_loop(), trio.open_nursery() as links, come:
                async for plan in come:
                    await links.start(self._live, plan)
                    await trio.sleep(1 / CONNECTS_PER_S)
                log.info("all %s simulated nodes are up", len(self.nodes))
                await trio.sleep_forever()

    async def _live(self, plan: NodePlan, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """One node and its link."""
        options = self._options
        node = SimNode(plan, node_layout(options.data, plan), hall=self._hall, address=options.host, seed=options.seed)
        self.nodes.append(node)
        async with trio.open_nursery() as nursery:
            await nursery.start(node.run)
            task_status.started()
            await (self._now_and_then(node) if plan.silent else node.link.keep_up())

    async def _now_and_then(self, node: SimNode) -> None:
        """Keep the link up, and now and then say nothing on it: that nobody is there is for others to find out."""
        heard_s = FIRST_SILENCE_S
        while True:
            async with trio.open_nursery() as nursery:
                await nursery.start(node.link.keep_up)
                await trio.sleep(heard_s)
                log.info("%s says nothing for %s s", node.plan.name, SILENCE_S)
                silent_until = trio.current_time() + SILENCE_S
                node.link.hush()
                with trio.move_on_at(silent_until):
                    await node.link.ended()
                # Once the stream is cut, a hung machine makes no other.
                nursery.cancel_scope.cancel()
            await trio.sleep_until(silent_until)
            node.link.speak()
            heard_s = HEARD_S

    async def _sense(self) -> None:
        """Round after round over all nodes, each at its own moment of the round."""
        while True:
            began = trio.current_time()
            for index, node in enumerate(list(self.nodes)):
                await trio.sleep_until(began + SENSE_EVERY_S * index / len(self.nodes))
                node.sense()
            await trio.sleep_until(began + SENSE_EVERY_S)

    async def _tell_loads(self) -> None:
        """Round after round over all nodes."""
        while True:
            began = trio.current_time()
            for index, node in enumerate(list(self.nodes)):
                node.tell_loads()
                if index % NODES_AT_A_TIME == 0:
                    await trio.lowlevel.checkpoint()
            await trio.sleep_until(began + LOADS_EVERY_S)


def _raise_descriptor_limit() -> None:
    """A node is a connection; the usual soft limit holds a thousand."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


__all__ = ["Fleet", "FleetError", "run"]
