"""What agents say, taken into the inventory. A node that says what cannot be loses its session, and is told why."""

import logging
from collections.abc import Callable, Mapping

import trio

from llmgw.agents import nodes_told, order_messages, readings, replicas_told
from llmgw.agents.bridge import AgentServer
from llmgw.agents.checks import check_from
from llmgw.agents.plausible import clean
from llmgw.agents.sessions import NodeConnected, NodeDisconnected, NodeEvent, NodeMessage
from llmgw.control.engine_checks import EngineCheckService
from llmgw.control.inventory import Inventory
from llmgw.control.logs import LogService
from llmgw.control.samples import SampleService
from llmgw.core.cluster import Replica
from llmgw.core.errors import LlmgwError
from llmgw.core.shards import node_of, rank_on, replica_and_rank
from llmgw.wire.llmgw.v1 import (
    AgentMessage,
    CheckEngines,
    EngineWish,
    LogCancel,
    LogRequest,
    ServerMessage,
    SetBuilds,
    TakeSample,
)

STRANGER_GRACE_S = 10.0
"""An engine that this cluster did not order has this long between SIGTERM and SIGKILL."""

log = logging.getLogger(__name__)


class AgentLogOrders:
    """`logs.LogOrders` over the agent port."""

    def __init__(self, server: AgentServer) -> None:
        self._server = server

    def request_logs(
        self, node: str, request_id: str, shard_id: str, tail: int, follow: bool, *, engine: str = ""
    ) -> bool:
        """Ask a node for log lines; False when it is not connected."""
        request = LogRequest(request_id=request_id, shard_id=shard_id, tail_lines=tail, follow=follow, engine=engine)
        return self._server.send(node, ServerMessage(log_request=request))

    def cancel_logs(self, node: str, request_id: str) -> None:
        """No more of it."""
        self._server.send(node, ServerMessage(log_cancel=LogCancel(request_id=request_id)))


class AgentBuildOrders:
    """`builds.BuildOrders` over the agent port."""

    def __init__(self, server: AgentServer) -> None:
        self._server = server

    def set_builds(self, node: str, builds: Mapping[str, str]) -> bool:
        """Tell a node all that is asked of it; False when it is not connected."""
        wishes = [EngineWish(engine=engine, version=version) for engine, version in sorted(builds.items())]
        return self._server.send(node, ServerMessage(set_builds=SetBuilds(builds=wishes)))


class AgentCheckOrders:
    """`engine_checks.CheckOrders` over the agent port."""

    def __init__(self, server: AgentServer) -> None:
        self._server = server

    def check_engines(self, node: str, request_id: str, engine: str) -> bool:
        """Ask a node to check one engine, or all; False when it is not connected."""
        return self._server.send(node, ServerMessage(check_engines=CheckEngines(request_id=request_id, engine=engine)))


class AgentSampleOrders:
    """`samples.SampleOrders` over the agent port."""

    def __init__(self, server: AgentServer) -> None:
        self._server = server

    def take_sample(self, node: str) -> bool:
        """Ask a node for a fresh sample; False when it is not connected."""
        return self._server.send(node, ServerMessage(take_sample=TakeSample()))


def _nothing_to_tell(_node: str) -> None:
    return None


class SessionLoop:
    """Reads the agent port's events; the only writer of what agents say."""

    def __init__(
        self,
        *,
        server: AgentServer,
        inventory: Inventory,
        logs: LogService,
        checks: EngineCheckService,
        samples: SampleService,
        ordered: Callable[[Replica], bool],
        connected: Callable[[str], None] = _nothing_to_tell,
    ) -> None:
        """`ordered` says whether this cluster made the replica's id, for that model on that node.

        `connected` is called with a node's name when it has a new stream, to tell it what is asked of it.
        """
        self._server = server
        self._ordered = ordered
        self._inventory = inventory
        self._logs = logs
        self._checks = checks
        self._samples = samples
        self._greet = connected
        self._sessions: dict[str, int] = {}
        self._cards: dict[str, tuple[str, ...]] = {}
        self._strangers: dict[str, set[str]] = {}
        """What each node's Hello named that was not ordered there."""
        self._peers: dict[str, str] = {}
        """Where each node's connection comes from."""
        self._addresses: dict[str, str] = {}
        """Where each node says it is reached."""

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Take events until cancelled."""
        task_status.started()
        async for event in self._server.events:
            try:
                self._take(event)
            except LlmgwError as error:
                log.warning("node %s said something impossible: %s", event.node, error.message)
                self._server.disconnect(event.node, error.message)
            except Exception:
                # A supervised border: no words of a node, however odd, end the control plane for all.
                log.exception("node %s said something nobody foresaw", event.node)
                self._server.disconnect(event.node, "the control plane could not take in what the node said")

    def _take(self, event: NodeEvent) -> None:
        if isinstance(event, NodeConnected):
            self._connected(event)
        elif isinstance(event, NodeMessage):
            if self._sessions.get(event.node) == event.session_id:
                self._inventory.heard(event.node)
                self._message(event.node, event.message)
        else:
            self._disconnected(event)

    def _connected(self, event: NodeConnected) -> None:
        node = nodes_told.node_from_hello(event.hello, node=event.node, peer_address=event.peer_address)
        replicas = replicas_told.replicas_from_hello(event.hello, node=event.node)
        for replica in replicas:
            replicas_told.check_endpoint(replica, node.address)
        # A node answers for the replicas it was given, and for no other model or node; what else it runs, it may end.
        unordered = [replica for replica in replicas if not self._ordered(replica)]
        strangers = {replica.id for replica in unordered}
        replicas = tuple(replica for replica in replicas if replica.id not in strangers)
        self._strangers[event.node] = strangers
        self._sessions[event.node] = event.session_id
        self._peers[event.node] = event.peer_address
        self._addresses[event.node] = node.address
        self._cards[event.node] = tuple(card.uuid for card in node.cards)
        self._inventory.connected(node, replicas, nodes_told.problems(event.hello.inventory))
        self._samples.connected(event.node, able=event.hello.takes_samples)
        self._greet(event.node)
        log.info("node connected", extra={"node": event.node, "replicas": len(replicas)})
        for stranger in sorted(unordered, key=lambda replica: replica.id):
            log.warning("node %s runs %s, which was not ordered there: ended", event.node, stranger.id)
            reason, rank = "this cluster did not order it on this node", rank_on(stranger, event.node)
            self._server.send(event.node, order_messages.stop_shard(stranger.id, reason, STRANGER_GRACE_S, rank=rank))

    def _disconnected(self, event: NodeDisconnected) -> None:
        if self._sessions.get(event.node) != event.session_id:
            return
        del self._sessions[event.node]
        self._inventory.disconnected(event.node)
        self._checks.lost(event.node)
        self._samples.lost(event.node)
        log.warning("node disconnected: %s", event.reason, extra={"node": event.node})

    def _message(self, node: str, message: AgentMessage) -> None:
        if message.shard_status is not None:
            told = replicas_told.replica_from_status(message.shard_status, node=node)
            replicas_told.check_endpoint(told, self._addresses[node])
            known = self._inventory.replica(told.id)
            if known is not None:
                if node_of(known, replica_and_rank(message.shard_status.shard_id)[1]) == node:
                    self._inventory.shard_changed(node, told)
            elif told.live and told.id not in self._strangers[node]:
                # Ordered in the moment its node came back, and missing from the Hello that was on its way.
                self._server.disconnect(node, f"it runs {told.id}, which its Hello did not name: say all anew")
        elif message.sensors is not None:
            figures, self._cards[node] = readings.figures_from(message.sensors, self._cards.get(node, ()))
            self._inventory.sensed(node, figures)
            self._samples.told(node)
        elif message.card_wear is not None:
            self._inventory.worn(node, readings.wear_from(message.card_wear))
        elif message.engine_loads is not None:
            self._inventory.loads.heard(node, readings.loads_from(message.engine_loads))
        elif message.fetch_progress is not None:
            replicas, progress = replicas_told.progress_from(message.fetch_progress)
            self._inventory.progressed(node, replicas, progress)
        elif message.log_lines is not None:
            lines = message.log_lines
            error = clean(lines.error)
            self._logs.received(
                node, lines.request_id, list(replicas_told.log_lines_from(lines)), end=lines.end, error=error
            )
        elif message.engine_checked is not None:
            checked = message.engine_checked
            self._checks.received(node, checked.request_id, check_from(checked), end=checked.end)
        elif message.inventory is not None:
            described = nodes_told.node_from_inventory(
                message.inventory, node=node, peer_address=self._peers.get(node, "")
            )
            self._addresses[node] = described.address
            self._inventory.inventory_changed(described, nodes_told.problems(message.inventory))
