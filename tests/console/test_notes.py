"""What a row has to say is read whole where it stands, whatever the width; and no page offers the way to itself."""

import re
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from textual.geometry import Size

from console.app import Console
from console.places import Place, Subject
from console.screens.models import SPEC as MODELS
from console.screens.node import NodePage
from console.screens.nodes import SPEC as NODES
from console.screens.page import Page
from console.screens.replica import CARDS, HELD
from console.screens.replicas import SPEC as REPLICAS
from console.screens.table_view import TableView
from console.text import plain
from console.widgets.columns import lay_out
from console.widgets.facts import fact_lines
from console.widgets.note import MOST_ROWS
from console.widgets.rows import GUTTER
from llmgw.api.actions import Target
from tests.console import showcase_names
from tests.console.harness import console_with, screen_lines, screen_text, shown, tell
from tests.console.scenes import console_in, visit
from tests.support.fleet_rows import delta, model_row, snapshot

FRAME = 2
"""Columns of a table's frame at its sides."""
AT_120 = 120 - FRAME - GUTTER


def flat(lines: Sequence[str]) -> str:
    """Lines as one, blanks once."""
    return " ".join(re.sub(r"\s+", " ", " ".join(lines)).split())


def table_of(console: Console) -> TableView[Any]:
    """The view in front."""
    view = console.main.view
    assert isinstance(view, TableView)
    return view


def words(console: Console, key: str) -> str:
    """What the row under the cursor has to say, as the server said it."""
    state = console.store.state
    view = console.main.trail.here.view
    if view == "models":
        return state.models[key].message
    return state.replicas[key].message if view == "replicas" else "; ".join(state.nodes[key].problems)


@pytest.mark.asyncio
@pytest.mark.parametrize("size", [(80, 24), (120, 40), (100, 30)], ids=str)
@pytest.mark.parametrize("name", ["models", "replicas", "nodes"])
async def test_every_rows_word_is_read_whole_with_the_cursor_on_it(name: str, size: tuple[int, int]) -> None:
    console = console_in("failure")
    read = 0
    async with shown(console, size=size) as pilot:
        await visit(console, pilot, Place(view=name))
        table = table_of(console).table
        for _ in table.shown:
            assert table.cursor_key is not None
            said = words(console, table.cursor_key)
            if said:
                read += 1
                assert flat([plain(said)]) in flat(screen_lines(console)), table.cursor_key
            await pilot.press("j")
    assert read >= 1


@pytest.mark.parametrize(
    ("columns", "key", "least"),
    [(MODELS.columns, "said", 24), (REPLICAS.columns, "message", 24), (NODES.columns, "problem", 22)],
    ids=["models", "replicas", "nodes"],
)
def test_the_last_word_has_what_the_others_leave(columns: Any, key: str, least: int) -> None:
    for room, least_here in ((AT_120, least), (240, 60)):
        layout = lay_out(columns, room)
        widths = dict(zip((column.key for column in layout.columns), layout.widths, strict=True))
        assert widths[key] >= least_here
        assert widths[key] == max(widths.values())


@pytest.mark.asyncio
async def test_a_table_is_as_high_with_the_cursor_on_a_silent_row() -> None:
    console = console_in("failure")
    async with shown(console, size=(80, 24)) as pilot:
        await visit(console, pilot, Place(view="models"))
        view = table_of(console)
        heights = [view.table.size.height]
        for _ in view.table.shown:
            await pilot.press("j")
            heights.append(view.table.size.height)
        # It gives way once to the longest word, and to nothing afterwards.
        assert heights == sorted(heights, reverse=True)
        assert len(set(heights)) <= 3
        await pilot.resize_terminal(200, 50)
        await pilot.press("home", "end")
        assert view._note.size == Size(view._note.size.width, 0)


@pytest.mark.asyncio
async def test_a_word_without_end_leaves_the_table_its_room() -> None:
    row = model_row("m", "failed", ready=0, wanted=1, message="so it goes on, " * 100 + "to its end")
    console = console_with(snapshot({"models": {"m": row}}), start="models")
    async with shown(console, size=(80, 24)) as pilot:
        view = table_of(console)
        assert view._note.size.height == MOST_ROWS
        assert "enter tells all" in screen_text(console)
        await tell(console, pilot, delta({"models": {"m": msgspec.structs.replace(row, message="short")}}))
        assert "last word  short" in screen_text(console)


def test_facts_that_do_not_fit_beside_others_are_told_below_them_whole() -> None:
    said = "cannot be placed: needs 8 cards free on one node, and gpu04 has 2 free; 14.2 GB are missing on each of them"
    lines = fact_lines([("state", ("pending", "")), ("last word", (said, "warn")), ("source", ("hf:a/b", ""))], 78)
    told = flat(["".join(text for text, _ in line) for line in lines])
    assert f"state pending source hf:a/b last word {said}" == told
    assert all(sum(len(text) for text, _ in line) <= 80 for line in lines)


# -- who holds a card


@pytest.mark.asyncio
async def test_a_card_names_its_model_once_and_its_replica_by_what_is_its_own() -> None:
    console = console_in("normal")
    async with shown(console, size=(80, 24)) as pilot:
        await visit(console, pilot, Place(view="node", subject=Subject(target=Target.NODE, key="gpu04")))
        await pilot.press("end", "home")
        lines = [line for line in screen_lines(console) if "qwen3-coder-30b" in line]
        held = [line for line in lines if "qwen3-coder-30b 33f1" in line]
        assert len(held) == 2
        assert all(line.count("qwen3") == 1 for line in held)


@pytest.mark.asyncio
async def test_a_replicas_cards_do_not_say_whose_they_are_and_lead_to_their_machine() -> None:
    assert [c.key for c in CARDS.columns if c not in HELD.columns] == ["holder"]
    console = console_in("normal")
    async with shown(console, size=(80, 24)) as pilot:
        place = Place(view="replica", subject=Subject(target=Target.REPLICA, key=showcase_names.REPLICA))
        await visit(console, pilot, place)
        view = console.main.view
        assert isinstance(view, Page)
        assert len(view.table.shown) == 2
        assert "held by" not in screen_text(console)
        await pilot.press("enter")
        assert isinstance(console.main.view, NodePage)
        assert console.main.trail.here.key == "gpu03"


# -- the footer


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("page", "own", "other"),
    [("logs", "l", "e"), ("explain", "e", "t"), ("yaml", "y", "e")],
)
async def test_a_page_does_not_offer_the_way_to_itself(page: str, own: str, other: str) -> None:
    console = console_in("normal")
    async with shown(console) as pilot:
        subject = Subject(target=Target.REPLICA, key=showcase_names.REPLICA)
        if page == "explain":
            subject = Subject(target=Target.MODEL, key=showcase_names.MODEL)
        await visit(console, pilot, Place(view=page, subject=subject))
        keys = {command.key for command in console.main.commands()}
        assert own not in keys
        assert other in keys
        before = console.main.trail
        await pilot.press(own)
        assert console.main.trail == before
        footer = screen_lines(console)[-1]
        assert f" {own} " not in footer
        assert f" {other} " in footer


@pytest.mark.asyncio
async def test_the_trial_is_not_offered_where_one_tries() -> None:
    console = console_in("normal")
    async with shown(console) as pilot:
        place = Place(view="try", subject=Subject(target=Target.MODEL, key=showcase_names.MODEL))
        await visit(console, pilot, place)
        await pilot.press("tab")
        labels = [command.label for command in console.main.commands()]
        assert "try it" not in labels
        assert "explain" in labels
