"""Names, logs and errors of the worst kind: every screen shows them literally, acts on nothing, and goes on."""

from pathlib import Path

import msgspec
import pytest
from rich.cells import cell_len
from textual.pilot import Pilot

from console.app import Console, Ending
from console.places import Place, Subject
from console.screens.logs import LogsPage, log_line
from console.screens.registry import VIEWS
from console.widgets.lines import MAX_LINES
from llmgw.api.actions import Target
from llmgw.api.targets import ServerTarget
from llmgw.api.types import Explanation, NodeVerdict
from llmgw.api.watch import KeyRow, ScopeRow, scope_key
from llmgw.core.limits import Budget, Limits, Period, ScopeKind
from tests.console.harness import console_with, screen_lines, screen_text, shown, tell, until
from tests.support.fake_feed import fake_feed
from tests.support.fleet_rows import (
    NOW,
    cluster_row,
    delta,
    figures_row,
    model_row,
    node_row,
    replica_row,
    snapshot,
    traffic_row,
)

HOSTILE = (
    "org/m[/]",
    "gpu[b ",
    "[/etc/x]",
    'reply [1, "3" then [b + z',
    "[@click=app.quit]m[/]",
    "[@click=app.boom()]m[/]",
    "esc\x1b[31mred\x1b]0;title\x07",
    "bidi\u202eevil\u2066",
    "c1\x9b31m\x85next",
    "combining e" + "\u0301" * 50,
    "wide漢字かな🧑‍🚀",
    "new\nline\ttab\rback",
    "",
    "x" * 5000,
    "$warning {0} %s \\[",
)

KINDS = (
    "org/m[/] gpu[b  [/etc/x] $warning {0} %s \\[",
    'reply [1, "3" then [b + z',
    "[@click=app.boom()]m[/]",
    "c1\x9b31m\x85next esc\x1b[31mred\x1b]0;title\x07",
    "new\nline\ttab\rback bidi\u202eevil\u2066 wide漢字かな🧑\u200d🚀 e" + "\u0301" * 50,
    "",
    "x" * 5000,
)
"""The same by what they would do, several in one where none hides another: for what is opened word by word."""

cases = pytest.mark.case("C27")
SPENT = Budget(amount_micros=0, period=Period.MONTH)


def hostile_cluster(word: str) -> dict[str, dict[str, msgspec.Struct]]:
    node = node_row(word, 2, worn=(1,), held={0: word}, problems=(word,))
    node = msgspec.structs.replace(
        node,
        cpu_model=word,
        agent_version=word,
        cards=tuple(msgspec.structs.replace(card, name=word, gpu_class=word, problem=word) for card in node.cards),
    )
    model = msgspec.structs.replace(model_row(word, "failed", ready=0, message=word), source=word)
    replica = msgspec.structs.replace(replica_row(word, word, word, "failed", message=word), engine=word, endpoint=word)
    cluster = msgspec.structs.replace(cluster_row(leader=word), version=word, problems=(word,))
    return {
        "cluster": {"cluster": cluster},
        "models": {word: model},
        "replicas": {word: replica},
        "nodes": {word: node},
        "figures": {word: figures_row(node, (50.0, 0.0))},
        "traffic": {"*": traffic_row(), word: traffic_row()},
        "keys": {word: KeyRow(id=word, name=word, team=word, models=(word,), created=NOW, budgets=(SPENT,))},
        "scopes": {
            scope_key(kind, word): ScopeRow(
                kind=kind,
                name=word,
                tenant=word if kind is ScopeKind.TEAM else None,
                limits=Limits(rpm=0),
                budgets=(SPENT,),
                created=NOW,
            )
            for kind in (ScopeKind.TEAM, ScopeKind.TENANT)
        },
    }


def harmless(lines: list[str], columns: int) -> None:
    for line in lines:
        assert cell_len(line.rstrip()) <= columns
        assert all(char >= " " and not 0x7F <= ord(char) < 0xA0 for char in line), repr(line)
        assert not set(line) & set("\u202e\u2066\u200d")


def all_of_them() -> dict[str, dict[str, msgspec.Struct]]:
    rows: dict[str, dict[str, msgspec.Struct]] = {}
    for word in HOSTILE:
        for topic, of in hostile_cluster(word).items():
            rows.setdefault(topic, {}).update(of)
    return rows


async def digest(console: Console, pilot: Pilot[Ending], columns: int = 120) -> None:
    await pilot.pause()
    harmless(screen_lines(console), columns)


@cases
@pytest.mark.asyncio
@pytest.mark.parametrize("size", [(120, 40), (20, 5)])
async def test_every_view_shows_them_and_goes_on(size: tuple[int, int]) -> None:
    console = console_with(snapshot(all_of_them()))
    async with shown(console, size=size) as pilot:
        for view in (view for view in VIEWS if view.digit):
            await pilot.press(view.digit)
            await until(lambda name=view.name: console.main.trail.here.view == name)  # type: ignore[misc]
            for key in (
                "end",
                "space",
                "o",
                "question_mark",
                "escape",
                "ctrl+p",
                "escape",
                "c",
                "x",
                "escape",
                "escape",
            ):
                await pilot.press(key)
                await digest(console, pilot, size[0])
        word = HOSTILE[0]
        await tell(console, pilot, delta({"models": hostile_cluster(word)["models"]}, {"replicas": (word,)}))
        await digest(console, pilot, size[0])
        assert console.is_running
        assert console.return_value is None


@cases
@pytest.mark.asyncio
@pytest.mark.parametrize("word", KINDS, ids=range(len(KINDS)))
async def test_every_page_and_dialog_shows_it_and_goes_on(word: str) -> None:
    console = console_with(snapshot(hostile_cluster(word)))
    topics = {
        Target.MODEL: "model",
        Target.REPLICA: "replica",
        Target.NODE: "node",
        Target.KEY: "key",
        Target.TEAM: "team",
        Target.TENANT: "tenant",
    }
    async with shown(console) as pilot:
        for target, page in topics.items():
            further = {Target.MODEL: ("yaml", "explain"), Target.REPLICA: ("logs",), Target.KEY: ("yaml",)}
            for view in (page, *further.get(target, ())):
                place = Place(view=view, subject=Subject(target=target, key=word))
                console.go(place)
                await until(lambda wanted=place: console.main.trail.here == wanted)  # type: ignore[misc]
                await digest(console, pilot)
        console.go(Place(view="model", subject=Subject(target=Target.MODEL, key=word)))
        await until(lambda: console.main.trail.here.view == "model")
        for key in ("x", "escape", "D", "escape", "ctrl+p", "escape"):
            await pilot.press(key)
            await digest(console, pilot)
        for target in (Target.KEY,):
            console.go(Place(view=topics[target], subject=Subject(target=target, key=word)))
            await until(lambda wanted=topics[target]: console.main.trail.here.view == wanted)  # type: ignore[misc]
            for key in ("b", "escape", "t", "escape", "n", "escape"):
                await pilot.press(key)
                await digest(console, pilot)
        assert console.is_running


@cases
@pytest.mark.asyncio
async def test_brackets_are_shown_as_they_are() -> None:
    console = console_with(snapshot(hostile_cluster("[@click=app.quit]m[/]")), start="models")
    async with shown(console) as pilot:
        assert "[@click=app.quit]m[/]" in screen_text(console)
        await pilot.press("enter")
        await until(lambda: console.main.trail.here.view == "model")
        await pilot.pause()
        assert "model [@click=app.quit]m[/]" in screen_lines(console)[1]


@cases
@pytest.mark.asyncio
async def test_clicking_it_runs_nothing() -> None:
    console = console_with(snapshot(hostile_cluster("[@click=app.quit]m[/]")), start="models")
    async with shown(console) as pilot:
        for y, line in enumerate(screen_lines(console)):
            found = line.find("app.quit")
            if found >= 0:
                await pilot.click(offset=(found, y))
                await pilot.click(offset=(found, y), times=2)
        await pilot.pause()
        assert console.is_running
        assert console.return_value is None


@cases
@pytest.mark.asyncio
@pytest.mark.parametrize("word", KINDS, ids=range(len(KINDS)))
async def test_toasts_errors_explanations_and_the_header_are_no_exception(word: str, tmp_path: Path) -> None:
    async with fake_feed(tmp_path / "s") as server:
        verdict = NodeVerdict(node=word, profile=word, fits=False, message=word)
        answer = Explanation(model=word, dry_run=False, message=word, verdicts=(verdict,), placed=(word,))
        server.answers["/api/v1/explain/m"] = msgspec.json.encode(answer)
        rows: dict[str, dict[str, msgspec.Struct]] = {
            **hostile_cluster(word),
            "models": {"m": model_row("m", "pending", message=word)},
        }
        console = console_with(snapshot(rows), start="models", target=ServerTarget(socket=tmp_path / "s"))
        async with shown(console) as pilot:
            console.toast(word)
            console.toast(word, error=True)
            await pilot.press("e")
            await until(lambda: bool(console.main.view) and console.main.trail.here.view == "explain")
            await until(lambda: bool(server.calls))
            await digest(console, pilot)
            await pilot.press("slash", *"[b [/", "enter", "n", "colon", *"[/x] ]", "enter")
            await pilot.pause()
            harmless(screen_lines(console), 120)


@cases
@pytest.mark.asyncio
async def test_logs_take_anything_and_keep_a_bound() -> None:
    console = console_with(snapshot(hostile_cluster("m")))
    async with shown(console) as pilot:
        console.go(Place(view="logs", subject=Subject(target=Target.REPLICA, key="m")))
        await until(lambda: isinstance(console.main.view, LogsPage))
        page = console.main.view
        assert isinstance(page, LogsPage)
        for word in HOSTILE:
            page.lines.add_lines([log_line(word.encode("utf-8", "replace"))])
        page.lines.add_lines([log_line(b"x" * 1_000_000), log_line(b"\xff\xfe[b \x1b[2J" * 100)])
        await pilot.pause()
        harmless(screen_lines(console), 120)
        page.lines.add_lines([log_line(f"line {i}".encode()) for i in range(MAX_LINES + 7)])
        await pilot.press("w", "slash", *"line 1", "enter", "n", "N", "home", "end")
        await pilot.pause()
        harmless(screen_lines(console), 120)
        assert page.lines.count == MAX_LINES
        assert page.lines.dropped >= 7


@cases
@pytest.mark.asyncio
@pytest.mark.parametrize("size", [(120, 40), (80, 24)])
async def test_an_ascii_terminal_gets_ascii(size: tuple[int, int]) -> None:
    console = console_with(snapshot(all_of_them()), ascii_only=True)
    async with shown(console, size=size) as pilot:
        for view in (view for view in VIEWS if view.digit):
            await pilot.press(view.digit)
            await pilot.pause()
            for line in screen_lines(console):
                assert line.isascii(), line
