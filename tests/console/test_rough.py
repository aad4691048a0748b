"""Rough handling of every view and page: harmful names, clicks on them, a megabyte, tiny and restless terminals."""

import msgspec
import pytest

from console.app import Console
from console.places import Place, Subject
from console.screens.logs import LogsPage
from llmgw.api.actions import Target
from llmgw.api.watch import AuditRow, KeyRow, WeightsRow
from tests.console.harness import console_with, screen_lines, screen_text, shown
from tests.console.scenes import DIALOGS, PAGES, TABS, StillAdmin, console_in, settle, visit, visits
from tests.console.test_hostile import harmless, hostile_cluster
from tests.support.fleet_rows import NOW, snapshot

MEGABYTE = "[@click=app.quit]" + "m[/] " * 200_000
CLICK = "[@click=app.quit]m[/]"
MIXED = "bidi\u202eevil\u2066 wide漢字かな🧑\u200d🚀 e" + "\u0301" * 50
WORDS = [CLICK, "gpu[b ", "esc\x1b[31mred\x1b]0;title\x07", MIXED, "", MEGABYTE]
"""One of each kind; `test_hostile` has them all on the tabs."""
MOST_CLICKS = 5
DRAGGED = ("help", "palette", "line", "filter", "serve", "restart", "remove", "key", "join")
"""A dialog of each kind of screen: those of a kind lie on the terminal alike."""
SIZES = [(20, 5), (1, 1), (200, 2)]

cases = pytest.mark.case("C27")


def hostile_rows(word: str) -> dict[str, dict[str, msgspec.Struct]]:
    """Every topic, with `word` wherever a text may stand."""
    hostile = {word: word, "list": [word, {word: [word]}]}
    return {
        **hostile_cluster(word),
        "weights": {
            word: WeightsRow(
                source=word,
                id="w",
                state="failed",
                done_bytes=-5,
                total_bytes=3,
                message=word,
                models=(word,),
                revision=word,
            )
        },
        "keys": {word: KeyRow(id=word, name=word, models=(word, word), created=-1e18, last_used=1e300)},
        "audit": {"1": AuditRow(id=1, at=NOW, actor=word, action=word, target=word, before=hostile, after=word)},
    }


def hostile_console(word: str) -> Console:
    """A console of nothing but `word`."""
    console = console_with(snapshot(hostile_rows(word)))
    console.admin.close()
    console.admin = StillAdmin(away=False)
    return console


def places(word: str) -> list[tuple[str, Place]]:
    """Every tab, and every page about the one thing there is."""
    found = [(name, Place(view=name)) for name in TABS]
    for name, place in PAGES.items():
        subject = place.subject
        if subject is not None and name != "change":
            place = Place(view=place.view, subject=Subject(target=subject.target, key=word))
        elif name == "change":
            place = Place(view=name, subject=Subject(target=Target.CLUSTER, key="1"))
        found.append((name, place))
    return found


def alive(console: Console) -> None:
    """It runs, and nobody asked it to end."""
    assert console.is_running
    assert console._exit is False
    assert console.return_value is None


@cases
@pytest.mark.asyncio
@pytest.mark.parametrize("word", WORDS, ids=lambda word: ascii(word[:16]))
async def test_every_view_and_page_shows_it_and_goes_on(word: str) -> None:
    console = hostile_console(word)
    async with shown(console, size=(120, 40)) as pilot:
        for _, place in places(word):
            await visit(console, pilot, place)
            harmless(screen_lines(console), 120)
            view = console.main.view
            if isinstance(view, LogsPage):
                view.lines.add_lines([[(word, "")]])
            view.set_filter(word[:300]) if view is not None else None
            await settle(console, pilot)
            harmless(screen_lines(console), 120)
        alive(console)


@cases
@pytest.mark.asyncio
async def test_clicking_it_anywhere_runs_nothing() -> None:
    console = hostile_console(CLICK)
    clicked = []
    async with shown(console, size=(120, 40)) as pilot:
        for name, place in places(CLICK):
            await visit(console, pilot, place)
            spots = [(line.find("app.quit"), y) for y, line in enumerate(screen_lines(console)) if "app.quit" in line]
            # What stands under each other is one column of one widget: a click on it anywhere is the same click.
            for spot in list({x: (x, y) for x, y in spots}.values())[:MOST_CLICKS]:
                await pilot.click(offset=spot)
                clicked.append(name)
                alive(console)
                if console.screen is not console.main:
                    await pilot.press("escape")
                if console.main.trail.here != place:
                    await visit(console, pilot, place)
    assert {"overview", "models", "replicas", "nodes", "gpus", "weights", "keys", "audit"} <= set(clicked)
    assert {"model", "replica", "node", "explain", "yaml", "change"} <= set(clicked)


@cases
@pytest.mark.asyncio
async def test_it_is_shown_as_it_is_everywhere() -> None:
    console = hostile_console(CLICK)
    missing = []
    async with shown(console, size=(200, 60)) as pilot:
        for name, place in places(CLICK):
            await visit(console, pilot, place)
            if name not in ("ctx", "logs") and CLICK not in screen_text(console):
                missing.append(name)
    assert missing == []


@cases
@pytest.mark.asyncio
@pytest.mark.parametrize("dialog", DIALOGS)
async def test_forms_and_questions_show_it(dialog: str) -> None:
    tab, pressed = DIALOGS[dialog]
    console = hostile_console(CLICK)
    async with shown(console, size=(80, 24)) as pilot:
        await visit(console, pilot, Place(view=tab))
        await pilot.press(*pressed)
        await settle(console, pilot)
        harmless(screen_lines(console), 80)
        for y, line in enumerate(screen_lines(console)):
            if "app.quit" in line:
                await pilot.click(offset=(line.find("app.quit"), y))
        await pilot.press("escape")
        alive(console)


@pytest.mark.asyncio
@pytest.mark.parametrize("size", SIZES, ids=lambda size: f"{size[0]}x{size[1]}")
@pytest.mark.parametrize("state", ["empty", "failure"])
async def test_any_size_of_terminal(state: str, size: tuple[int, int]) -> None:
    console = console_in(state)
    async with shown(console, size=size) as pilot:
        for _, place in visits(state):
            await visit(console, pilot, place)
            harmless(screen_lines(console), size[0])
            await pilot.press("down", "pagedown", "end", "home")
        alive(console)


@pytest.mark.asyncio
async def test_a_terminal_that_is_dragged_about() -> None:
    console = console_in("normal")
    async with shown(console, size=(120, 40)) as pilot:
        for number, (_, place) in enumerate(visits("normal")):
            await visit(console, pilot, place)
            for step in range(3):
                columns, rows = 20 + (number * 37 + step * 53) % 180, 5 + (number * 11 + step * 17) % 55
                await pilot.resize_terminal(columns, rows)
            await settle(console, pilot)
            harmless(screen_lines(console), columns)
            assert len(screen_lines(console)) == rows
        for tab, pressed in (DIALOGS[name] for name in DRAGGED):
            await visit(console, pilot, Place(view=tab))
            await pilot.press(*pressed)
            for columns, rows in ((20, 5), (200, 60), (80, 24)):
                await pilot.resize_terminal(columns, rows)
            await settle(console, pilot)
            harmless(screen_lines(console), 80)
            while console.screen is not console.main:
                await pilot.press("escape")
            await pilot.press("escape")
        alive(console)
