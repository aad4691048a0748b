"""Few colours: after a terminal has made do with what it has, no text has the colour of its background."""

from collections.abc import Iterator

import pytest
from rich.color import Color, ColorSystem
from rich.segment import Segment

from console.app import Console
from console.places import Place
from tests.console.harness import shown
from tests.console.scenes import DIALOGS, TABS, console_in, disconnect, settle, visit, visits

DRAWN = "─│╭╮╰╯┌┐└┘├┤▁▂▃▄▅▆▇█░▌▐╌"
"""Lines, bars and blocks: a line that cannot be seen hides nothing."""
THEMES = ("16", "dark", "light")


def segments(console: Console, *, body: bool = False) -> Iterator[Segment]:
    strips = console.screen._compositor.render_strips()
    for strip in strips[3:-1] if body else strips:
        yield from strip


def unreadable(console: Console) -> set[str]:
    """Texts that are gone on a terminal of sixteen colours."""
    found = set()
    for text, style, control in segments(console):
        letters = text.strip(f" \u00a0{DRAWN}")
        if control or style is None or not letters:
            continue
        ink = (style.color or Color.default()).downgrade(ColorSystem.STANDARD)
        ground = (style.bgcolor or Color.default()).downgrade(ColorSystem.STANDARD)
        if ink == ground and not ink.is_default:
            found.add(f"{letters} ({style.color} on {style.bgcolor})")
    return found


@pytest.mark.asyncio
@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize("state", ["normal", "failure", "disconnected"])
async def test_no_text_has_the_colour_of_its_background(state: str, theme: str) -> None:
    console = console_in(state, theme=theme)
    gone: dict[str, set[str]] = {}
    async with shown(console, size=(120, 40)) as pilot:
        if state == "disconnected":
            await disconnect(console, pilot)
        for name, place in visits(state):
            await visit(console, pilot, place)
            if texts := unreadable(console):
                gone[name] = texts
    assert gone == {}


@pytest.mark.asyncio
@pytest.mark.parametrize("theme", THEMES)
async def test_dialogs_neither(theme: str) -> None:
    console = console_in("normal", theme=theme)
    gone: dict[str, set[str]] = {}
    async with shown(console, size=(100, 30)) as pilot:
        for dialog, (tab, pressed) in DIALOGS.items():
            await visit(console, pilot, Place(view=tab))
            await pilot.press(*pressed)
            await settle(console, pilot)
            if texts := unreadable(console):
                gone[dialog] = texts
            while console.screen is not console.main or console.main.prompt.is_open:
                await pilot.press("escape")
            view = console.main.view
            assert view is not None
            view.set_filter("")
    assert gone == {}


@pytest.mark.asyncio
async def test_a_text_in_its_ground_is_found() -> None:
    console = console_in("normal", theme="16")
    async with shown(console) as pilot:
        await visit(console, pilot, Place(view="models"))
        assert unreadable(console) == set()
        console.main.header.styles.color = console.main.header.styles.background = "red"
        console.main.header.notify_style_update()  # as a class or a theme would
        await settle(console, pilot)
        assert unreadable(console)


@pytest.mark.asyncio
@pytest.mark.parametrize("theme", THEMES)
async def test_what_is_old_is_dimmed_in_every_view(theme: str) -> None:
    console = console_in("normal", theme=theme)
    bright: dict[str, list[Segment]] = {}
    async with shown(console, size=(120, 40)) as pilot:
        for name in TABS:
            await visit(console, pilot, Place(view=name))
            bright[name] = list(segments(console, body=True))
        await disconnect(console, pilot)
        undimmed = []
        for name in TABS:
            await visit(console, pilot, Place(view=name))
            before = {text: style for text, style, _ in bright[name] if text.strip().isalnum()}
            old = [(before[text], style) for text, style, _ in segments(console, body=True) if text in before]
            # The frames and their titles stay as they are.
            if sum(a == b for a, b in old) >= len(old) / 2:
                undimmed.append(name)
    assert undimmed == []
