"""What a search or a filter finds is told, and what it does not find too."""

import pytest

from console.lines import candidates
from console.places import Place, Subject
from console.screens.logs import LogsPage
from console.screens.model import ModelPage
from console.screens.overview import Overview
from llmgw.api.actions import Target
from tests.console.harness import console_with, screen_text, shown, until
from tests.console.scenes import PAGES, console_in, visit
from tests.support.fleet_rows import small_rows, snapshot


@pytest.mark.asyncio
class TestSearch:
    async def test_what_is_above_is_found_from_the_end_that_is_followed(self) -> None:
        console = console_in("normal")
        async with shown(console, size=(80, 24)) as pilot:
            await visit(console, pilot, PAGES["logs"])
            view = console.main.view
            assert isinstance(view, LogsPage)
            view.lines.set_lines(
                [[(f"line {number}" + (" Oops" if number in (3, 9, 27) else ""), "")] for number in range(200)]
            )
            view.lines.set_following(True)
            await pilot.pause()
            await pilot.press("slash", *"oops", "enter")
            await pilot.pause()
            text = screen_text(console)
            assert "line 27 Oops" in text
            assert "3 of 3 lines" in text
            assert not view.lines.following
            await pilot.press("N")
            await pilot.pause()
            assert "2 of 3 lines" in screen_text(console)
            assert "line 9 Oops" in screen_text(console)
            await pilot.press("n", "n")
            await pilot.pause()
            # Behind the last comes the first.
            assert "1 of 3 lines" in screen_text(console)
            assert "line 3 Oops" in screen_text(console)

    async def test_what_is_nowhere_is_said_to_be(self) -> None:
        console = console_in("normal")
        async with shown(console, size=(80, 24)) as pilot:
            await visit(console, pilot, PAGES["logs"])
            await pilot.press("slash", *"zebra", "enter")
            await pilot.pause()
            assert "in no line" in screen_text(console)

    async def test_matches_in_the_last_window_are_walked_one_by_one(self) -> None:
        console = console_in("normal")
        async with shown(console, size=(80, 24)) as pilot:
            await visit(console, pilot, PAGES["logs"])
            view = console.main.view
            assert isinstance(view, LogsPage)
            view.lines.set_lines(
                [[(f"line {number}" + (" Oops" if number >= 198 else ""), "")] for number in range(200)]
            )
            await pilot.press("slash", *"oops", "enter")
            for told in ("1 of 2", "2 of 2", "1 of 2"):
                await pilot.pause()
                assert told in screen_text(console)
                await pilot.press("n")

    async def test_lines_that_come_are_counted(self) -> None:
        console = console_in("normal")
        async with shown(console, size=(80, 24)) as pilot:
            await visit(console, pilot, PAGES["logs"])
            view = console.main.view
            assert isinstance(view, LogsPage)
            view.lines.set_lines([[("Oops", "")], [("well", "")]])
            await pilot.press("slash", *"oops", "enter")
            view.lines.add_lines([[("well", "")], [("Oops again", "")]])
            await pilot.pause()
            assert view.lines.matches == 2
            assert "1 of 2 lines" in screen_text(console)


@pytest.mark.asyncio
async def test_no_problem_that_matches_is_not_no_problem() -> None:
    console = console_with(snapshot(small_rows()))
    async with shown(console) as pilot:
        view = console.main.view
        assert isinstance(view, Overview)
        total = view._table.total
        assert total
        await pilot.press("slash", *"zebra", "enter")
        await pilot.pause()
        text = screen_text(console)
        assert "nothing matches zebra" in text
        assert f"0 of {total}" in text
        assert "/zebra" in text
        await pilot.press("escape")
        await pilot.pause()
        assert len(view._table.shown) == total
        assert "zebra" not in screen_text(console)


@pytest.mark.asyncio
async def test_a_page_says_at_once_how_many_of_its_rows_match() -> None:
    console = console_in("normal")
    async with shown(console) as pilot:
        await visit(console, pilot, PAGES["model"])
        view = console.main.view
        assert isinstance(view, ModelPage)
        total = view.table.total
        await pilot.press("slash", *"zebra", "enter")
        await pilot.pause()
        text = screen_text(console)
        assert "nothing matches zebra" in text
        assert "no replica" not in text
        assert f"0 of {total}" in text


@pytest.mark.asyncio
async def test_the_servers_own_log_is_on_the_line_and_in_the_palette() -> None:
    console = console_in("normal")
    async with shown(console) as pilot:
        assert candidates("logs ser", console.store.state) == ["logs server"]
        await pilot.press(*":logs server", "enter")
        await until(lambda: console.main.trail.here.view == "logs")
        assert console.main.trail.here.subject == Subject(target=Target.CLUSTER, key="server")
        await until(lambda: isinstance(console.main.view, LogsPage) and console.main.view.lines.count > 0)
        assert console.main.subjects() == ()
        await visit(console, pilot, Place(view="models"))
        await pilot.press("ctrl+p", *"server's log")
        await pilot.pause()
        await pilot.press("enter")
        await until(lambda: console.main.trail.here.key == "server")
        await pilot.press(*":logs nobody", "enter")
        await until(lambda: any("is called 'nobody'" in notice.message for notice in console._notifications))
