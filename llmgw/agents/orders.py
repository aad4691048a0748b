"""What the reconciler orders, as messages to nodes. An order goes out or does not; nothing is kept for later."""

from llmgw.agents.bridge import AgentServer
from llmgw.agents.order_messages import drain_shard, rally_shard, start_shard, stop_shard
from llmgw.core.catalog import Profile
from llmgw.core.cluster import Replica
from llmgw.core.secrets import engine_key
from llmgw.core.snapshot import CatalogEntry


class AgentOrders:
    """The reconciler's `Orders` over the agent port. A node gets its replicas' own keys, never the cluster secret."""

    def __init__(self, server: AgentServer, *, cluster_secret: bytes) -> None:
        self._server = server
        self._secret = cluster_secret

    def start(self, replica: Replica, entry: CatalogEntry, profile: Profile) -> bool:
        """Run this replica; False when one of its nodes is not connected, and then on none of them."""
        key = engine_key(self._secret, replica.id)
        for rank, node in enumerate(replica.nodes):
            if not self._server.send(node, start_shard(replica, entry, profile, engine_key=key, rank=rank)):
                for begun in range(rank):
                    self.stop(replica, f"{node} is not connected", 0.0, rank=begun)
                return False
        return True

    def rally(self, replica: Replica, rank: int) -> bool:
        """Let a shard that waits for the others go on; False when its node is not connected."""
        return self._server.send(replica.nodes[rank], rally_shard(replica, rank))

    def drain(self, replica: Replica, reason: str, deadline_s: float) -> bool:
        """Take no new requests, end by the deadline; False when its node is not connected."""
        return self._server.send(replica.node, drain_shard(replica.id, reason, deadline_s))

    def stop(self, replica: Replica, reason: str, grace_s: float, *, rank: int = 0) -> bool:
        """End it, or one of its shards, now; False when the node is not connected."""
        return self._server.send(replica.nodes[rank], stop_shard(replica.id, reason, grace_s, rank=rank))
