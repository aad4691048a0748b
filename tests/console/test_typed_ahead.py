"""Keys that come in one burst, as over a slow line, mean what they mean one by one."""

import pytest
from textual import events

from console.app import Console, Ending
from console.screens.dialog import Question
from llmgw.api.targets import ServerTarget
from tests.console.harness import console_with, fed, shown, until
from tests.support.fleet_rows import NOW, small_fleet


def burst(console: Console, *keys: str) -> None:
    """All at once, before any is handled."""
    for key in keys:
        console.post_message(events.Key(key, key if len(key) == 1 else "\r" if key == "enter" else None))


@pytest.mark.asyncio
async def test_a_command_line_is_taken_whole() -> None:
    console = console_with(small_fleet(), start="models")
    async with shown(console):
        burst(console, *":nodes", "enter")
        await until(lambda: console.main.trail.here.view == "nodes")
        assert console.main.prompt.history == ["nodes"]
        burst(console, *":quit", "escape", *"2")
        await until(lambda: console.main.trail.here.view == "models")
        assert not console.main.prompt.is_open


@pytest.mark.asyncio
async def test_arrows_and_enter_choose_what_the_arrows_reached() -> None:
    console = Console(
        ServerTarget(host="h", port=1), store=fed([small_fleet()]), follow=False, demo=True, clock=lambda: NOW
    )
    async with shown(console) as pilot:
        await pilot.press("q")
        await until(lambda: isinstance(console.screen, Question))
        burst(console, "right", "right", "enter")
        await until(lambda: console.return_value is not None)
    assert console.return_value is Ending.STOP
