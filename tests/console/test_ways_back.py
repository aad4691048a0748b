"""Coming back finds what was left: the row, the filter, and the list that had the keys."""

import pytest

from console.places import Place
from console.screens.gpus import Gpus
from console.screens.model import ModelPage
from console.screens.monitor import Monitor
from console.screens.overview import Overview
from console.screens.page import Page
from console.screens.requests import Requests
from console.screens.usage import Usage
from console.widgets.order import HOLD_S
from tests.console.harness import console_with, screen_text, shown, tell, until
from tests.console.scenes import PAGES, console_in, settle, visit
from tests.console.test_steady import Clock
from tests.support.fleet_rows import Rows, delta, model_row, node_row, replica_row, small_rows, snapshot, traffic_row

REPLICAS = [f"qwen-{letter}" for letter in "abcdef"]


def one_model() -> Rows:
    """A model with some replicas on one node."""
    replicas = {key: replica_row(key, "qwen", "gpu1") for key in REPLICAS}
    return {"models": {"qwen": model_row("qwen")}, "replicas": replicas, "nodes": {"gpu1": node_row("gpu1")}}


@pytest.mark.asyncio
async def test_the_next_replica_of_a_page_is_one_key_from_the_one_that_was_opened() -> None:
    console = console_with(snapshot(one_model()), start="models")
    async with shown(console) as pilot:
        await pilot.press("enter")
        await until(lambda: isinstance(console.main.view, ModelPage))
        await pilot.press("slash", *"qwen", "enter", "down", "down", "down")
        view = console.main.view
        assert isinstance(view, ModelPage)
        left = view.table.cursor_key
        assert left is not None
        assert left != view.table.shown[0]
        await pilot.press("enter")
        await until(lambda: console.main.trail.here.view == "replica")
        await pilot.press("escape")
        await until(lambda: isinstance(console.main.view, ModelPage))
        await pilot.pause()
        back = console.main.view
        assert isinstance(back, ModelPage)
        assert back is not view
        assert back.table.cursor_key == left
        assert back.filter_text() == "qwen"


@pytest.mark.asyncio
async def test_requests_are_looked_at_one_after_the_other() -> None:
    console = console_in("normal")
    async with shown(console) as pilot:
        console.run_line("requests")
        await until(lambda: isinstance(console.main.view, Requests))
        await settle(console, pilot)
        await pilot.press("slash", *"!complete", "enter", "home", "down")
        view = console.main.view
        assert isinstance(view, Requests)
        left = view.table.cursor_key
        assert left == view.table.shown[1]
        await pilot.press("enter")
        await until(lambda: console.main.trail.here.view == "request")
        await pilot.press("escape")
        await until(lambda: isinstance(console.main.view, Requests))
        await settle(console, pilot)
        back = console.main.view
        assert isinstance(back, Requests)
        assert back.filter_text() == "!complete"
        assert back.table.cursor_key == left
        await pilot.press("down")
        assert back.table.cursor_key == back.table.shown[2]


@pytest.mark.asyncio
async def test_the_list_of_the_overview_that_had_the_keys_has_them_again() -> None:
    console = console_with(snapshot(small_rows()))
    clock = Clock(console)
    async with shown(console) as pilot:
        await pilot.press("tab", "down")
        view = console.main.view
        assert isinstance(view, Overview)
        model = view._busiest.cursor_key
        assert model is not None
        assert view._busiest.has_focus
        await pilot.press("colon")
        last = view._busiest.shown[-1]
        clock.now += HOLD_S + 1
        await tell(console, pilot, delta({"traffic": {last: traffic_row(900, 900_000)}}, rev=9, now=clock.now))
        console.main.tick(console.seen())
        await pilot.press("escape")
        await pilot.pause()
        assert view._busiest.shown[0] == last != model
        assert view._busiest.cursor_key == model
        assert view._busiest.has_focus
        await pilot.press("enter")
        await until(lambda: console.main.trail.here.key == model)
        await pilot.press("escape")
        await until(lambda: console.main.view is view)
        await pilot.pause()
        assert view._busiest.has_focus
        assert view._busiest.cursor_key == model


@pytest.mark.asyncio
async def test_a_filter_of_the_overview_is_of_the_list_that_has_the_keys() -> None:
    console = console_with(snapshot(small_rows()))
    async with shown(console) as pilot:
        await pilot.press("tab", "slash", *"qwen", "enter")
        view = console.main.view
        assert isinstance(view, Overview)
        assert view._busiest.shown
        assert all("qwen" in name for name in view._busiest.shown)
        assert len(view._table.shown) == view._table.total
        assert "/qwen" in screen_text(console)
        await pilot.press("escape")
        assert len(view._busiest.shown) == view._busiest.total


@pytest.mark.asyncio
async def test_a_table_below_the_map_of_cards_keeps_the_keys() -> None:
    console = console_in("normal")
    async with shown(console, size=(200, 60)) as pilot:
        await pilot.press("5")
        await until(lambda: isinstance(console.main.view, Gpus))
        await settle(console, pilot)
        view = console.main.view
        assert isinstance(view, Gpus)
        await pilot.press("tab", "tab", "down")
        assert view.models.has_focus
        subjects = view.subjects()
        await pilot.press("colon", "escape")
        assert view.models.has_focus
        assert view.subjects() == subjects
        await pilot.press("enter")
        await until(lambda: console.main.trail.here.view == "model")
        await pilot.press("escape")
        await until(lambda: console.main.view is view)
        await pilot.pause()
        assert view.models.has_focus


@pytest.mark.asyncio
async def test_of_what_is_gone_no_row_is_left() -> None:
    console = console_with(snapshot(one_model()), start="models")
    async with shown(console) as pilot:
        await pilot.press("enter")
        await until(lambda: isinstance(console.main.view, ModelPage))
        await pilot.pause()
        assert "qwen-a" in screen_text(console) or "ready" in screen_text(console)
        await tell(console, pilot, delta({}, gone={"models": ("qwen",), "replicas": tuple(REPLICAS)}))
        view = console.main.view
        assert isinstance(view, Page)
        assert "qwen is not there any more" in screen_text(console)
        assert view.table.total == 0
        assert view.subjects() == ()
        assert not {"explain", "logs", "monitor", "try it"} & {command.label for command in console.main.commands()}
        assert "ready" not in screen_text(console)


@pytest.mark.asyncio
async def test_sums_of_usage_are_those_that_were_left() -> None:
    console = console_in("normal")
    async with shown(console) as pilot:
        await visit(console, pilot, Place(view="usage"))
        await pilot.press("b", "b", "b", "p")
        await settle(console, pilot)
        assert "by model" in screen_text(console)
        await pilot.press("enter")
        await until(lambda: console.main.trail.here.view == "model")
        await pilot.press("escape")
        await until(lambda: isinstance(console.main.view, Usage))
        await settle(console, pilot)
        assert "by model · today" in screen_text(console)


@pytest.mark.asyncio
async def test_the_next_card_is_charted_over_as_long_as_the_one_before() -> None:
    console = console_in("normal")
    async with shown(console) as pilot:
        await visit(console, pilot, PAGES["charts-card"])
        await pilot.press("p", "p")
        first = console.main.view
        assert isinstance(first, Monitor)
        span = first.span
        await pilot.press("full_stop")
        await until(lambda: console.main.view is not first)
        await settle(console, pilot)
        view = console.main.view
        assert isinstance(view, Monitor)
        assert view.place.key != first.place.key
        assert view.span == span
