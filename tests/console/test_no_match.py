"""A filter that hides every row says where a name before a colon is none, and which there are, the likely first."""

import pytest

from console.places import Place
from console.screens.gpus import Gpus
from console.screens.no_match import keys_of, nothing_matches
from console.screens.replicas import SPEC as REPLICAS
from llmgw.api.watch import ReplicaRow
from tests.console.harness import console_with, screen_text, shown, tell
from tests.console.scenes import PAGES, console_in, visit
from tests.support.fleet_rows import small_rows, snapshot


def said(filter_text: str, keys: tuple[str, ...]) -> list[str]:
    """The notice as lines."""
    return ["".join(text for text, _ in line) for line in nothing_matches(filter_text, keys)]


def test_an_unknown_key_is_named_with_those_there_are_and_the_likely_one_first() -> None:
    keys = ("state", "model", "node")
    assert said("zebra", keys) == ["nothing matches zebra", "esc shows all"]
    assert said("state:gone", keys) == ["nothing matches state:gone", "esc shows all"]
    assert said("foo:bar", keys)[1:-1] == ["foo is no key here", "keys are state, model, node"]
    assert said("stat:ready", ("model", "state"))[1:-1] == [
        "stat is no key here; did you mean state?",
        "keys are state, model",
    ]
    assert said("!foo:bar zebra", keys) == ["nothing matches !foo:bar zebra", "esc shows all"]
    assert said("foo:bar", ())[1:-1] == ["foo is no key here: words alone are looked for"]


def test_a_key_that_is_long_or_would_steer_the_terminal_is_shown_short_and_harmless() -> None:
    line = said(f"x\x1b[2J{'y' * 200}:1", ("state",))[1]
    assert line.isprintable()
    assert len(line) < 60


def test_the_keys_are_those_of_the_rows() -> None:
    replicas = [row for row in small_rows()["replicas"].values() if isinstance(row, ReplicaRow)]
    assert keys_of(replicas, REPLICAS.facts) == ("state", "model", "node", "engine", "profile")
    assert keys_of((), REPLICAS.facts) == ()


@pytest.mark.asyncio
async def test_every_table_and_the_map_say_it() -> None:
    console = console_in("normal")
    async with shown(console) as pilot:
        for place in ("replicas", "nodes", "keys", "overview", "gpus", "model"):
            await visit(console, pilot, PAGES.get(place, Place(view=place)))
            await pilot.press("slash", *"sta:gone", "enter")
            await pilot.pause()
            text = screen_text(console)
            assert "sta is no key here" in text, place
            assert ("the one key is kind" if place == "overview" else "keys are ") in text, place
            await pilot.press("escape")
            await pilot.pause()
            assert "is no key here" not in screen_text(console)


@pytest.mark.asyncio
async def test_the_busiest_models_say_it_as_the_list_beside_them_does() -> None:
    console = console_with(snapshot(small_rows()))
    async with shown(console) as pilot:
        await pilot.press("tab", "slash", *"sorce:hf", "enter")
        await pilot.pause()
        text = screen_text(console)
        assert "sorce is no key here; did you mean source?" in text
        assert "keys are source, state, engine, gpu, at" in text


@pytest.mark.asyncio
async def test_the_map_goes_on_saying_it_when_figures_come() -> None:
    first = snapshot(small_rows())
    console = console_with(first, start="gpus")
    async with shown(console) as pilot:
        view = console.main.view
        assert isinstance(view, Gpus)
        await pilot.press("slash", *"nod:gpu01", "enter")
        await tell(console, pilot, first)
        text = screen_text(console)
        assert "no card matches nod:gpu01" in text
        assert "nod is no key here; did you mean node" in text
        assert "no node has a GPU" not in text
