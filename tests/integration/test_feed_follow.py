"""A router's follower and the control plane's feed over a real socket: what one knows the other hears."""

import time
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import msgspec
import pytest
import trio

from llmgw.control.breakers import Breaker
from llmgw.control.feed import FeedServer
from llmgw.core.errors import InvalidInput, Unavailable
from llmgw.core.frames import encode_frame
from llmgw.core.layout import ServerLayout
from llmgw.core.limits import Limits, ScopeKind, ScopeRecord
from llmgw.core.routing import KeyRecord, RoutedModel, RoutedReplica, RouterHello, Routing, ScopeTable, UsageRow
from llmgw.core.secrets import engine_key, key_digest
from llmgw.core.sockets import connect_unix
from llmgw.router.drain import Drain
from llmgw.router.feed import FeedClient
from llmgw.router.keys import KeyCache, sweep_lookups
from llmgw.router.ports import Refusal
from llmgw.router.saved import SavedState
from llmgw.router.state import FollowerState
from llmgw.router.usage import UsageSpool
from tests.support.waiting import until

SECRET = b"s" * 32
KEY = b"sk-somebodys-key-1234"
CLIENT = "192.0.2.1"
ROUTING = Routing(
    revision="a/1",
    models=(RoutedModel(name="m", aliases=("alias",)),),
    replicas=(RoutedReplica(id="r1", model="m", endpoint="http://127.0.0.1:1"),),
)


class Cluster:
    """A control plane whose store is a few dictionaries that may be away."""

    def __init__(self, layout: ServerLayout) -> None:
        self.layout = layout
        self.keys = {key_digest(SECRET, KEY): KeyRecord(id="k1", name="alice")}
        self.stored: list[str] = []
        self.away = False
        self.looked_up = 0
        self.wanted: list[str] = []
        self.feed = self._new_feed()

    def _new_feed(self) -> FeedServer:
        feed = FeedServer(
            self.layout,
            version="1",
            lookup=self._lookup,
            store_usage=self._store,
            on_want=lambda model: self.wanted.append(model),
        )
        feed.publish(ROUTING)
        return feed

    @asynccontextmanager
    async def up(self) -> AsyncIterator[FeedServer]:
        """The control plane lives while the context is open."""
        self.feed = self._new_feed()
        async with trio.open_nursery() as nursery:
            await nursery.start(self.feed.run)
            yield self.feed
            nursery.cancel_scope.cancel()

    async def _lookup(self, digest: str) -> KeyRecord | None:
        self.looked_up += 1
        await trio.lowlevel.checkpoint()
        if self.away:
            raise Unavailable("the store is away")
        return self.keys.get(digest)

    async def _store(self, rows: Sequence[UsageRow]) -> None:
        await trio.lowlevel.checkpoint()
        if self.away:
            raise Unavailable("the store is away")
        if any(row.id == "bad" for row in rows):
            raise InvalidInput("this row is bad")
        self.stored += [row.id for row in rows]


@asynccontextmanager
async def follower(layout: ServerLayout, *, loads: bool = True) -> AsyncIterator[tuple[FollowerState, Drain]]:
    """A router's follower side, as in its process; without `loads` it says nothing of knowing them, as older ones."""
    keys = KeyCache(partial(key_digest, SECRET))
    usage = UsageSpool(layout.spool, 0)
    state = FollowerState(cluster_secret=SECRET, keys=keys, usage=usage)
    saved = SavedState(layout.routing_cache)
    routing, records = saved.load()
    if routing is not None:
        state.apply(routing)
    if saved.scopes is not None:
        state.apply_scopes(saved.scopes)
    for digest, record in records.items():
        keys.restore(digest, record)
    keys.on_learned, keys.on_forgotten = saved.learned, saved.forgotten
    drain = Drain()
    hello = RouterHello(pid=1, index=0, version="1", port=8080, loads=loads)
    client = FeedClient(
        layout.feed_socket, hello, state=state, keys=keys, usage=usage, saved=saved, drain=drain.request
    )
    async with trio.open_nursery() as nursery:
        for service in (saved.run, usage.run, partial(sweep_lookups, keys), client.run):
            await nursery.start(service)
        yield state, drain
        nursery.cancel_scope.cancel()
    usage.close()
    saved.write()


@pytest.fixture
def cluster(tmp_path: Path) -> Cluster:
    """A control plane that is not up yet."""
    layout = ServerLayout(data=tmp_path)
    layout.run.mkdir(mode=0o700)
    return Cluster(layout)


def row(name: str) -> UsageRow:
    """A row of replica r1."""
    return UsageRow(id=name, at=time.time(), key_id="k1", model="m", replica="r1", status=200)


async def status(state: FollowerState, key: bytes = KEY) -> int:
    """What a client with `key` gets: 200 or the refusal's status."""
    try:
        await state.authenticate(key, CLIENT)
    except Refusal as refusal:
        return refusal.status
    return 200


@pytest.mark.trio
async def test_routing_activity_and_wishes_cross_the_feed(cluster: Cluster) -> None:
    """Both sides know what the other does, within a report's time."""
    async with cluster.up() as feed, follower(cluster.layout) as (state, drain):
        await until(lambda: state.routes.ready)
        assert state.routes.resolve("alias") == ROUTING.models[0]
        assert state.routes.replicas("m") == ROUTING.replicas
        assert state.engine_key("r1") == engine_key(SECRET, "r1")
        state.in_flight["r1"] = 3
        state.requests, state.open_requests = 7, 3
        state.record(row("u1"))
        state.breakers["r1"], state.breaker_failures["r1"] = "open", "it answers 500"
        state.want("cold")
        await until(lambda: cluster.wanted == ["cold"], deadline_s=1.0)
        await until(lambda: feed.in_flight() == {"r1": 3} and "r1" in feed.last_used())
        [info] = feed.routers()
        assert (info.port, info.requests, info.open_requests, info.connected) == (8080, 7, 3, True)
        assert feed.breakers() == {"r1": Breaker(1, 1, "it answers 500")}
        # A router that nobody asks anything goes on reporting replicas that are gone.
        state.breakers["external:gone:0"] = "open"
        reported = state.requests = 8
        await until(lambda: feed.routers()[0].requests == reported)
        assert feed.breakers().keys() == {"r1"}
        feed.publish(msgspec.structs.replace(ROUTING, revision="a/2", replicas=()))
        await until(lambda: state.routes.replicas("m") == (), deadline_s=1.0)
        assert feed.drain(info.pid, 5.0)
        await until(drain.requested.is_set)


@pytest.mark.trio
@pytest.mark.promise("A23")
async def test_two_hundred_misses_of_one_key_are_one_question(cluster: Cluster) -> None:
    """Whichever caller leaves."""
    async with cluster.up(), follower(cluster.layout) as (state, _):
        await until(lambda: state.routes.ready)
        answers: Counter[int] = Counter()

        async def caller() -> None:
            answers[await status(state)] += 1

        with trio.move_on_after(0):
            await state.authenticate(KEY, CLIENT)
        async with trio.open_nursery() as nursery:
            for _ in range(200):
                nursery.start_soon(caller)
        assert answers == {200: 200}
        assert cluster.looked_up == 1


@pytest.mark.trio
@pytest.mark.promise("A24")
async def test_a_revoked_key_is_refused_within_a_second(cluster: Cluster) -> None:
    """And stays refused by a router that starts from what was kept on disk."""
    async with cluster.up() as feed, follower(cluster.layout) as (state, _):
        await until(lambda: state.routes.ready)
        assert await status(state) == 200
        await until(cluster.layout.routing_cache.exists)
        cluster.keys = {digest: msgspec.structs.replace(key, revoked=True) for digest, key in cluster.keys.items()}
        feed.key_changed(key_digest(SECRET, KEY))
        before = time.monotonic()
        while await status(state) == 200:
            await trio.lowlevel.checkpoint()
        assert time.monotonic() - before < 1.0
    async with follower(cluster.layout) as (state, _):
        assert state.routes.ready
        assert await status(state) == 503


@pytest.mark.trio
@pytest.mark.promise("A3")
async def test_known_keys_and_routes_outlive_control_plane_and_router(cluster: Cluster) -> None:
    """A router started while nobody is there serves what the last one knew; others are 503, then known again."""
    async with cluster.up(), follower(cluster.layout) as (state, _):
        await until(lambda: state.routes.ready)
        assert await status(state) == 200
    assert cluster.layout.routing_cache.stat().st_mode & 0o777 == 0o600
    async with follower(cluster.layout) as (state, _):
        assert state.routes.resolve("m") is not None
        assert await status(state) == 200
        assert await status(state, b"sk-never-seen-key") == 503
        async with cluster.up():
            with trio.fail_after(60):
                while await status(state, b"sk-never-seen-key") != 401:
                    await trio.lowlevel.checkpoint()
            cluster.away = True
            assert await status(state) == 200
            assert await status(state, b"sk-another-unseen") == 503


@pytest.mark.trio
@pytest.mark.promise("A3")
async def test_usage_survives_every_outage_and_is_stored(cluster: Cluster) -> None:
    """The store away, the control plane away, a row the store cannot hold: every other row arrives."""
    async with follower(cluster.layout) as (state, _):
        state.record(row("before"))
        async with cluster.up():
            await until(lambda: cluster.stored == ["before"])
            cluster.away = True
            state.record(row("away"))
            await until(lambda: any(cluster.layout.spool.glob("*/*/*.rows")))
        cluster.away = False
        state.record(row("gone"))
        state.record(row("bad"))
        async with cluster.up():
            await until(lambda: set(cluster.stored) == {"before", "away", "gone"})
            state.record(row("after"))
            await until(lambda: "after" in cluster.stored)
    assert Counter(cluster.stored)["after"] == 1


@pytest.mark.trio
@pytest.mark.parametrize(
    "data",
    [b"\xff\xff\xff\xff", encode_frame(b"\xc1"), encode_frame(msgspec.msgpack.encode({"type": "activity"})), b""],
)
async def test_a_stranger_that_says_no_hello_harms_nobody(cluster: Cluster, data: bytes) -> None:
    """It loses its connection; routers keep theirs."""
    async with cluster.up() as feed, follower(cluster.layout) as (state, _):
        await until(lambda: len(feed.routers()) == 1)
        with connect_unix(cluster.layout.feed_socket, timeout_s=5.0) as sock:
            sock.sendall(data)
            if not data:
                sock.shutdown(1)
            assert await trio.to_thread.run_sync(sock.recv, 100) == b""
        assert await status(state) == 200


@pytest.mark.trio
async def test_messages_of_another_version_are_passed_over(cluster: Cluster) -> None:
    """A newer router may say more than this control plane understands."""
    async with cluster.up() as feed:
        with connect_unix(cluster.layout.feed_socket, timeout_s=5.0) as sock:
            hello = {"type": "hello", "pid": 1, "index": 4, "version": "9", "port": 1, "new_field": [1]}
            for message in (hello, {"type": "poem", "lines": 4}, {"type": "activity", "requests": 5}):
                sock.sendall(encode_frame(msgspec.msgpack.encode(message)))
            await until(lambda: [info.requests for info in feed.routers()] == [5])
        await until(lambda: feed.routers() == [])


@pytest.mark.trio
async def test_teams_and_their_limits_are_heard_before_keys_and_kept(cluster: Cluster) -> None:
    """By the router that heard them, through every change, and by the next one while nobody is there."""
    team = ScopeRecord(kind=ScopeKind.TEAM, id="ml", limits=Limits(rpm=5), tenant="acme")
    tenant = ScopeRecord(kind=ScopeKind.TENANT, id="acme", limits=Limits(parallel=7))
    [digest] = cluster.keys
    cluster.keys[digest] = msgspec.structs.replace(cluster.keys[digest], team="ml", limits=Limits(tpm=9))

    def limits(state: FollowerState, record: KeyRecord) -> list[tuple[str, str, int | None, int | None, int | None]]:
        chain = state.scopes_of(record)
        return [(s.kind, s.id, s.rpm, s.tpm, s.parallel) for s in chain.scopes] if chain is not None else []

    async with cluster.up() as feed, follower(cluster.layout) as (state, _):
        feed.publish_scopes(ScopeTable(scopes=(team, tenant)))
        await until(lambda: state.scope_table is not None)
        record = await state.authenticate(KEY, CLIENT)
        assert limits(state, record) == [
            ("key", "k1", None, 9, None),
            ("team", "ml", 5, None, None),
            ("tenant", "acme", None, None, 7),
        ]
        feed.publish_scopes(ScopeTable(scopes=(msgspec.structs.replace(team, limits=Limits(rpm=6), tenant=""),)))
        await until(lambda: len(limits(state, record)) == 2)
        assert limits(state, record)[1] == ("team", "ml", 6, None, None)
    async with follower(cluster.layout) as (state, _):
        record = await state.authenticate(KEY, CLIENT)
        assert limits(state, record)[1] == ("team", "ml", 6, None, None)
