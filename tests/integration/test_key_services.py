"""Keys and scopes from an operator's change to a router's answer: real database, real feed, a router's follower."""

import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import cast

import msgspec
import psycopg
import pytest
import trio

from llmgw.api.types import BandChange, KeyCreate, KeyCreated, LimitsChange, TeamCreate, TenantCreate
from llmgw.control import settings
from llmgw.control.bands import MAX_BANDS, BandService
from llmgw.control.catalog import Catalog
from llmgw.control.feed import FeedServer
from llmgw.control.keys import KeyService
from llmgw.control.leadership import Leadership
from llmgw.control.nodes import NodeService
from llmgw.control.scopes import ScopeService
from llmgw.control.watch import StoreWatcher
from llmgw.core.errors import Conflict, InvalidInput, NotFound, Unavailable
from llmgw.core.frames import FrameDecoder, encode_frame
from llmgw.core.layout import ServerLayout
from llmgw.core.limits import Budget, Limits, Period, ScopeKind
from llmgw.core.routing import (
    ControlMessage,
    KeyAnswer,
    KeyAsk,
    KeyRecord,
    RouterHello,
    Routing,
    ScopeTable,
    UsageRow,
)
from llmgw.core.secrets import key_digest
from llmgw.router.drain import Drain
from llmgw.router.feed import FeedClient
from llmgw.router.keys import KeyCache
from llmgw.router.ports import Refusal
from llmgw.router.saved import SavedState
from llmgw.router.state import FollowerState
from llmgw.router.usage import UsageSpool
from llmgw.store import keys as stored_keys
from llmgw.store import scopes as stored_scopes
from llmgw.store.listen import Listener
from llmgw.store.notify import RESYNC, Change
from llmgw.store.settings import load_settings
from llmgw.store.store import Store
from tests.support.waiting import until

SECRET = b"s" * 32
ACTOR = "uid:1000"
CLIENT = "192.0.2.1"
TOLD_S = 10.0
"""Far less than the 25 s after which a router asks for a known key again, and the 30 s after which spending is read
anew: what is in force within it was told."""
MONTHLY = (Budget(amount_micros=1_000_000, period=Period.MONTH),)


@dataclass
class Site:
    """A control plane's keys and scopes."""

    layout: ServerLayout
    store: Store
    leadership: Leadership
    feed: FeedServer = field(init=False)
    scopes: ScopeService = field(init=False)
    keys: KeyService = field(init=False)
    bands: BandService = field(init=False)
    settings: dict[str, msgspec.Raw] = field(default_factory=dict)
    """As this server heard of them last."""
    before_lookup: Callable[[], Awaitable[None]] | None = None
    """Waited for between reading a key and answering it."""

    def __post_init__(self) -> None:
        self.feed = FeedServer(
            self.layout, version="1", lookup=self._lookup, store_usage=lambda rows: self.keys.store_usage(rows)
        )
        self.feed.publish(Routing(revision="a/1"))
        self.scopes = ScopeService(
            store=self.store, leadership=self.leadership, publish=self.feed.publish_scopes, told=self.feed.told
        )
        self.keys = KeyService(
            store=self.store,
            leadership=self.leadership,
            feed=self.feed,
            scopes=self.scopes,
            cluster_secret=SECRET,
        )
        self.bands = BandService(
            store=self.store, leadership=self.leadership, feed=self.feed, read_settings=self._read_settings
        )

    async def _read_settings(self) -> None:
        self.settings = await self.store.run(load_settings)

    async def _lookup(self, digest: str) -> KeyRecord | None:
        record = await self.keys.lookup(digest)
        if self.before_lookup is not None:
            await self.before_lookup()
        return record

    async def create(self, **more: object) -> KeyCreated:
        """A key."""
        return await self.keys.create(msgspec.convert({"name": "ci"} | more, KeyCreate), actor=ACTOR)


@pytest.fixture
async def site(store: Store, tmp_path: Path) -> AsyncIterator[Site]:
    layout = ServerLayout(data=tmp_path)
    layout.run.mkdir(mode=0o700)
    leadership = Leadership(store, "server-1")
    await leadership.acquired()
    site = Site(layout, store, leadership)
    async with trio.open_nursery() as nursery:
        await nursery.start(site.feed.run)
        await nursery.start(site.scopes.run)
        yield site
        nursery.cancel_scope.cancel()


@asynccontextmanager
async def follower(layout: ServerLayout, index: int = 0) -> AsyncIterator[FollowerState]:
    """A router's follower side, as in its process."""
    keys = KeyCache(partial(key_digest, SECRET))
    usage = UsageSpool(layout.spool, index)
    state = FollowerState(cluster_secret=SECRET, keys=keys, usage=usage)
    saved = SavedState(layout.routing_cache)
    keys.on_learned, keys.on_forgotten = saved.learned, saved.forgotten
    hello = RouterHello(pid=1, index=index, version="1", port=8080)
    client = FeedClient(
        layout.feed_socket, hello, state=state, keys=keys, usage=usage, saved=saved, drain=Drain().request
    )
    async with trio.open_nursery() as nursery:
        for service in (saved.run, usage.run, client.run):
            await nursery.start(service)
        await until(lambda: state.routes.ready)
        yield state
        nursery.cancel_scope.cancel()
    usage.close()


def used(number: int, key_id: str, micros: int = 0) -> UsageRow:
    return UsageRow(id=f"u{number}", at=time.time(), key_id=key_id, model="m", status=200, cost_micros=micros)


@pytest.mark.trio
@pytest.mark.case("C13")
async def test_a_busy_key_is_changed_and_revoked_at_once_and_no_old_record_comes_back(site: Site) -> None:
    """Look-ups are on their way and usage is stored all the while, on two routers."""
    made = await site.create(limits={"rpm": 1000})
    seen: list[int | None] = []
    stored = 0

    async def client(state: FollowerState) -> None:
        while True:
            try:
                record = await state.authenticate(made.key.encode(), CLIENT)
                seen.append(record.limits.rpm)
            except Refusal as refusal:
                seen.append(-refusal.status)
            await trio.lowlevel.checkpoint()

    async def usage() -> None:
        nonlocal stored
        while True:
            await site.keys.store_usage([used(stored, made.id)])
            stored += 1

    async def only(value: int) -> None:
        """Soon nothing else is seen, and that lasts."""
        seen.clear()
        await until(lambda: len(seen) >= 100 and set(seen[-100:]) == {value}, deadline_s=TOLD_S)
        seen.clear()
        await until(lambda: len(seen) > 500)
        assert set(seen) == {value}

    async with follower(site.layout) as first, follower(site.layout, 1) as second, trio.open_nursery() as nursery:
        site.before_lookup = partial(trio.sleep, 0.05)
        for state in (first, second):
            for _ in range(3):
                nursery.start_soon(client, state)
        nursery.start_soon(usage)
        await only(1000)
        for rpm in (7, 3):
            result = await site.keys.set_limits(made.id, LimitsChange(rpm=rpm), actor=ACTOR)
            assert "routers here were told" in result.message
            await only(rpm)
        await site.keys.revoke("ci", actor=ACTOR)
        await only(-401)
        nursery.cancel_scope.cancel()
    (key,) = await site.keys.list()
    assert (key.limits, key.revoked is not None) == (Limits(rpm=3), True)
    assert key.requests >= stored > 0


@pytest.mark.trio
async def test_an_answer_that_was_read_before_the_change_is_asked_for_again(site: Site) -> None:
    made = await site.create(limits={"rpm": 9})
    holding, go = trio.Event(), trio.Event()

    async def hold() -> None:
        holding.set()
        await go.wait()

    async with follower(site.layout) as state, trio.open_nursery() as nursery:
        site.before_lookup = hold
        records: list[KeyRecord] = []

        async def ask() -> None:
            records.append(await state.authenticate(made.key.encode(), CLIENT))

        nursery.start_soon(ask)
        await holding.wait()
        await site.keys.set_limits(made.id, LimitsChange(rpm=2), actor=ACTOR)
        go.set()
        await until(lambda: len(records) == 1)
        assert records[0].limits.rpm == 2


@pytest.mark.trio
async def test_a_team_is_told_before_any_of_its_keys(site: Site) -> None:
    """On a new connection, and when another server made the team a moment ago."""
    made = await site.create(team="blue")
    digest = key_digest(SECRET, made.key.encode())
    messages = await _hear(site.layout, KeyAsk(digest=digest))
    assert [type(message) for message in messages] == [ScopeTable, Routing, KeyAnswer]
    assert isinstance(messages[0], ScopeTable)
    assert [scope.id for scope in messages[0].scopes] == ["blue"]
    async with follower(site.layout) as state:
        await site.store.run(stored_scopes.create, ScopeKind.TEAM, "red", limits=Limits(rpm=5), actor="elsewhere")
        other = await _made_elsewhere(site, "red")
        record = await state.authenticate(other, CLIENT)
        assert record.team == "red"
        assert state.scope_table is not None
        assert {scope.id for scope in state.scope_table.scopes} == {"blue", "red"}


@pytest.mark.trio
async def test_teams_and_tenants_change_on_the_routers_before_the_answer(site: Site) -> None:
    async with follower(site.layout) as state:

        def table() -> dict[str, tuple[str, int | None]]:
            scopes = state.scope_table.scopes if state.scope_table is not None else ()
            return {f"{s.kind}:{s.id}": (s.tenant, s.limits.rpm) for s in scopes}

        await site.scopes.create_tenant(TenantCreate(name="acme"), actor=ACTOR)
        made = await site.scopes.create_team(
            TeamCreate(name="blue", tenant="acme", limits=Limits(rpm=60), budgets=MONTHLY), actor=ACTOR
        )
        assert made.message == (
            "team blue made under tenant acme: 60 rpm, budget 1.00/month; 1 of 1 routers here were told"
        )
        await until(lambda: table() == {"team:blue": ("acme", 60), "tenant:acme": ("", None)}, deadline_s=TOLD_S)
        result = await site.scopes.set_limits(ScopeKind.TENANT, "acme", LimitsChange(rpm=6), actor=ACTOR)
        assert result.message == "tenant acme: no limits → 6 rpm; 1 of 1 routers here were told"
        await until(lambda: table()["tenant:acme"] == ("", 6), deadline_s=TOLD_S)
        result = await site.scopes.move_team("blue", None, actor=ACTOR)
        assert result.message.startswith("team blue: tenant acme → no tenant;")
        await site.scopes.remove(ScopeKind.TENANT, "acme", actor=ACTOR)
        await until(lambda: table() == {"team:blue": ("", 60)}, deadline_s=TOLD_S)


@pytest.mark.trio
async def test_what_was_spent_reaches_the_routers_with_the_next_table(site: Site) -> None:
    """Those of a team without a budget are not told: nothing there is held against them."""
    await site.scopes.create_team(TeamCreate(name="blue", budgets=MONTHLY), actor=ACTOR)
    made = await site.create(team="blue", budgets=[{"amount_micros": 5, "period": "month"}])
    async with follower(site.layout) as state:
        row = used(1, made.id, 70)
        await site.keys.store_usage([row, row])
        await site.scopes.reload()

        def spent() -> int:
            return state.scope_table.scopes[0].spent.month_micros if state.scope_table is not None else -1

        await until(lambda: spent() == 70)
        record = await state.authenticate(made.key.encode(), CLIENT)
        assert (record.spent.day_micros, record.spent.month_micros) == (70, 70)
        (team,) = await site.scopes.list(ScopeKind.TEAM)
        assert (team.keys, team.spent_month_micros, team.requests) == (1, 70, 1)
        (by_team,) = await site.keys.usage("team", None, None)
        assert (by_team.team, by_team.cost_micros, by_team.key_id) == ("blue", 70, "")


@pytest.mark.trio
async def test_what_a_model_cost_today_is_known_at_once_and_corrected_by_the_store(site: Site) -> None:
    row = used(1, "k1", 70)
    await site.keys.store_usage([row])
    assert site.scopes.costs_today() == {"m": 70}
    before = site.scopes.costs_today()
    await site.keys.store_usage([row])
    assert before == {"m": 70}
    site.scopes.wake()
    await until(lambda: site.scopes.costs_today() == {"m": 70})


@pytest.mark.trio
async def test_what_another_server_changes_reaches_the_routers_here(site: Site, database: str) -> None:
    """By a notification: nothing is read by time here for many seconds."""
    listener = Listener(database)
    watcher = StoreWatcher(
        store=site.store,
        listener=listener,
        catalog=Catalog(lambda: None),
        nodes=cast("NodeService", NoNodes()),
        keys=site.keys,
        scopes=site.scopes,
        read_settings=trio.lowlevel.checkpoint,
    )
    made = await site.create(team="blue")
    async with follower(site.layout) as state, trio.open_nursery() as nursery:
        await nursery.start(listener.run)
        await nursery.start(watcher.run)
        assert (await state.authenticate(made.key.encode(), CLIENT)).limits.rpm is None
        await until(lambda: listens(database))
        await site.store.run(stored_scopes.set_limits, ScopeKind.TEAM, "blue", {"tpm": 9}, actor="elsewhere")
        await site.store.run(stored_keys.set_limits, made.id, {"rpm": 5}, actor="elsewhere")

        with trio.fail_after(TOLD_S):
            while (await state.authenticate(made.key.encode(), CLIENT)).limits.rpm != 5:  # noqa: ASYNC110 - the store tells it
                await trio.sleep(0.01)
        table = state.scope_table
        assert table is not None
        assert table.scopes[0].limits.tpm == 9
        nursery.cancel_scope.cancel()


class TellsOnce:
    """Says what it was given, and nothing more."""

    def __init__(self, *changes: Change) -> None:
        self._changes = [frozenset(changes)]

    async def changes(self) -> frozenset[Change]:
        if not self._changes:
            await trio.sleep_forever()
        return self._changes.pop()


@pytest.mark.trio
async def test_a_key_that_changed_as_the_connection_came_back_is_told_too(site: Site) -> None:
    made = await site.create(team="blue")
    changes = TellsOnce(Change(topic=RESYNC), Change(topic=stored_keys.TOPIC, name=made.id))
    watcher = StoreWatcher(
        store=site.store,
        listener=cast("Listener", changes),
        catalog=Catalog(lambda: None),
        nodes=cast("NodeService", NoNodes()),
        keys=site.keys,
        scopes=site.scopes,
        read_settings=trio.lowlevel.checkpoint,
    )
    async with follower(site.layout) as state, trio.open_nursery() as nursery:
        assert (await state.authenticate(made.key.encode(), CLIENT)).limits.rpm is None
        await site.store.run(stored_keys.set_limits, made.id, {"rpm": 5}, actor="elsewhere")
        await nursery.start(watcher.run)
        with trio.fail_after(TOLD_S):
            while (await state.authenticate(made.key.encode(), CLIENT)).limits.rpm != 5:  # noqa: ASYNC110 - the store tells it
                await trio.sleep(0.01)
        nursery.cancel_scope.cancel()


def listens(conninfo: str) -> bool:
    """Whether somebody listens there: what changed before is told to nobody."""
    with psycopg.connect(conninfo) as conn:
        found = conn.execute(
            "select 1 from pg_stat_activity where datname = current_database() and query = 'listen llmgw'"
        )
        return found.fetchone() is not None


class NoNodes:
    """No machine enrolled."""

    def replace(self, nodes: object) -> None:
        """Nothing to keep."""


@pytest.mark.trio
async def test_a_change_that_is_stored_is_never_answered_with_a_refusal(site: Site) -> None:
    async def away() -> None:
        await trio.lowlevel.checkpoint()
        raise Unavailable("the store is away")

    assert "as soon as the store can be read again" in await site.scopes.tell(away)


@pytest.mark.trio
async def test_what_is_wrong_is_refused_and_changes_nothing(site: Site) -> None:
    made = await site.create()
    for wrong, field_ in (
        ({"limits": {"rpm": -1}}, "limits.rpm"),
        ({"team": "none"}, "team"),
        ({"budgets": [{"amount_micros": -1, "period": "day"}]}, "budgets"),
    ):
        with pytest.raises(InvalidInput) as caught:
            await site.create(**wrong)
        assert caught.value.field == field_
    with pytest.raises(InvalidInput, match="names no limit"):
        await site.keys.set_limits(made.id, LimitsChange(), actor=ACTOR)
    with pytest.raises(NotFound, match="no team 'nobody'"):
        await site.keys.move(made.id, "nobody", actor=ACTOR)
    with pytest.raises(InvalidInput):
        await site.scopes.create_team(TeamCreate(name="a b"), actor=ACTOR)
    await site.create(team="blue")
    with pytest.raises(Conflict, match="living keys"):
        await site.scopes.remove(ScopeKind.TEAM, "blue", actor=ACTOR)
    assert [key.limits for key in await site.keys.list()] == [Limits(), Limits()]


async def _made_elsewhere(site: Site, team: str) -> bytes:
    """A key that another server made."""
    other = Site(site.layout, site.store, site.leadership)
    made = await other.create(team=team)
    return made.key.encode()


async def _hear(layout: ServerLayout, ask: KeyAsk) -> list[ControlMessage]:
    """What a router hears that asks with its first breath."""
    decoder = msgspec.msgpack.Decoder(ControlMessage)
    hello = RouterHello(pid=1, index=7, version="1", port=1)
    frames, messages = FrameDecoder(), list[ControlMessage]()
    async with await trio.open_unix_socket(str(layout.feed_socket)) as stream:
        await stream.send_all(b"".join(encode_frame(msgspec.msgpack.encode(message)) for message in (hello, ask)))
        with trio.fail_after(TOLD_S):
            while not any(isinstance(message, KeyAnswer) for message in messages):
                messages += [decoder.decode(frame) for frame in frames.feed(await stream.receive_some(65536))]
    return messages


@pytest.mark.trio
async def test_a_key_waits_in_its_own_band_else_in_its_teams(site: Site) -> None:
    """And a router that knows the key hears of either change at once."""
    for name, priority in (("gold", 10), ("bronze", -10)):
        await site.bands.set(name, BandChange(priority=priority), actor=ACTOR)
    made = await site.create(team="blue")
    own = await site.create(band="gold")

    async def band(state: FollowerState, key: KeyCreated) -> str:
        return (await state.authenticate(key.key.encode(), CLIENT)).band

    async def becomes(state: FollowerState, key: KeyCreated, name: str) -> None:
        with trio.fail_after(TOLD_S):
            while await band(state, key) != name:  # noqa: ASYNC110 - nobody tells a client
                await trio.sleep(0.01)

    async with follower(site.layout) as state:
        assert (await band(state, made), await band(state, own)) == ("", "gold")
        told = await site.bands.set_team("blue", "bronze", actor=ACTOR)
        assert told.message.startswith("team blue: band default → band bronze, 1 living key; ")
        await becomes(state, made, "bronze")
        told = await site.bands.set_key(made.id, "gold", actor=ACTOR)
        assert told.message.startswith(f"{made.name} ({made.id}): its team's band → band gold; ")
        await becomes(state, made, "gold")
        await site.bands.set_key(made.id, None, actor=ACTOR)
        await becomes(state, made, "bronze")
    assert [(key.id, key.band) for key in await site.keys.list()] == [(made.id, None), (own.id, "gold")]
    assert [(team.name, team.band) for team in await site.scopes.list(ScopeKind.TEAM)] == [("blue", "bronze")]


@pytest.mark.trio
async def test_a_band_that_is_not_there_is_refused_naming_those_that_are(site: Site) -> None:
    await site.bands.set("gold", BandChange(priority=10, queue_ttl=5.0), actor=ACTOR)
    made = await site.create(team="blue")
    sentence = "there is no band 'silver': there are gold, default"
    with pytest.raises(InvalidInput, match=sentence):
        await site.create(band="silver")
    with pytest.raises(InvalidInput, match=sentence):
        await site.bands.set_key(made.id, "silver", actor=ACTOR)
    with pytest.raises(InvalidInput, match=sentence):
        await site.bands.set_team("blue", "silver", actor=ACTOR)
    await site.bands.set_key(made.id, "default", actor=ACTOR)


@pytest.mark.trio
async def test_a_band_goes_when_nobody_is_in_it(site: Site) -> None:
    await site.bands.set("gold", BandChange(priority=10), actor=ACTOR)
    made = await site.create(band="gold", team="blue")
    await site.bands.set_team("blue", "gold", actor=ACTOR)
    with pytest.raises(Conflict, match=rf"used by key {made.name} \({made.id}\), team blue: put them in another"):
        await site.bands.remove("gold", actor=ACTOR)
    await site.keys.revoke(made.id, actor=ACTOR)
    await site.bands.set_team("blue", None, actor=ACTOR)
    assert (await site.bands.remove("gold", actor=ACTOR)).message == "band gold removed"
    with pytest.raises(NotFound, match="no band 'gold'"):
        await site.bands.remove("gold", actor=ACTOR)
    assert [band.name for band in await site.bands.list()] == ["default"]


@pytest.mark.trio
async def test_bands_are_listed_in_their_order_and_kept_within_bounds(site: Site) -> None:
    assert [(b.name, b.priority, b.queue_ttl, b.own_ttl) for b in await site.bands.list()] == [
        ("default", 0, 30.0, False)
    ]
    result = await site.bands.set("bulk", BandChange(priority=-1, queue_ttl=600.0), actor=ACTOR)
    assert result.message == "band bulk made: priority -1, waits 600 s"
    result = await site.bands.set("default", BandChange(queue_ttl=9.5), actor=ACTOR)
    assert result.message == "band default made: priority 0, waits 9.5 s"
    await site.bands.set("gold", BandChange(priority=7), actor=ACTOR)
    result = await site.bands.set("gold", BandChange(queue_ttl=2.0), actor=ACTOR)
    assert result.message == "band gold: priority 7, waits as long as router.timeouts.queue → priority 7, waits 2 s"
    assert [(b.name, b.priority, b.queue_ttl) for b in await site.bands.list()] == [
        *(("gold", 7, 2.0), ("default", 0, 9.5), ("bulk", -1, 600.0))
    ]
    rules = settings.admission({key: bytes(value) for key, value in site.settings.items()})
    assert {(band.name, band.priority, band.queue_ttl) for band in rules.bands} == {
        *(("gold", 7, 2.0), ("default", 0, 9.5), ("bulk", -1, 600.0))
    }
    for name, change in (
        ("Gold", BandChange()),
        ("a b", BandChange()),
        ("x", BandChange(queue_ttl=0.0)),
        ("x", BandChange(queue_ttl=float("inf"))),
        ("x", BandChange(priority=10**9)),
    ):
        with pytest.raises(InvalidInput):
            await site.bands.set(name, change, actor=ACTOR)
    for number in range(MAX_BANDS - 3):
        await site.bands.set(f"b{number}", BandChange(), actor=ACTOR)
    with pytest.raises(Conflict, match=f"{MAX_BANDS} at most"):
        await site.bands.set("more", BandChange(), actor=ACTOR)
