"""The weights view: what it says of each set, what may be removed, and what a refusal names."""

import msgspec
import pytest

from console.actions import consequences
from console.app import Console
from console.places import Subject
from console.screens.dialog import TypedQuestion
from console.screens.weights import Weights, progress_cell
from console.state.cluster import ClusterState
from console.state.history import History
from console.widgets.columns import Seen
from llmgw.api.actions import Target
from llmgw.api.watch import Snapshot, WeightsRow
from tests.console.harness import console_with, screen_text, shown, tell
from tests.support.fleet_rows import GB, NOW, delta, empty_cluster, small_rows, snapshot

COMING = WeightsRow(
    source="hf:org/coming@main",
    id="w2",
    state="fetching",
    done_bytes=115 * GB,
    total_bytes=188 * GB,
    files=42,
    models=("glm-5.2", "glm-5.2-air"),
)
ORPHAN = WeightsRow(
    source="file:/m/orphan.gguf", id="w3", state="ready", done_bytes=47 * GB, total_bytes=47 * GB, files=1
)
FAILED = WeightsRow(
    source="https://mirror.lab/gone.gguf",
    id="w4",
    state="failed",
    total_bytes=9 * GB,
    done_bytes=3 * GB,
    files=1,
    message="https://mirror.lab answered 404 [/][@click=app.quit]\x1b[2J",
)


def sets() -> Snapshot:
    """The small fleet with a set of every kind."""
    rows = small_rows()
    rows["weights"].update({row.source: row for row in (COMING, ORPHAN, FAILED)})
    return snapshot(rows)


def view_of(console: Console) -> Weights:
    """The view in front."""
    view = console.main.view
    assert isinstance(view, Weights)
    return view


def said(row: WeightsRow) -> str:
    """The progress cell as text."""
    cell = progress_cell(row, Seen(state=ClusterState(), history=History(), now=NOW))
    return "".join(text for text, _ in (cell if isinstance(cell, list) else [cell]))


def test_progress_in_figures() -> None:
    assert said(COMING) == "█████░░░  61% of 188 GB"
    assert said(ORPHAN) == "47 GB"
    assert said(WeightsRow(source="s", id="i", state="resolving")) == "–"
    assert said(WeightsRow(source="s", id="i", state="fetching", done_bytes=2 * GB)) == "2 GB"
    read_back = msgspec.structs.replace(ORPHAN, phase="checking", checked_bytes=20 * GB)
    assert said(read_back) == "███░░░░░  43% of 47 GB"
    more = WeightsRow(source="s", id="i", state="fetching", done_bytes=9 * GB, total_bytes=8 * GB)
    assert "100%" in said(more)


def test_what_removing_costs() -> None:
    state, _ = ClusterState().apply(sets(), at=NOW)
    sentence = consequences.removes_weights(state, (ORPHAN.source, FAILED.source))
    assert sentence == "Deletes 2 sets of weights from the mirror: frees 50 GB in 2 files. No model needs it."
    lying = msgspec.structs.replace(ORPHAN, in_place=True)
    state, _ = state.apply(delta({"weights": {lying.source: lying}}), at=NOW)
    sentence = consequences.removes_weights(state, (ORPHAN.source, FAILED.source))
    assert sentence == (
        "Deletes 2 sets of weights from the mirror: frees 3 GB in 1 file. No model needs it. "
        "The files of 1 set lie where an operator put them, and stay."
    )


@pytest.mark.asyncio
class TestView:
    async def test_every_set_with_its_state_and_who_needs_it(self) -> None:
        console = console_with(sets(), start="weights")
        async with shown(console, size=(200, 40)):
            view = view_of(console)
            assert view.table.shown[0] == FAILED.source
            text = screen_text(console)
            for there in ("61% of 188 GB", "glm-5.2, glm-5.2-air", "orphan", "answered 404 [/][@click", "1 failed"):
                assert there in text
            assert "1 coming, 73 GB to go" in text
            assert "\x1b" not in text

    async def test_progress_moves(self) -> None:
        console = console_with(sets(), start="weights")
        async with shown(console) as pilot:
            row = msgspec.structs.replace(COMING, done_bytes=141 * GB)
            await tell(console, pilot, delta({"weights": {row.source: row}}))
            assert "75% of 188 GB" in screen_text(console)

    async def test_what_a_model_needs_cannot_be_removed_and_says_who_needs_it(self) -> None:
        console = console_with(sets(), start="weights")
        async with shown(console) as pilot:
            view = view_of(console)
            assert view.table.move_to(COMING.source)
            await pilot.pause()
            assert "weights.remove" not in {command.id for command in console.main.commands()}
            await pilot.press("D")
            await pilot.pause()
            assert console.screen is console.main
            sentences = [notice.message for notice in console._notifications]
            assert sentences == ["2 models need it (glm-5.2, glm-5.2-air): remove the model first, or with its files"]

    async def test_an_orphan_goes_when_its_name_is_typed_with_the_figures_in_sight(self) -> None:
        console = console_with(sets(), start="weights")
        async with shown(console) as pilot:
            assert view_of(console).table.move_to(ORPHAN.source)
            await pilot.pause()
            await pilot.press("D")
            await pilot.pause()
            assert isinstance(console.screen, TypedQuestion)
            assert "frees 47 GB in 1 file" in " ".join(screen_text(console).split())
            await pilot.press("escape")
            assert len(console.screen_stack) == 2

    async def test_a_failed_set_can_be_tried_again(self) -> None:
        console = console_with(sets(), start="weights")
        async with shown(console) as pilot:
            view = view_of(console)
            assert view.table.move_to(FAILED.source)
            await pilot.pause()
            assert view.subjects() == (Subject(target=Target.WEIGHTS, key=FAILED.source),)
            assert {"weights.fetch.again", "weights.remove"} <= {command.id for command in console.main.commands()}

    async def test_a_whole_set_can_be_read_back_and_says_what_was_found(self) -> None:
        console = console_with(sets(), start="weights")
        async with shown(console, size=(200, 40)) as pilot:
            view = view_of(console)
            assert view.table.move_to(ORPHAN.source)
            await pilot.pause()
            verify = next(command for command in console.main.commands() if command.id == "weights.verify")
            assert verify.key == "v"
            row = msgspec.structs.replace(ORPHAN, phase="checking", checked_bytes=20 * GB)
            await tell(console, pilot, delta({"weights": {row.source: row}}))
            assert "43% of 47 GB" in screen_text(console)
            assert "weights.verify" not in {command.id for command in console.main.commands()}
            row = msgspec.structs.replace(ORPHAN, verdict="its file is what was published [/]", intact=True)
            await tell(console, pilot, delta({"weights": {row.source: row}}))
            assert "its file is what was published [/]" in screen_text(console)
            assert view.table.move_to(FAILED.source)
            await pilot.pause()
            assert "weights.verify" not in {command.id for command in console.main.commands()}

    async def test_marked_orphans_go_together_with_what_they_hold_in_sight(self) -> None:
        console = console_with(sets(), start="weights")
        async with shown(console) as pilot:
            view = view_of(console)
            for source in (ORPHAN.source, FAILED.source):
                assert view.table.move_to(source)
                await pilot.press("space")
                await pilot.pause()
            await pilot.press("D")
            await pilot.pause()
            assert "Deletes 2 sets of weights from the mirror: frees 50 GB" in " ".join(screen_text(console).split())

    async def test_viewers_can_change_nothing(self) -> None:
        console = console_with(snapshot(small_rows(), role="viewer"), start="weights")
        async with shown(console):
            ids = {command.id for command in console.main.commands()}
            assert not ids & {"weights.fetch", "weights.fetch.again", "weights.remove", "weights.verify"}

    async def test_filter_and_empty(self) -> None:
        console = console_with(sets(), start="weights")
        async with shown(console):
            view = view_of(console)
            view.set_filter("orphan !failed")
            assert view.table.shown == [ORPHAN.source]
            view.set_filter("state:fetching")
            assert view.table.shown == [COMING.source]
        console = console_with(empty_cluster(), start="weights")
        async with shown(console):
            assert "The mirror holds no weights" in screen_text(console)
