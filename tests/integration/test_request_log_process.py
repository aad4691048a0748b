"""The request log of a real router process: written where the control plane reads it, as the routing says."""

from pathlib import Path

import pytest
import trio

from llmgw.api.request_types import RequestQuery
from llmgw.control.requests import RequestReader
from llmgw.core.requests import RequestLine, Seen
from llmgw.core.routing import RoutedModel, RoutedReplica, Routing, ScopeTable
from tests.integration.test_router_metrics import DEADLINE_S, LIMITED, TEAM, Site, site
from tests.support.collector import collector

pytestmark = pytest.mark.trio


def routing(here: Site, revision: int, seen: Seen) -> Routing:
    """One model, its replica on a node with a name, and these settings."""
    replica = RoutedReplica(id="r1", model="m", endpoint=here.engine.endpoint, node="gpu01")
    return Routing(revision=f"1/{revision}", models=(RoutedModel(name="m"),), replicas=(replica,), seen=seen)


async def told(here: Site, count: int) -> list[RequestLine]:
    """What the control plane reads once there are so many, the newest first."""
    reader = RequestReader(here.layout.requests)
    with trio.fail_after(DEADLINE_S):
        while len(found := (await reader.page(RequestQuery())).requests) < count:  # noqa: ASYNC110 - it is a file
            await trio.sleep(0.02)
    return list(found)


async def test_a_routers_requests_are_traced_and_read_back_by_the_control_plane(tmp_path: Path) -> None:
    collecting = collector()
    try:
        async with site(tmp_path / "data") as here:
            here.feed.publish_scopes(ScopeTable(scopes=(TEAM,)))
            here.feed.publish(routing(here, 2, Seen(endpoint=collecting.endpoint)))
            with trio.fail_after(DEADLINE_S):
                while not collecting.spans:  # the routing takes a moment to arrive
                    assert (await here.ask("answer")).status == 200
                    await trio.sleep(0.05)
            before = len(await told(here, 1))
            assert (await here.ask("fail")).status == 502
            assert (await here.ask("answer", key=LIMITED)).status == 429
            refused, failed, *_ = await told(here, before + 2)
            assert (refused.status, refused.limit, refused.key, refused.team) == (429, "team/rpm", "bob", "t1")
            assert (failed.status, failed.end, failed.node) == (502, "failed", "gpu01")
            assert {tried.failed for tried in failed.attempts} == {"it answers 500"}
            story = await RequestReader(here.layout.requests).told(failed.id)
            assert story.request == failed
    finally:
        collecting.close()
    assert {span.resource["service.name"] for span in collecting.spans} == {"llmgw-router"}
