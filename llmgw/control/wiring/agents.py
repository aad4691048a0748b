"""Agents: their server, what they may be asked for, and their sessions."""

from collections.abc import Callable

import trio

from llmgw import __version__
from llmgw.agents.bridge import AgentServer
from llmgw.control.builds import BuildService
from llmgw.control.engine_checks import EngineCheckService
from llmgw.control.logs import LogService
from llmgw.control.nodes import NodeService
from llmgw.control.samples import SampleService
from llmgw.control.sessions import AgentBuildOrders, AgentCheckOrders, AgentLogOrders, AgentSampleOrders, SessionLoop
from llmgw.control.wiring.ground import Ground
from llmgw.core.cluster import HEARTBEAT_S
from llmgw.core.errors import Unavailable
from llmgw.core.secrets import ordered_by_us
from llmgw.core.shards import seat_of
from llmgw.wire.llmgw.v1 import EnrollResponse, Welcome


class AgentGroup:
    """What this server's agents hear and say."""

    def __init__(self, ground: Ground, *, nodes: Callable[[], NodeService]) -> None:
        """Nodes need the agents' server and that needs nodes: it asks for them once it runs."""
        self._ground = ground
        self._nodes = nodes
        address, authority, inventory = ground.config.address("agents"), ground.authority, ground.inventory
        self.server = AgentServer(
            host=address.host,
            port=address.port,
            context=authority.server_context(),
            cluster_id=authority.cluster_id,
            enrol=self._enrol,
            renew=lambda node, serial, csr: nodes().renew(node, serial, csr),
            welcome=self._welcome,
            allowed=lambda node, serial: nodes().allowed(node, serial),
            heard=inventory.heard,
        )
        self.builds = BuildService(
            leadership=ground.leadership, inventory=inventory, orders=AgentBuildOrders(self.server)
        )
        self.logs = LogService(layout=ground.layout, inventory=inventory, orders=AgentLogOrders(self.server))
        self.checks = EngineCheckService(inventory=inventory, orders=AgentCheckOrders(self.server))
        orders = AgentSampleOrders(self.server)
        self.samples = SampleService(inventory=inventory, orders=orders, clock=trio.current_time)
        self.sessions = SessionLoop(
            server=self.server,
            inventory=inventory,
            logs=self.logs,
            checks=self.checks,
            samples=self.samples,
            ordered=lambda replica: ordered_by_us(ground.secret, replica.id, replica.model, seat_of(replica)),
            connected=self.builds.connected,
        )

    def send_away(self, why: str) -> None:
        """End every agent's session."""
        for node in self.server.nodes:
            self.server.disconnect(node, why)

    async def _enrol(self, token: str, node: str, csr_pem: bytes) -> EnrollResponse:
        return await self._nodes().enrolment.enrol(token, node, csr_pem)

    def _welcome(self) -> Welcome:
        """First words to a node; raises Unavailable on a standby, so that the node tries the next server."""
        ground, leadership = self._ground, self._ground.leadership
        if not leadership.epoch:
            raise Unavailable(f"this server does not lead; {leadership.leader_host or 'no server'} does")
        return Welcome(
            cluster_id=ground.authority.cluster_id,
            server_version=__version__,
            epoch=leadership.epoch,
            servers=[ground.addresses.agents()],
            mirror_url=ground.addresses.mirror(),
            heartbeat_s=HEARTBEAT_S,
        )
