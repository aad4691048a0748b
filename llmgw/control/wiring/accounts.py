"""Who may ask for what: keys, their teams and tenants, and the bands of their requests."""

from llmgw.control.bands import BandService
from llmgw.control.feed import FeedServer
from llmgw.control.keys import KeyService
from llmgw.control.scopes import ScopeService
from llmgw.control.wiring.ground import Ground


class AccountGroup:
    """Keys and what holds for them; routers hear of them by the feed."""

    def __init__(self, ground: Ground, feed: FeedServer) -> None:
        store, leadership = ground.store, ground.leadership
        self.scopes = ScopeService(store=store, leadership=leadership, publish=feed.publish_scopes, told=feed.told)
        self.keys = KeyService(
            store=store, leadership=leadership, feed=feed, scopes=self.scopes, cluster_secret=ground.secret
        )
        self.bands = BandService(store=store, leadership=leadership, feed=feed, read_settings=ground.read_settings)
