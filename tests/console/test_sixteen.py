"""In sixteen colours no text disappears into its ground, whatever the theme."""

import pytest
from rich.color import ColorSystem
from textual.strip import Strip

from console.screens.registry import VIEWS
from tests.console.harness import console_with, shown
from tests.support.fleet_rows import played


@pytest.mark.asyncio
@pytest.mark.parametrize("theme", ["16", "dark", "light"])
async def test_no_text_equals_its_background(theme: str) -> None:
    console = console_with(*played(5), theme=theme)
    lost: set[tuple[str, str]] = set()
    async with shown(console) as pilot:
        for view in (view for view in VIEWS if view.digit):
            await pilot.press(view.digit)
            await pilot.pause()
            for line in console.screen._compositor.render_strips():
                for text, style, _ in Strip(line):
                    if style is None or style.color is None or style.bgcolor is None or not text.strip(" ╌─│╭╮╰╯┌┐└┘▏"):
                        continue
                    ink = style.color.downgrade(ColorSystem.STANDARD)
                    ground = style.bgcolor.downgrade(ColorSystem.STANDARD)
                    if ink.number == ground.number:
                        lost.add((text.strip()[:30], str(style)))
    assert not lost
