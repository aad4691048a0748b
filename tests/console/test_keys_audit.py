"""Keys and audit: what the feed tells of them, revoking, before and after, and who may not see them."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from console.app import Console
from console.places import Place, Subject
from console.screens.change import ChangePage
from console.screens.changes import MAX_DEPTH, MAX_VALUES, Value, change_of, describe
from console.screens.dialog import Question
from console.screens.registry import TABS, open_to, tabs_for, view_named
from console.screens.table_view import TableView
from llmgw.api.actions import Target
from llmgw.api.targets import ServerTarget
from llmgw.api.watch import AuditRow, KeyRow
from tests.console.harness import console_with, screen_text, shown, tell, until
from tests.support.console_plane import console_plane
from tests.support.fleet_rows import NOW, delta, small_rows, snapshot

HOSTILE = "[@click=app.quit]x[/]"


def entry(number: int, **more: Any) -> AuditRow:
    """An entry of the audit."""
    fields: dict[str, Any] = {"at": NOW - 60 * number, "actor": "unix:ops", "action": "model.scale", "target": "qwen"}
    return AuditRow(id=number, **{**fields, **more})


def rows_with(topic: str, **rows: msgspec.Struct) -> dict[str, dict[str, msgspec.Struct]]:
    """The small fleet with other rows in one topic."""
    return {**small_rows(), topic: {key.removeprefix("n"): row for key, row in rows.items()}}


KEYS = rows_with(
    "keys",
    k1=KeyRow(id="k1", name="ci", created=NOW - 9_000, requests=12_000, output_tokens=2_500_000, last_used=NOW - 4),
    k2=KeyRow(id="k2", name="old", created=NOW - 90_000, revoked=NOW - 100),
    k3=KeyRow(id="k3", name=HOSTILE, models=("qwen2.5-7b", "node[/]"), created=NOW - 9),
)
AUDIT = rows_with(
    "audit",
    n1=entry(1, before={"scaling": {"min": 1, "max": 1}, "stopped": False}, after={"scaling": {"min": 1, "max": 4}}),
    n2=entry(2, action="model.add", after={"name": "qwen", "source": "hf:org/qwen", "profiles": [{"tp": 2}]}),
    n3=entry(3, action="model.remove", target=HOSTILE, actor="tok[/]", before={HOSTILE: "\x1b[31m", "a": None}),
    n4=entry(4, action="token.use"),
)


# -- keys


@pytest.mark.asyncio
async def test_keys_are_shown_by_name_with_what_they_did_the_revoked_ones_last() -> None:
    console = console_with(snapshot(KEYS), start="keys")
    async with shown(console, size=(240, 40)):
        view = console.main.view
        assert isinstance(view, TableView)
        assert view.table.shown == ["k3", "k1", "k2"]
        text = screen_text(console)
        assert "keys · 3 · 2 good · 1 revoked" in text
        row = next(line for line in text.splitlines() if " ci " in line)
        assert all(part in row for part in ("good", "all", "12k", "2.5M", "4s", "2h", "k1"))
        assert HOSTILE in text
        assert "qwen2.5-7b, node[/]" in text


@pytest.mark.asyncio
async def test_a_key_that_is_used_reads_differently_and_a_filter_finds_it() -> None:
    console = console_with(snapshot(KEYS), start="keys")
    async with shown(console) as pilot:
        used = KeyRow(id="k1", name="ci", created=NOW - 9_000, requests=13_000, last_used=NOW)
        await tell(console, pilot, delta({"keys": {"k1": used}}))
        assert "13k" in screen_text(console)
        await pilot.press("/", *"state:revoked", "enter")
        view = console.main.view
        assert isinstance(view, TableView)
        assert view.table.shown == ["k2"]


@pytest.mark.asyncio
async def test_revoking_asks_with_figures_and_defaults_to_cancel(tmp_path: Path) -> None:
    with console_plane(tmp_path, KEYS) as (control, socket):
        console = Console(ServerTarget(socket=socket), start="keys")
        async with shown(console) as pilot:
            await until(lambda: "12k" in screen_text(console))
            assert isinstance(console.main.view, TableView)
            console.main.view.table.move_to("k1")
            await pilot.press("D")
            assert [type(screen) for screen in console.screen_stack[-1:]] == [Question]
            assert "ci: refused from now on, for good, after 12,000 requests" in screen_text(console)
            await pilot.press("enter")
            assert console.screen is console.main
            assert not [call for call in control.calls if call[0] != "usage"]
            await pilot.press("D", "right", "enter")
            await until(lambda: ("revoke_key", "k1") in [call[:2] for call in control.calls])
            await until(lambda: console.store.state.keys["k1"].revoked is not None)
            await until(lambda: any("is refused here now" in note.message for note in console._notifications))
            await pilot.pause()
            # What is revoked already cannot be revoked.
            assert isinstance(console.main.view, TableView)
            console.main.view.table.move_to("k1")
            await until(lambda: "key.revoke" not in {command.id for command in console.main.commands()})


@pytest.mark.asyncio
async def test_without_keys_it_says_what_to_press() -> None:
    console = console_with(snapshot(rows_with("keys")), start="keys")
    async with shown(console):
        assert "No key has been made yet." in screen_text(console)
        assert "n makes one; it is shown once" in screen_text(console)


# -- audit


@pytest.mark.asyncio
async def test_the_audit_is_newest_first_with_each_change_in_a_few_words() -> None:
    console = console_with(snapshot(AUDIT), start="audit")
    async with shown(console, size=(200, 40)):
        view = console.main.view
        assert isinstance(view, TableView)
        assert view.table.shown == ["1", "2", "3", "4"]
        text = screen_text(console)
        assert "scaling.max 1 → 4" in text
        assert "new: source hf:org/qwen, profiles[0].tp 2" in text
        assert HOSTILE in text
        assert "tok[/]" in text
        assert "audit · 4 · 2 actors" in text


@pytest.mark.asyncio
async def test_an_entry_shows_before_and_after_and_esc_goes_back() -> None:
    console = console_with(snapshot(AUDIT), start="audit")
    async with shown(console) as pilot:
        await pilot.press("enter")
        await until(lambda: isinstance(console.main.view, ChangePage) and console.main.view.is_mounted)
        await until(lambda: "model.scale" in screen_text(console))
        assert console.main.trail.here == Place(view="change", subject=Subject(target=Target.CLUSTER, key="1"))
        text = screen_text(console)
        for part in ("model.scale", "unix:ops", "~ scaling.max", "1 → 4", "- stopped", "as before: 1 value"):
            assert part in text
        await pilot.press("escape")
        await until(lambda: console.main.trail.here.view == "audit")


@pytest.mark.asyncio
async def test_hostile_values_are_shown_as_they_are() -> None:
    console = console_with(snapshot(AUDIT), start="audit")
    async with shown(console) as pilot:
        console.go(Place(view="change", subject=Subject(target=Target.CLUSTER, key="3")))
        await until(lambda: isinstance(console.main.view, ChangePage) and console.main.view.is_mounted)
        await until(lambda: f"- {HOSTILE}" in screen_text(console))
        assert "\x1b" not in screen_text(console)
        await pilot.press("/", "x", "enter", "c")
        assert console.is_running


@pytest.mark.asyncio
async def test_an_entry_the_feed_does_not_have_says_so() -> None:
    console = console_with(snapshot(AUDIT), start="audit")
    async with shown(console) as pilot:
        console.go(Place(view="change", subject=Subject(target=Target.CLUSTER, key="99")))
        await until(lambda: isinstance(console.main.view, ChangePage) and console.main.view.is_mounted)
        await pilot.pause()
        assert "older than those the feed brings" in screen_text(console)


def test_a_change_is_taken_apart_by_paths() -> None:
    change = change_of(entry(1, before={"a": {"b": [1, 2]}, "gone": "x"}, after={"a": {"b": [1]}, "new": True}))
    assert change.values == (
        Value(path="a.b", before="[1,2]", after="[1]"),
        Value(path="new", before=None, after="true"),
        Value(path="gone", before="x", after=None),
    )
    assert describe(entry(1, before={"a": 1}, after={"a": 2})) == "a 1 → 2"
    assert describe(entry(1, before={"a": 1, "name": "qwen"})) == "gone: a 1"
    assert describe(entry(1)) == ""
    # What was not given tells nothing, unless it is all there is, or it was taken away.
    assert describe(entry(1, after={"band": None, "aliases": [], "team": "ops"})) == "new: team ops, 2 more"
    assert describe(entry(1, after={"band": None})) == "new: band null"
    assert describe(entry(1, before={"band": "batch"}, after={"band": None})) == "band batch → null"


def test_what_an_entry_holds_is_bounded() -> None:
    wide = change_of(entry(7, after={str(number): number for number in range(MAX_VALUES + 10)}))
    assert len(wide.values) == MAX_VALUES
    assert wide.cut
    deep: dict[str, Any] = {}
    for _ in range(MAX_DEPTH * 3):
        deep = {"d": deep}
    assert len(change_of(entry(8, after=deep)).values) == 1


# -- who may see them


def test_a_view_is_open_to_the_roles_its_action_is_open_to() -> None:
    audit, keys = view_named("audit"), view_named("keys")
    assert audit is not None
    assert keys is not None
    assert [open_to(audit, role) for role in ("viewer", "operator", "admin", "of a newer server")] == [
        False,
        True,
        True,
        False,
    ]
    assert open_to(keys, "viewer")
    assert [tab.digit for tab in TABS] == sorted((tab.digit for tab in TABS), key=lambda digit: (digit == "0", digit))
    assert audit not in tabs_for("viewer")


@pytest.mark.asyncio
async def test_what_a_role_may_not_see_is_absent_not_refused() -> None:
    console = console_with(snapshot({**small_rows(), "audit": {}}, role="viewer"), start="keys")
    async with shown(console) as pilot:
        assert "0 Audit" not in screen_text(console)
        await pilot.press("0")
        assert console.main.trail.here.view == "keys"
        ids = {command.id for command in console.main.commands()}
        assert not ids & {"view.audit", "key.create", "key.revoke"}
        console.run_line("audit")
        await pilot.pause()
        assert [note.message for note in console._notifications] == ["Audit: not for the role viewer"]
        assert console.main.trail.here.view == "keys"
