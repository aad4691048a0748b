"""The feed over a real socket: it resumes, says when it is lost, and comes back by itself."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from console.client import feed as feed_module
from console.client.feed import Feed
from console.state.store import Store
from llmgw.api.targets import ServerTarget
from llmgw.api.types import Problem
from llmgw.api.watch import STALE_AFTER_S, Tick
from tests.console.harness import console_with, screen_lines, screen_text, shown, until
from tests.support.fake_feed import FakeFeed, fake_feed
from tests.support.fleet_rows import NOW, delta, model_row, small_fleet


@contextlib.asynccontextmanager
async def following(path: Path) -> AsyncIterator[Store]:
    store = Store()
    feed = Feed(ServerTarget(socket=path), store, woken=lambda: None)
    task = asyncio.create_task(feed.run())
    try:
        yield store
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


@pytest.mark.asyncio
async def test_a_snapshot_and_what_follows_reach_the_store(tmp_path: Path) -> None:
    async with fake_feed(tmp_path / "s", small_fleet()) as server, following(tmp_path / "s") as store:
        await until(lambda: store.link.live)
        assert store.link.latency_s is not None
        assert len(store.state.models) == 7
        await server.say(delta({"models": {"new": model_row("new")}}))
        await until(lambda: "new" in store.state.models)


@pytest.mark.asyncio
async def test_a_broken_connection_is_said_at_once_and_resumed_from_the_last_revision(tmp_path: Path) -> None:
    async with fake_feed(tmp_path / "s", small_fleet()) as server, following(tmp_path / "s") as store:
        await until(lambda: store.link.live)
        await server.say(delta({}, {"models": ("old-llama",)}, rev=41))
        await until(lambda: "old-llama" not in store.state.models)
        server.first = [Tick(rev=41, now=NOW)]
        server.cut()
        await until(lambda: store.link.state == "lost")
        assert store.link.since > 0
        assert len(store.state.models) == 6, "what was heard stays"
        await until(lambda: store.link.live)
        assert server.asked == [{}, {"epoch": "run-1", "since": "41"}]


@pytest.mark.asyncio
async def test_a_server_that_is_not_there_yet_is_waited_for(tmp_path: Path) -> None:
    path = tmp_path / ("long" * 30) / "s"
    path.parent.mkdir()
    async with following(path) as store:
        await until(lambda: bool(store.link.reason))
        assert store.link.state == "connecting"
        assert "is not there: no server runs" in store.link.reason
        server = FakeFeed(path, small_fleet())
        with contextlib.chdir(path.parent):
            server.path = Path("s")
            await server.start()
        try:
            await until(lambda: store.link.live)
        finally:
            server.path = path
            await server.stop()


@pytest.mark.asyncio
async def test_silence_is_lost_after_two_seconds_and_a_word_brings_it_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert STALE_AFTER_S == 2.0
    monkeypatch.setattr(feed_module, "STALE_AFTER_S", 0.05)
    async with fake_feed(tmp_path / "s", small_fleet()) as server, following(tmp_path / "s") as store:
        await until(lambda: store.state.heard and store.link.state == "lost")
        assert "has said nothing for" in store.link.reason
        await server.say(Tick(rev=1, now=NOW))
        await until(lambda: store.link.live or len(server.asked) > 1)


@pytest.mark.asyncio
@pytest.mark.parametrize("line", [b"not json\n", b'{"type":"other"}\n', b'{"type":"delta"}\n', b"\xff\xfe\n"])
async def test_a_line_that_is_no_message_ends_the_connection_and_not_the_console(tmp_path: Path, line: bytes) -> None:
    async with fake_feed(tmp_path / "s", small_fleet()) as server, following(tmp_path / "s") as store:
        await until(lambda: store.link.live)
        await server.say_bytes(line)
        await until(lambda: "no message of the feed" in store.link.reason)
        await until(lambda: store.link.live)
        assert len(store.state.models) == 7


@pytest.mark.asyncio
async def test_a_refusal_is_its_sentence(tmp_path: Path) -> None:
    async with fake_feed(tmp_path / "s") as server:
        server.refusal = Problem(code="forbidden", message="account eve has no role here", status=403)
        async with following(tmp_path / "s") as store:
            await until(lambda: store.link.reason == "account eve has no role here")


@pytest.mark.asyncio
async def test_the_console_lives_through_its_server(tmp_path: Path) -> None:
    """Kill the server under it: said, dimmed, kept, and live again by itself."""
    path = tmp_path / "s"
    server = FakeFeed(path, small_fleet())
    await server.start()
    console = console_with(target=ServerTarget(socket=path))
    console.store = Store()
    console._follow = True
    async with shown(console) as pilot:
        await until(lambda: "glm-5.2-air" in screen_text(console))
        await server.stop()
        await until(lambda: console.has_class("-stale"))
        await pilot.pause()
        assert "lost, data is" in screen_lines(console)[0]
        assert "glm-5.2-air" in screen_text(console)
        await server.start()
        await until(lambda: not console.has_class("-stale") and console.store.link.live)
    await server.stop()
