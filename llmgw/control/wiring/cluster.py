"""The cluster: what should run where, the nodes it runs on, and the models it serves."""

from functools import partial

from llmgw.agents.orders import AgentOrders
from llmgw.control.certificates import Certificates
from llmgw.control.feed import FeedServer
from llmgw.control.models import ModelService
from llmgw.control.nodes import NodeService
from llmgw.control.reconciler import Reconciler
from llmgw.control.scopes import ScopeService
from llmgw.control.weights import MirrorWeights
from llmgw.control.wiring.agents import AgentGroup
from llmgw.control.wiring.ground import Ground
from llmgw.core.secrets import new_replica_id
from llmgw.mirror.service import Mirror


class ClusterGroup:
    """The reconciler, and the services whose changes it carries out."""

    def __init__(
        self, ground: Ground, agents: AgentGroup, *, mirror: Mirror, feed: FeedServer, scopes: ScopeService
    ) -> None:
        leadership, settings = ground.leadership, ground.settings
        self.reconciler = Reconciler(
            catalog=ground.catalog,
            inventory=ground.inventory,
            weights=MirrorWeights(mirror),
            orders=AgentOrders(agents.server, cluster_secret=ground.secret),
            traffic=feed,
            timeouts=lambda: settings.timeouts,
            scoring=lambda: settings.scoring,
            seen=lambda: settings.seen,
            admission=lambda: settings.admission,
            leading=lambda: leadership.leading,
            wake=ground.wake,
            owner=leadership.owner,
            new_id=partial(new_replica_id, ground.secret),
        )
        self.nodes = NodeService(
            leadership=leadership,
            inventory=ground.inventory,
            reconciler=self.reconciler,
            builds=agents.builds,
            authority=ground.authority,
            agents_url=ground.addresses.agents,
            mirror_url=ground.addresses.mirror,
        )
        self.certificates = Certificates(ground.authority, lambda: self.nodes.certificate_ends)
        self.models = ModelService(
            store=ground.store,
            leadership=leadership,
            catalog=ground.catalog,
            inventory=ground.inventory,
            reconciler=self.reconciler,
            private=ground.private,
            costs=scopes.costs_today,
        )
