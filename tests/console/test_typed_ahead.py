"""Keys that come in one burst, as over a slow line, mean what they mean one by one."""

import pytest
from textual import events
from textual.keys import _character_to_key

from console.app import Console, Ending
from console.client.access import Access
from console.screens.dialog import Question
from console.screens.explain import ExplainPage
from console.screens.form import Values
from console.screens.help import Help
from console.screens.join_form import JoinForm
from console.screens.key_form import KeyForm
from console.screens.nodes import Nodes
from console.screens.playground import Playground
from console.screens.serve import ServeForm
from llmgw.api.targets import ServerTarget
from tests.console.harness import NOWHERE, console_with, fed, shown, until
from tests.support.fleet_rows import NOW, small_fleet


def burst(console: Console, *keys: str) -> None:
    """All at once, before any is handled, as a terminal names them."""
    for key in keys:
        character = key if len(key) == 1 else {"enter": "\r", "space": " "}.get(key)
        name = key if len(key) > 1 or key.isalnum() else _character_to_key(key)
        console.post_message(events.Key(name, character))


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


VIEW_KEYS = (("1", "overview"), ("2", "models"), ("3", "replicas"), ("4", "nodes"), ("5", "gpus"), ("8", "keys"))


@pytest.mark.asyncio
async def test_a_view_key_and_the_key_behind_it_go_to_that_view_whatever_was_there_before() -> None:
    console = console_with(small_fleet(), start="models")
    async with shown(console):
        for key, _ in (*VIEW_KEYS, *reversed(VIEW_KEYS), *VIEW_KEYS[::2]):
            # First into rooms that are not built yet, then into those that are.
            burst(console, key, "?")
            await until(lambda: isinstance(console.screen, Help))
            assert console.main.trail.here.view == dict(VIEW_KEYS)[key]
            burst(console, "escape")
            await until(lambda: console.screen is console.main)


@pytest.mark.asyncio
async def test_a_nodes_key_behind_the_nodes_digit_opens_the_nodes_form() -> None:
    console = console_with(small_fleet(), start="overview")
    async with shown(console):
        burst(console, "4", "n")
        await until(lambda: isinstance(console.screen, JoinForm))
        burst(console, "escape")
        await until(lambda: console.screen is console.main)
        burst(console, "8", "n", *"ci")
        await until(lambda: isinstance(console.screen, KeyForm) and console.screen.rows["name"].input.value == "ci")


@pytest.mark.asyncio
async def test_the_cursor_of_a_view_that_is_still_to_come_moves() -> None:
    console = console_with(small_fleet(), start="overview")
    async with shown(console):
        burst(console, "4", "j", "j", "enter", "escape", "k", "space")
        await until(lambda: isinstance(view := console.main.view, Nodes) and bool(view.table.marked))
        view = console.main.view
        assert isinstance(view, Nodes)
        assert view.table.marked == {view.table.shown[1]}
        assert [place.view for place in console.main.trail.after] == ["node"]


@pytest.mark.asyncio
async def test_what_is_opened_has_the_next_key_and_what_is_left_has_none() -> None:
    console = console_with(small_fleet(), start="models")
    async with shown(console):
        model = console.main.subjects()[0].key
        burst(console, "enter", "y", "escape", "escape", "4", "enter", "[", "2", "enter", "e")
        await until(lambda: isinstance(console.main.view, ExplainPage))
        assert console.main.trail.here.key == model
        ways = [place.view for place in console.main.trail.before]
        assert ways == ["models", "nodes", "models", "model"][-len(ways) :]


@pytest.mark.asyncio
async def test_a_key_behind_a_command_line_goes_to_the_view_it_names() -> None:
    console = console_with(small_fleet(), start="models")
    async with shown(console):
        burst(console, *":nodes", "enter", "n")
        await until(lambda: isinstance(console.screen, JoinForm))
        assert console.main.prompt.history == ["nodes"]


@pytest.mark.asyncio
async def test_a_filter_and_the_keys_behind_it() -> None:
    console = console_with(small_fleet(), start="nodes")
    async with shown(console):
        view = console.main.view
        assert isinstance(view, Nodes)
        last = view.table.shown[-1]
        burst(console, "/", *last, "enter", "space")
        await until(lambda: view.table.marked == {last})
        assert view.filter_text() == last
        assert not console.main.prompt.is_open


@pytest.mark.asyncio
async def test_what_is_asked_behind_the_key_that_opens_the_trial_stands_in_its_line() -> None:
    console = console_with(small_fleet(), start="models")
    console.accesses.remember(NOWHERE, Access(url="http://127.0.0.1:1", key="sk-x", note="typed key"))
    async with shown(console):
        burst(console, "t", *"eDx", "left", *"!")
        await until(lambda: isinstance(console.main.view, Playground) and console.main.view._input.value == "eD!x")
        assert console.screen is console.main


@pytest.mark.asyncio
async def test_what_is_typed_behind_a_tab_stands_in_the_field_it_leads_to() -> None:
    console = console_with(small_fleet(), start="models")
    async with shown(console) as pilot:
        await pilot.press("s")
        await until(lambda: isinstance(console.screen, ServeForm))
        form = console.screen
        assert isinstance(form, ServeForm)
        burst(console, *"sim:a", "tab", *"bob", "backspace", "tab", *"9", "down", *"77", "shift+tab", *"999")
        await until(lambda: form.values()["max_output"] == "77" and form.values()["context"] == "9999")
        assert (form.values()["source"], form.values()["name"]) == ("sim:a", "bo")


@pytest.mark.asyncio
async def test_what_is_typed_behind_enter_is_not_sent_with_the_form() -> None:
    console = console_with(small_fleet(), start="keys")
    async with shown(console) as pilot:
        await pilot.press("n")
        await until(lambda: isinstance(console.screen, KeyForm))
        form = console.screen
        assert isinstance(form, KeyForm)
        sent: list[str] = []

        async def send(values: Values) -> None:
            sent.append(values["name"])

        form._send = send  # type: ignore[method-assign]
        burst(console, *"robot", "enter", *"xyz")
        await until(lambda: sent == ["robot"])
