"""What the web apps are given: the plane that takes calls, and the feed of all that changes."""

from collections.abc import Callable

from llmgw.control.live import LiveFeed
from llmgw.control.plane import Plane
from llmgw.control.requests import RequestReader
from llmgw.control.wiring.accounts import AccountGroup
from llmgw.control.wiring.agents import AgentGroup
from llmgw.control.wiring.cluster import ClusterGroup
from llmgw.control.wiring.ground import Ground
from llmgw.control.wiring.history import HistoryGroup
from llmgw.control.wiring.routers import RouterGroup
from llmgw.control.wiring.weights import WeightsGroup


def make_plane(
    ground: Ground,
    weights: WeightsGroup,
    routers: RouterGroup,
    agents: AgentGroup,
    accounts: AccountGroup,
    cluster: ClusterGroup,
    history: HistoryGroup,
    *,
    live: Callable[[], LiveFeed],
) -> Plane:
    """The plane over all groups."""
    return Plane(
        cluster_id=ground.authority.cluster_id,
        store=ground.store,
        leadership=ground.leadership,
        inventory=ground.inventory,
        reconciler=cluster.reconciler,
        feed=routers.feed,
        mirror=weights.mirror,
        models=cluster.models,
        nodes=cluster.nodes,
        keys=accounts.keys,
        scopes=accounts.scopes,
        bands=accounts.bands,
        logs=agents.logs,
        checks=agents.checks,
        samples=agents.samples,
        builds=agents.builds,
        requests=RequestReader(ground.layout.requests),
        database=ground.database.describe,
        read_settings=ground.read_settings,
        weights=weights.service,
        traffic=routers.traffic,
        series=history.series,
        live=live,
        client_url=ground.addresses.clients,
        local_problems=lambda: (*ground.local_files.problems(), *cluster.certificates.problems()),
    )


def make_live(
    ground: Ground,
    weights: WeightsGroup,
    routers: RouterGroup,
    accounts: AccountGroup,
    cluster: ClusterGroup,
    plane: Plane,
) -> LiveFeed:
    """The feed of all that changes; it hears of every write to the store."""
    live = LiveFeed(
        store=ground.store,
        touched=ground.touched,
        inventory=ground.inventory,
        catalog=ground.catalog,
        reconciler=cluster.reconciler,
        weights=weights.service,
        traffic=routers.traffic,
        in_flight=routers.feed.in_flight,
        open_requests=routers.feed.open_requests,
        cluster=plane.cluster_row,
        costs=accounts.scopes.costs_today,
        breakers=routers.feed.breakers,
    )
    ground.leadership.on_written = live.written
    return live
