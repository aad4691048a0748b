"""Things go by the names people gave them, what nobody could be asked for is not nought, columns hold their words."""

import pytest

from console.places import Place, Subject
from llmgw.api.actions import Target
from tests.console.harness import screen_lines, screen_text, shown
from tests.console.scenes import console_in, settle, visit

KEY = Place(view="key", subject=Subject(target=Target.KEY, key="key-6"))
SIZES = pytest.mark.parametrize("size", [(80, 24), (120, 40)])


@pytest.mark.asyncio
@SIZES
async def test_a_keys_page_and_what_is_asked_before_it_is_revoked_name_the_key(size: tuple[int, int]) -> None:
    console = console_in("normal")
    async with shown(console, size=size) as pilot:
        await visit(console, pilot, KEY)
        tabs = screen_lines(console)[1]
        assert "thesis-björn" in tabs
        assert "key-6" not in tabs
        await pilot.press("D")
        await settle(console, pilot)
        assert "thesis-björn  key-6" in screen_text(console)


@pytest.mark.asyncio
@SIZES
async def test_usage_that_could_not_be_asked_for_is_not_none(size: tuple[int, int]) -> None:
    console = console_in("failure")
    async with shown(console, size=size) as pilot:
        for place, noun in ((Place(view="usage"), "usage"), (KEY, "used by model")):
            await visit(console, pilot, place)
            title = next(line for line in screen_lines(console) if f" {noun} " in line)
            assert f"{noun} · 0" not in title
        assert "the leader does not answer" in screen_text(console)


@pytest.mark.asyncio
@SIZES
async def test_usage_there_was_none_of_is_none(size: tuple[int, int]) -> None:
    console = console_in("empty")
    async with shown(console, size=size) as pilot:
        await visit(console, pilot, Place(view="usage"))
        assert any("usage · 0" in line for line in screen_lines(console))


@pytest.mark.asyncio
@SIZES
async def test_what_a_node_holds_is_told_whole(size: tuple[int, int]) -> None:
    console = console_in("normal")
    async with shown(console, size=size) as pilot:
        await visit(console, pilot, Place(view="nodes"))
        line = next(line for line in screen_lines(console) if " gpu04 " in line)
        assert "6/8 2 idle 1 worn" in line


@pytest.mark.asyncio
@SIZES
async def test_in_ascii_what_rows_are_sorted_by_is_marked_apart_from_its_name(size: tuple[int, int]) -> None:
    console = console_in("normal", ascii_only=True)
    async with shown(console, size=size) as pilot:
        await visit(console, pilot, Place(view="replicas"))
        assert "model /\\ " in screen_text(console)
        await pilot.press("O")
        await pilot.pause()
        assert "model \\/ " in screen_text(console)
