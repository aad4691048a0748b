"""What a real router process counts, as a scraper of its server reads it, and what stays when the router is killed."""

import os
import signal
import socket
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import trio

from llmgw.api.types import ClusterStatus
from llmgw.api.watch import ALL_MODELS
from llmgw.control.feed import FeedServer
from llmgw.control.metrics import render
from llmgw.control.routers import RouterSupervisor
from llmgw.core.layout import ServerLayout
from llmgw.core.limits import Limits, ScopeKind, ScopeRecord
from llmgw.core.routing import KeyRecord, RoutedModel, RoutedReplica, Routing, ScopeTable, UsageRow
from llmgw.core.secrets import key_digest
from tests.support.exposition import Family, parse
from tests.support.router_plane import Answer, RawClient, chat, post
from tests.support.scripted_engine import (
    DONE,
    LAST_CHUNK,
    SSE_HEAD,
    Exchange,
    ScriptedEngine,
    chunk,
    json_answer,
    token,
    usage_event,
)

pytestmark = pytest.mark.trio

SECRET = b"s" * 32
KEY = b"sk-somebodys-key-1234"
LIMITED = b"sk-limited-key-12345"
KEYS = {
    key_digest(SECRET, KEY): KeyRecord(id="k1", name="alice"),
    key_digest(SECRET, LIMITED): KeyRecord(id="k2", name="bob", team="t1", limits=Limits(parallel=1)),
}
TEAM = ScopeRecord(kind=ScopeKind.TEAM, id="t1", limits=Limits(rpm=0))
TOKENS = 5
GAP_S = 0.03
DEADLINE_S = 30.0


@dataclass
class Site:
    """A feed, its routers and an engine that does as the prompt says."""

    layout: ServerLayout
    feed: FeedServer
    engine: ScriptedEngine
    port: int = 0
    stored: list[UsageRow] = field(default_factory=list)
    seen: trio.Event = field(default_factory=trio.Event)
    """Set once the first token of an answer to `hold` arrived: the second comes GAP_S later."""
    release: trio.Event = field(default_factory=trio.Event)

    async def connect(self) -> RawClient:
        """A client's connection."""
        sock = trio.socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        await sock.connect(("127.0.0.1", self.port))
        return RawClient(trio.SocketStream(sock))

    async def hold(self, client: RawClient) -> None:
        """Have an answer begun and not ended, two tokens of it received."""
        await client.send(post(asking("hold", stream=True), key=KEY))
        await client.until(b'"a"')
        self.seen.set()
        await client.until(b'"b"')

    async def ask(self, what: str, *, key: bytes = KEY, **fields: object) -> Answer:
        """One request, whose prompt tells the engine what to do."""
        client = await self.connect()
        async with client.stream:
            await client.send(post(asking(what, **fields), key=key))
            return await client.answer()

    def page(self) -> dict[str, Family]:
        """What a scraper reads now."""
        status = ClusterStatus(
            version="1",
            cluster_id="c",
            leader=None,
            epoch=0,
            servers=(),
            routers=tuple(self.feed.routers()),
            nodes=(),
            models=(),
            replicas=(),
            database="ok",
        )
        return parse(render(status, self.feed.metrics.totals(), self.feed.breakers()))

    async def shows(self, condition: Callable[[dict[str, Family]], bool]) -> dict[str, Family]:
        """The page once the condition holds of it; routers report every second."""
        with trio.move_on_after(DEADLINE_S):
            while not _holds(condition, self.page()):  # noqa: ASYNC110 - it is what a scraper does
                await trio.sleep(0.02)
        assert _holds(condition, self.page()), self.feed.metrics.totals()
        return self.page()


def asking(what: str, **fields: object) -> dict[str, object]:
    """A chat completion whose prompt is `what`."""
    return chat(**fields) | {"messages": [{"role": "user", "content": what}]}  # type: ignore[arg-type]


def _holds(condition: Callable[[dict[str, Family]], bool], page: dict[str, Family]) -> bool:
    try:
        return condition(page)
    except KeyError:
        return False


async def _behave(site: Site, exchange: Exchange) -> None:
    messages = exchange.request.json["messages"]
    assert isinstance(messages, list)
    match messages[0]["content"]:
        case "stream":
            await exchange.send(SSE_HEAD)
            for number in range(TOKENS):
                await exchange.send(chunk(token(f"t{number}")))
                await trio.sleep(0.02)
            await exchange.send(chunk(usage_event(11, TOKENS, 4)) + chunk(DONE) + LAST_CHUNK)
        case "hold":
            await exchange.send(SSE_HEAD + chunk(token("a")))
            with trio.move_on_after(DEADLINE_S):
                await site.seen.wait()
            await trio.sleep(GAP_S)
            await exchange.send(chunk(token("b")))
            with trio.move_on_after(DEADLINE_S):
                await site.release.wait()
            await exchange.close()
        case "fail":
            await exchange.send(json_answer({"error": {"message": "no"}}, b"500 Internal Server Error"))
        case "refuse":
            await exchange.send(json_answer({"error": {"message": "bad"}}, b"400 Bad Request"))
        case _:
            answer = {"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}}
            await exchange.send(json_answer(answer))


@asynccontextmanager
async def site(data: Path, *, routers: int = 1) -> AsyncIterator[Site]:
    """Real router processes that follow a feed of this process."""
    layout = ServerLayout(data=data)
    layout.secrets.mkdir(parents=True)
    layout.cluster_secret.write_bytes(SECRET)
    stored: list[UsageRow] = []

    async def lookup(digest: str) -> KeyRecord | None:
        await trio.lowlevel.checkpoint()
        return KEYS.get(digest)

    async def store(rows: Sequence[UsageRow]) -> None:
        await trio.lowlevel.checkpoint()
        stored.extend(rows)

    async def behave(exchange: Exchange) -> None:
        await _behave(found, exchange)

    feed = FeedServer(layout, version="1", lookup=lookup, store_usage=store)
    engine = ScriptedEngine(behave)
    found = Site(layout, feed, engine, stored=stored)
    supervisor = RouterSupervisor(layout, ("127.0.0.1", 0), routers, feed, stop_s=2.0, drain_s=5.0)
    async with trio.open_nursery() as outer:
        await outer.start(engine.run)
        feed.publish(
            Routing(
                revision="t/1",
                models=(RoutedModel(name="m", max_output=100), RoutedModel(name="empty")),
                replicas=(RoutedReplica(id="r1", model="m", endpoint=engine.endpoint),),
            )
        )
        await outer.start(feed.run)
        async with trio.open_nursery() as inner:
            found.port = await inner.start(supervisor.run)
            try:
                yield found
            finally:
                found.release.set()
                inner.cancel_scope.cancel()
        outer.cancel_scope.cancel()


async def test_every_request_is_counted_once_under_its_outcome(tmp_path: Path) -> None:
    async with site(tmp_path) as s:
        for _ in range(3):
            assert (await s.ask("stream", stream=True)).whole
        assert (await s.ask("plain")).status == 200
        assert (await s.ask("fail")).status == 502
        assert (await s.ask("refuse")).status == 400
        assert (await s.ask("plain", max_tokens=5000)).status == 400
        assert (await s.ask("plain", model="nobodys")).status == 404
        assert (await s.ask("plain", model="empty")).status == 503
        assert (await s.ask("plain", key=b"sk-nobodys-key-12345")).status == 401
        leaving = await s.connect()
        await s.hold(leaving)
        await leaving.stream.aclose()

        def complete(page: dict[str, Family]) -> bool:
            return page["llmgw_requests_total"].value(model="m", outcome="client_left") == 1

        page = await s.shows(complete)
        requests = page["llmgw_requests_total"]
        assert {key: value for key, value in requests.samples.items() if value} == {
            (requests.name, frozenset({("model", model), ("outcome", outcome)})): count
            for model, outcome, count in (
                ("m", "ok", 4),
                ("m", "engine_error", 1),
                ("m", "client_error", 2),
                ("m", "client_left", 1),
                ("empty", "unavailable", 1),
                ("", "client_error", 2),
            )
        }
        tokens = page["llmgw_tokens_total"]
        left = [row for row in s.stored if row.status == 499]
        assert tokens.value(model="m", kind="cached") == 3 * 4
        assert tokens.value(model="m", kind="output") == 3 * TOKENS + 2 + 2
        assert tokens.value(model="m", kind="input") == 3 * 11 + 3 + sum(row.input_tokens for row in left or [])


async def test_gaps_are_seen_while_an_answer_streams_and_first_tokens_when_it_ended(tmp_path: Path) -> None:
    async with site(tmp_path) as s:
        client = await s.connect()
        async with client.stream:
            await s.ask("plain")
            await s.shows(lambda page: page["llmgw_requests_total"].value(model="m", outcome="ok") == 1)
            await s.hold(client)
            page = await s.shows(lambda page: page["llmgw_inter_token_seconds"].value("_count", model="m") == 1)
            # The engine waited 30 ms between the two.
            gaps = page["llmgw_inter_token_seconds"]
            assert gaps.value("_sum", model="m") >= GAP_S
            assert gaps.value("_bucket", model="m", le="0.025") == 0
            assert page["llmgw_first_token_seconds"].value("_count", model="m") == 1
            pace = s.feed.metrics.pace.gaps("m")
            assert pace == s.feed.metrics.pace.gaps(ALL_MODELS)
            assert pace.p50_ms is not None
            # To within its class, which begins at 25 ms.
            assert pace.p50_ms >= 25
            s.release.set()
        page = await s.shows(lambda page: page["llmgw_first_token_seconds"].value("_count", model="m") == 2)
        assert page["llmgw_request_duration_seconds"].value("_count", model="m") == 2


async def test_what_a_killed_router_counted_stays_and_the_next_adds_to_it(tmp_path: Path) -> None:
    async with site(tmp_path) as s:
        for _ in range(4):
            assert (await s.ask("plain")).status == 200
        assert (await s.ask("plain", key=b"sk-nobodys-key-12345")).status == 401
        ok = {"model": "m", "outcome": "ok"}
        page = await s.shows(lambda page: page["llmgw_requests_total"].value(**ok) == 4)
        lookups = page["llmgw_key_lookups_total"]
        assert (lookups.value(result="miss"), lookups.value(result="hit")) == (1, 3)
        assert lookups.value(result="unknown") == 1
        old = {router.pid for router in s.feed.routers()}
        for pid in old:
            os.kill(pid, signal.SIGKILL)

        def replaced(page: dict[str, Family]) -> bool:
            connected = {router.pid for router in s.feed.routers() if router.connected}
            return bool(connected) and not connected & old

        page = await s.shows(replaced)
        assert page["llmgw_requests_total"].value(**ok) == 4
        assert (await s.ask("plain")).status == 200
        page = await s.shows(lambda page: page["llmgw_requests_total"].value(**ok) == 5)
        assert page["llmgw_request_duration_seconds"].value("_count", model="m") == 5


async def test_a_breaker_that_opens_is_seen_and_counted(tmp_path: Path) -> None:
    async with site(tmp_path) as s:
        await s.ask("plain")
        page = await s.shows(lambda page: page["llmgw_breaker_openings_total"].value(model="m") == 0)
        assert "llmgw_breaker_open" not in page
        assert (await s.ask("fail")).status >= 500

        def opened(page: dict[str, Family]) -> bool:
            return page["llmgw_breaker_openings_total"].value(model="m") >= 1 and s.feed.breakers().keys() == {"r1"}

        with trio.fail_after(DEADLINE_S):
            while not _holds(opened, s.page()):
                # Failures add up: one request may be too few.
                await s.ask("fail")
        page = await s.shows(opened)
        assert page["llmgw_retries_total"].value(model="m") >= 1


async def test_a_refusal_by_a_limit_is_counted_for_the_scope_that_made_it(tmp_path: Path) -> None:
    async with site(tmp_path) as s:
        client = await s.connect()
        async with client.stream:
            await client.send(post(asking("hold", stream=True), key=LIMITED))
            await client.until(b'"a"')
            assert (await s.ask("plain", key=LIMITED)).status == 429
            s.seen.set()
            s.release.set()
            await client.answer()
        s.feed.publish_scopes(ScopeTable(scopes=(TEAM,)))
        with trio.fail_after(DEADLINE_S):
            # Refused by the key's own limit until its stream is over, then by its team's.
            while "t1" not in (await s.ask("plain", key=LIMITED)).body.decode():
                pass

        def both(page: dict[str, Family]) -> bool:
            hits = page["llmgw_limits_hit_total"]
            return (
                hits.value(model="m", scope="key", limit="parallel") >= 1
                and hits.value(model="m", scope="team", limit="rpm") == 1
            )

        page = await s.shows(both)
        refused = sum(page["llmgw_limits_hit_total"].samples.values())
        requests = page["llmgw_requests_total"]
        assert requests.value(model="m", outcome="refused") == refused
        timed = page["llmgw_request_duration_seconds"].value("_count", model="m")
        assert timed == sum(requests.samples.values()) - refused > 0


async def test_routers_of_a_machine_add_up(tmp_path: Path) -> None:
    async with site(tmp_path, routers=2) as s:
        for _ in range(30):
            assert (await s.ask("plain")).status == 200

        def all_counted(page: dict[str, Family]) -> bool:
            return page["llmgw_requests_total"].value(model="m", outcome="ok") == 30

        await s.shows(all_counted)
        # Usage that waits is what is on its way to the store; then nothing is.
        await s.shows(lambda page: page["llmgw_usage_rows_waiting"].value() == 0 and len(s.stored) == 30)
        assert s.page()["llmgw_usage_rows_dropped_total"].value() == 0
