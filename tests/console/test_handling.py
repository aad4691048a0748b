"""What hands do without looking: the wheel, a paste, the key next to the right one."""

import pytest
from textual import events
from textual.widgets import Input

from console.app import Console
from console.places import Place
from console.screens.dialog import Question
from console.screens.logs import LogsPage
from console.screens.model import ModelPage
from console.screens.node import NodePage
from console.screens.overview import Overview
from console.screens.serve import ServeForm
from console.screens.table_view import TableView
from console.screens.usage import Usage
from console.surroundings import hindrance
from console.widgets.facts import Fact, fact_lines
from llmgw.api.watch import AuditRow
from tests.console.harness import NOWHERE, console_with, fed, screen_lines, screen_text, shown, tell, until
from tests.console.scenes import PAGES, console_in, settle, visit
from tests.support.fleet_rows import (
    NOW,
    Rows,
    cluster_row,
    delta,
    model_row,
    node_row,
    replica_row,
    small_rows,
    snapshot,
)


@pytest.mark.asyncio
async def test_what_was_scrolled_to_stays_in_sight_while_rows_come_and_go() -> None:
    models = {f"m{number:03}": model_row(f"m{number:03}") for number in range(100)}
    console = console_with(snapshot({"models": models}), start="models")
    async with shown(console, size=(80, 24)) as pilot:
        view = console.main.view
        assert isinstance(view, TableView)
        view.table.scroll_to(y=50, animate=False)
        await pilot.pause()
        await tell(console, pilot, delta({"models": {"m200": model_row("m200")}}))
        assert view.table.total == 101
        assert round(view.table.scroll_y) == 50
        # The next step brings the cursor back into sight.
        await pilot.press("down")
        await pilot.pause()
        assert round(view.table.scroll_y) == 1


@pytest.mark.asyncio
@pytest.mark.parametrize(
    "pasted",
    ["hf:org/glm\n", "\n  hf:org/glm  \nand more\n", "hf:org/\u200bglm\ufeff", "\thf:org/glm"],
    ids=["its end", "lines around it", "what hides in it", "a tab before it"],
)
async def test_a_pasted_source_is_taken_without_what_came_along(pasted: str) -> None:
    console = console_in("normal")
    async with shown(console) as pilot:
        await pilot.press("2", "s")
        await until(lambda: isinstance(console.screen, ServeForm))
        await pilot.pause()
        form = console.screen
        assert isinstance(form, ServeForm)
        assert isinstance(form.focused, Input)
        form.focused.post_message(events.Paste(pasted))
        await pilot.pause()
        assert form.rows["source"].text == "hf:org/glm"


@pytest.mark.asyncio
@pytest.mark.parametrize("key", ["ctrl+q", "ctrl+c", "q"])
async def test_every_way_out_of_the_demo_asks(key: str) -> None:
    console = Console(NOWHERE, store=fed([snapshot(small_rows())]), follow=False, clock=lambda: NOW, demo=True)
    async with shown(console) as pilot:
        await pilot.press(key)
        await until(lambda: isinstance(console.screen, Question))
        await pilot.press("escape")
        await pilot.pause()
        assert console.is_running
        assert console.return_value is None


@pytest.mark.asyncio
async def test_a_card_that_is_free_offers_no_way_on() -> None:
    console = console_in("normal")
    async with shown(console) as pilot:
        await visit(console, pilot, PAGES["node"])
        view = console.main.view
        assert isinstance(view, NodePage)
        offers: dict[bool, set[bool]] = {True: set(), False: set()}
        for key, on in view._rows.items():
            view.table.move_to(key)
            await settle(console, pilot)
            offers[bool(on.card.replica)].add("enter open" in screen_lines(console)[-1])
        assert offers == {True: {True}, False: {False}} or offers == {True: {True}, False: set()}


@pytest.mark.asyncio
async def test_the_log_of_a_models_page_is_of_the_replica_under_the_cursor() -> None:
    replicas = {key: replica_row(key, "qwen", "gpu1") for key in ("qwen-a", "qwen-b", "qwen-c")}
    rows: Rows = {"models": {"qwen": model_row("qwen", wanted=3)}, "replicas": replicas}
    console = console_with(snapshot(rows), start="models")
    async with shown(console) as pilot:
        await pilot.press("enter")
        await until(lambda: isinstance(console.main.view, ModelPage))
        await pilot.press("down", "l")
        await until(lambda: isinstance(console.main.view, LogsPage))
        assert console.main.trail.here.key == "qwen-b"


@pytest.mark.asyncio
async def test_what_arrives_at_the_top_is_in_sight_until_the_cursor_is_taken_off_it() -> None:
    def entries(*ids: int) -> dict[str, AuditRow]:
        return {str(id_): AuditRow(id=id_, at=NOW - 1000 + id_, actor="a", action="x", target=f"t{id_}") for id_ in ids}

    console = console_with(snapshot({"audit": entries(*range(50))}), start="audit")
    async with shown(console, size=(80, 24)) as pilot:
        view = console.main.view
        assert isinstance(view, TableView)
        await tell(console, pilot, delta({"audit": entries(50)}))
        assert view.table.cursor_key == "50"
        assert "t50 " in screen_text(console)
        await pilot.press("down")
        await tell(console, pilot, delta({"audit": entries(51, 52)}, rev=3))
        assert view.table.cursor_key == "49"


@pytest.mark.asyncio
async def test_on_a_screen_of_few_rows_the_table_has_them() -> None:
    models = {"m": model_row("m", "failed", ready=0, message="a long word about what is wrong with it")}
    console = console_with(snapshot({"models": models}), start="models")
    async with shown(console, size=(20, 6)) as pilot:
        await pilot.pause()
        assert "▌ m" in screen_text(console)
        await pilot.resize_terminal(60, 24)
        await pilot.pause()
        assert "what is wrong with it" in screen_text(console)


@pytest.mark.asyncio
async def test_why_nothing_can_be_changed_is_told_as_it_is() -> None:
    console = console_with(snapshot(small_rows()), read_only=True)
    async with shown(console):
        console.run_line("restart qwen3-coder")
        console.run_line("model stop nothing")
        said = [note.message for note in console._notifications]
        assert not any("ctrl+r" in sentence for sentence in said)


@pytest.mark.parametrize(
    ("environment", "told"),
    [
        ({"TERM": "xterm-256color"}, False),
        ({"TERM": "xterm-256color", "TMUX": "/tmp/tmux-0/default,1,0"}, True),
        # Over SSH from inside tmux.
        ({"TERM": "tmux-256color"}, True),
        ({"TERM": "screen"}, True),
        ({"TERM": "screen", "STY": "4242.pts-0"}, False),
        ({}, False),
    ],
)
def test_what_keeps_a_copy_from_the_clipboard_is_told(environment: dict[str, str], told: bool) -> None:
    assert ("set-clipboard" in hindrance(environment)) is told
    assert ("GNU screen" in hindrance(environment)) is ("STY" in environment)


@pytest.mark.asyncio
async def test_a_copy_says_what_may_keep_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMUX", "/tmp/tmux-0/default,1,0")
    console = console_with(snapshot(small_rows()), start="models")
    async with shown(console) as pilot:
        await pilot.press("c")
        await pilot.pause()
        assert [note.message for note in console._notifications][-1].endswith("`set -s set-clipboard on` is set")


@pytest.mark.asyncio
async def test_a_console_that_no_shell_could_bring_back_is_not_put_aside() -> None:
    console = console_with(snapshot(small_rows()))
    async with shown(console) as pilot:
        await pilot.press("ctrl+z")
        await pilot.pause()
        assert "q leaves" in [note.message for note in console._notifications][-1]


def test_facts_stand_in_two_columns_on_eighty_and_what_is_told_first_stands_first() -> None:
    facts: list[Fact] = [
        ("state", ("a word that is longer than half of a small screen", "")),
        *((name, (f"value {name}", "")) for name in ("cpu", "memory", "disk", "agent")),
        ("engines", ("also longer than half of such a small screen is", "")),
    ]
    lines = [" ".join("".join(text for text, _ in line).split()) for line in fact_lines(facts, 78)]
    assert lines == [
        "state a word that is longer than half of a small screen",
        "cpu value cpu disk value disk",
        "memory value memory agent value agent",
        "engines also longer than half of such a small screen is",
    ]


@pytest.mark.asyncio
async def test_a_log_that_cannot_be_read_is_not_followed() -> None:
    console = console_in("failure")
    async with shown(console, size=(80, 24)) as pilot:
        await visit(console, pilot, PAGES["logs"])
        await until(lambda: "gpu03 is silent" in screen_text(console))
        head = screen_lines(console)[2]
        assert "following" not in head
        assert "0 lines" not in head


@pytest.mark.asyncio
async def test_usage_of_what_is_gone_offers_no_way_on() -> None:
    console = console_in("normal")
    async with shown(console) as pilot:
        await visit(console, pilot, Place(view="usage"))
        await pilot.press("b", "b", "b")
        await settle(console, pilot)
        view = console.main.view
        assert isinstance(view, Usage)
        gone = view.table.shown[1]
        rev = console.store.state.rev + 1
        await tell(console, pilot, delta(gone={"models": (gone,)}, rev=rev, now=NOW))
        for name in view.table.shown:
            view.table.move_to(name)
            await settle(console, pilot)
            assert ("enter open" in screen_lines(console)[-1]) is (name != gone), name


@pytest.mark.asyncio
async def test_a_worse_problem_than_the_first_is_in_sight_when_it_comes() -> None:
    nodes = {f"gpu{number:02}": node_row(f"gpu{number:02}", problems=("the disk is full",)) for number in range(20)}
    console = console_with(snapshot({"cluster": {"cluster": cluster_row()}, "nodes": nodes}))
    async with shown(console, size=(80, 24)) as pilot:
        view = console.main.view
        assert isinstance(view, Overview)
        first = view._table.cursor_key
        assert len(view._table.shown) > view._table.window_rows
        failed = {"zeta": model_row("zeta", "failed", ready=0, message="no room for it")}
        await tell(console, pilot, delta({"models": failed}))
        assert "zeta" in screen_text(console).split("models")[0]
        # The cursor is where it was: on its own problem.
        assert view._table.cursor_key == first
