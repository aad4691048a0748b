"""While a node or a card is in front, its node is asked for samples; a screen that is left or forgotten asks nobody."""

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest
from textual.pilot import Pilot

from console.app import Console, Ending
from console.looking import AFTER_ERROR_S, FORGOTTEN_S
from console.places import Place, Subject
from console.state.store import Link
from llmgw.api.actions import Target
from llmgw.api.targets import ServerTarget
from llmgw.api.types import Result
from tests.console.harness import console_with, shown, until
from tests.support.fake_feed import FakeFeed, fake_feed
from tests.support.fleet_rows import NOW, small_fleet

NODE = Place(view="node", subject=Subject(target=Target.NODE, key="gpu01"))
PATH = "/api/v1/nodes/{}/sample"


class Rig:
    """A console, its clock, and the server it asks."""

    def __init__(self, console: Console, pilot: Pilot[Ending], feed: FakeFeed) -> None:
        self.console, self.pilot, self._feed = console, pilot, feed
        self.now = NOW
        console.clock = lambda: self.now

    @property
    def asked(self) -> list[str]:
        """Paths that were asked for a sample."""
        return [path for method, path, _ in self._feed.calls if method == "POST"]

    async def ticks(self, count: int = 1) -> int:
        """What seconds that pass ask for."""
        before = len(self.asked)
        for _ in range(count):
            self.console._tick()
            await self.console.workers.wait_for_complete()
        return len(self.asked) - before

    async def go(self, place: Place) -> None:
        """To a place."""
        self.console.go(place)
        await until(lambda: self.console.main.view is not None and self.console.main.view.place.view == place.view)
        await self.pilot.pause()


@contextlib.asynccontextmanager
async def looking(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, start: str = "models", refuse: bool = False
) -> AsyncIterator[Rig]:
    """A viewer's console whose seconds pass when the test says so."""
    monkeypatch.setattr("console.app.TICK_S", 3600.0)
    async with fake_feed(tmp_path / "s", small_fleet(role="viewer")) as feed:
        if not refuse:
            for name in ("gpu01", "gpu02", "gpu03"):
                feed.answers[PATH.format(name)] = msgspec.json.encode(Result(message="asked"))
        target = ServerTarget(socket=tmp_path / "s")
        console = console_with(small_fleet(role="viewer"), start=start, target=target)
        async with shown(console) as pilot:
            yield Rig(console, pilot, feed)


@pytest.mark.asyncio
async def test_a_node_is_asked_while_its_page_is_in_front(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with looking(tmp_path, monkeypatch) as rig:
        assert await rig.ticks(3) == 0
        await rig.go(NODE)
        assert await rig.ticks(3) == 3
        assert set(rig.asked) == {PATH.format("gpu01")}
        await rig.go(Place(view="models"))
        assert await rig.ticks(3) == 0


@pytest.mark.asyncio
async def test_the_node_of_the_card_under_the_cursor_is_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with looking(tmp_path, monkeypatch, start="gpus") as rig:
        view = rig.console.main.view
        assert view is not None
        assert view.looked_at()
        assert await rig.ticks(2) == 2
        assert set(rig.asked) == {PATH.format(view.looked_at())}


@pytest.mark.asyncio
async def test_a_console_that_hears_nothing_asks_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with looking(tmp_path, monkeypatch) as rig:
        await rig.go(NODE)
        rig.console.store.set_link(Link(state="lost", since=NOW, reason="the server is away"))
        assert await rig.ticks(3) == 0
        rig.console.store.set_link(Link(state="live", since=NOW))
        assert await rig.ticks() == 1


@pytest.mark.asyncio
async def test_a_forgotten_screen_asks_nothing_until_a_key_is_pressed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with looking(tmp_path, monkeypatch) as rig:
        await rig.go(NODE)
        rig.now += FORGOTTEN_S - 1
        assert await rig.ticks() == 1
        rig.now += 1
        assert await rig.ticks(3) == 0
        await rig.pilot.press("down")
        assert await rig.ticks() == 1


@pytest.mark.asyncio
async def test_who_refuses_is_left_alone_for_a_while_and_nothing_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with looking(tmp_path, monkeypatch, refuse=True) as rig:
        await rig.go(NODE)
        assert await rig.ticks(5) == 1
        rig.now += AFTER_ERROR_S
        assert await rig.ticks(5) == 1
        assert not list(rig.console._notifications)
