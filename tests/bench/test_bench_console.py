"""What the benchmark of the console waits for on its terminal is there, and in one view alone."""

import pytest

from tests.bench.console import COLUMNS, FIRST_FRAME, ROWS, SWITCHES
from tests.console.harness import console_with, screen_text, shown
from tests.support.fleet_rows import small_fleet


@pytest.mark.asyncio
async def test_each_heading_waited_for_is_drawn_by_its_own_view_alone() -> None:
    console = console_with(small_fleet())
    async with shown(console, size=(COLUMNS, ROWS)) as pilot:
        seen = []
        for key, _ in SWITCHES:
            await pilot.press(key)
            await pilot.pause()
            seen.append(screen_text(console))
        headings = [heading.decode() for _, heading in SWITCHES]
        assert [[heading in text for heading in headings] for text in seen] == [[True, False], [False, True]]
        assert all(FIRST_FRAME.decode() in text for text in seen)
