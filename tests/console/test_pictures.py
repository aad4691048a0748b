"""Pictures: every view in every state at three sizes, compared with those that were looked at.

`make snapshots` takes them anew, those of the documentation too. Pages about one thing are taken where there is one:
normal, failure, disconnected.
"""

import os
import sys
import time
from collections.abc import Callable, Iterator

import pytest

from console.app import Console
from console.places import Place
from console.screens.gpus import Gpus
from tests.console.harness import console_with, shown
from tests.console.scenes import (
    CARD_SCENES,
    DIALOGS,
    PAGES,
    SIZES,
    STATES,
    TABS,
    console_in,
    disconnect,
    settle,
    visit,
    visits,
)
from tests.console.test_gpus import wide_fleet

pytestmark = pytest.mark.skipif(
    sys.version_info[:2] != (3, 11),
    reason="pictures are compared on Python 3.11 alone: other versions know other Unicode tables",
)
SamePicture = Callable[[Console, str], bool]


@pytest.fixture(autouse=True)
def _utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Clocks on the screen are local time."""
    monkeypatch.setenv("TZ", "UTC")
    monkeypatch.setenv("XDG_CONFIG_HOME", os.devnull)
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.asyncio
@pytest.mark.parametrize("size", SIZES, ids=lambda size: f"{size[0]}x{size[1]}")
@pytest.mark.parametrize("state", STATES)
async def test_views(state: str, size: tuple[int, int], same_picture: SamePicture) -> None:
    console = console_in(state)
    different = []
    async with shown(console, size=size) as pilot:
        if state == "disconnected":
            await disconnect(console, pilot)
        for name, place in visits(state):
            await visit(console, pilot, place)
            if not same_picture(console, f"{name}-{state}-{size[0]}x{size[1]}"):
                different.append(name)
    assert different == []


@pytest.mark.asyncio
@pytest.mark.parametrize("size", SIZES[:2], ids=lambda size: f"{size[0]}x{size[1]}")
@pytest.mark.parametrize("dialog", DIALOGS)
async def test_dialogs(dialog: str, size: tuple[int, int], same_picture: SamePicture) -> None:
    tab, pressed = DIALOGS[dialog]
    console = console_in("normal")
    async with shown(console, size=size) as pilot:
        await visit(console, pilot, Place(view=tab))
        await pilot.press(*pressed)
        # A form asks a moment after the last letter.
        await pilot.pause(0.4)
        await settle(console, pilot)
        assert same_picture(console, f"dialog-{dialog}-{size[0]}x{size[1]}")


@pytest.mark.asyncio
@pytest.mark.parametrize("size", SIZES[:2], ids=lambda size: f"{size[0]}x{size[1]}")
async def test_cards(size: tuple[int, int], same_picture: SamePicture) -> None:
    console = console_in("normal")
    different = []
    async with shown(console, size=size) as pilot:
        await visit(console, pilot, Place(view="gpus"))
        view = console.main.view
        assert isinstance(view, Gpus)
        for name, (node, place, pressed) in CARD_SCENES.items():
            await pilot.press(*pressed)
            assert view.map.move_to(node, place)
            await settle(console, pilot)
            if not same_picture(console, f"gpus-{name}-{size[0]}x{size[1]}"):
                different.append(name)
    assert different == []


@pytest.mark.asyncio
@pytest.mark.parametrize("size", SIZES, ids=lambda size: f"{size[0]}x{size[1]}")
async def test_a_thousand_nodes(size: tuple[int, int], same_picture: SamePicture) -> None:
    console = console_with(wide_fleet(1000), start="gpus")
    async with shown(console, size=size) as pilot:
        await settle(console, pilot)
        assert same_picture(console, f"gpus-thousand-{size[0]}x{size[1]}")


@pytest.mark.asyncio
async def test_in_ascii(same_picture: SamePicture) -> None:
    console = console_in("normal", ascii_only=True)
    different = []
    async with shown(console, size=(120, 40)) as pilot:
        for name in (*TABS, "model", "explain", "logs"):
            await visit(console, pilot, PAGES.get(name, Place(view=name)))
            if not same_picture(console, f"{name}-ascii-120x40"):
                different.append(name)
    assert different == []


@pytest.mark.asyncio
@pytest.mark.parametrize("theme", ["light", "16"])
async def test_in_other_colours(theme: str, same_picture: SamePicture) -> None:
    console = console_in("normal", theme=theme)
    different = []
    async with shown(console, size=(120, 40)) as pilot:
        for name in ("overview", "models", "gpus"):
            await visit(console, pilot, Place(view=name))
            if not same_picture(console, f"{name}-{theme}-120x40"):
                different.append(name)
    assert different == []
