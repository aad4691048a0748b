"""Weights: the mirror, what it serves to nodes, and what is told of it."""

from collections.abc import Callable

from llmgw.control.download_spans import DownloadSpans
from llmgw.control.own_mirror import make_mirror, mirror_service
from llmgw.control.weights_service import WeightsService
from llmgw.control.wiring.ground import Ground


class WeightsGroup:
    """The mirror with what is around it."""

    def __init__(self, ground: Ground, *, node_allowed: Callable[[str, str], bool]) -> None:
        """`node_allowed` tells by name and certificate number whether a node may fetch."""
        self.spans = DownloadSpans(lambda: ground.settings.seen, private=ground.private)
        self.mirror = make_mirror(ground.config, ground.layout, ground.source_changed, self.spans.add)
        self.serve_nodes = mirror_service(self.mirror, ground.config, ground.authority, ground.secret, node_allowed)
        self.service = WeightsService(mirror=self.mirror, catalog=ground.catalog, leadership=ground.leadership)
