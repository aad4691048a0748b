"""Models that answer for others, as the console says and sets them."""

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from console.actions import consequences
from console.actions.handlers import HANDLERS
from console.places import Place, Subject
from console.screens.fallbacks import FallbacksForm
from console.state.attention import Severity, problems
from console.state.standins import attention, counted
from llmgw.api.actions import Target
from llmgw.api.watch import ModelRow, TrafficRow
from tests.console.harness import console_with, fed, screen_text, shown, tell, until
from tests.console.scenes import visit
from tests.console.test_forms import fill, following, note_of, promise_of, toasts
from tests.support.console_plane import ConsolePlane, console_plane
from tests.support.fleet_rows import NOW, delta, model_row, small_rows, snapshot

FALLBACKS = next(handler for handler in HANDLERS if handler.action_id == "model.fallbacks")
QWEN = "qwen2.5-7b"


@pytest.fixture
def plane(tmp_path: Path) -> Iterator[tuple[ConsolePlane, Path]]:
    with console_plane(tmp_path) as made:
        yield made


def with_fallbacks(name: str, *fallbacks: str) -> ModelRow:
    row = model_row(name)
    return msgspec.structs.replace(row, spec=msgspec.structs.replace(row.spec, fallbacks=fallbacks))


def test_figures_are_told_most_first() -> None:
    assert counted({"b": 12, "c": 1300}) == "c: 1,300, b: 12 in the last minute"
    assert counted({"a": 1, "b": 2, "c": 3, "d": 4}) == "d: 4, c: 3, b: 2 and 1 more in the last minute"
    assert counted({}) == attention({}) == ""
    assert attention({"b": 1}) == "falls back: b answered 1 request for it in the last minute"


def test_a_fallback_in_force_needs_attention_and_one_that_is_over_does_not() -> None:
    rows = {"models": {"a": with_fallbacks("a", "b"), "b": model_row("b")}}
    traffic = {"a": TrafficRow(fell_back={"b": 12}), "gone": TrafficRow(fell_back={"b": 1})}
    told = snapshot({**rows, "traffic": traffic})
    (found,) = problems(fed([told]).state, NOW)
    assert (found.severity, found.target, found.key) == (Severity.WARNING, Target.MODEL, "a")
    assert found.sentence == "falls back: b answered 12 requests for it in the last minute"
    assert problems(fed([snapshot({**rows, "traffic": {"a": TrafficRow()}})]).state, NOW) == ()


def test_removing_a_model_says_beforehand_who_falls_back_to_it() -> None:
    rows = {"models": {"a": with_fallbacks("a", "b"), "b": model_row("b"), "c": with_fallbacks("c", "x", "b")}}
    state = fed([snapshot(rows)]).state
    assert consequences.removes_models(state, ("b",)).endswith("Weights stay. a, c fall back to it.")
    assert consequences.purges_models(state, ("b", "c")).endswith(" of weights. a falls back to them.")
    assert consequences.removes_models(state, ("a",)).endswith("Weights stay.")


@pytest.mark.asyncio
async def test_the_views_say_who_answers_for_whom() -> None:
    console = console_with(snapshot(small_rows()))
    async with shown(console, size=(200, 60)) as pilot:
        traffic = {QWEN: TrafficRow(fell_back={"old-llama": 12}), "old-llama": TrafficRow(answered_for={QWEN: 12})}
        models = {QWEN: with_fallbacks(QWEN, "old-llama", "glm-5.2")}
        await tell(console, pilot, delta({"models": models, "traffic": traffic}))
        await pilot.press("2")
        await until(lambda: "falls back to old-llama: 12 in the last minute" in screen_text(console))
        assert f"answers for {QWEN}: 12 in the last minute" in screen_text(console)
        await visit(console, pilot, Place(view="model", subject=Subject(target=Target.MODEL, key=QWEN)))
        await until(lambda: "old-llama, then glm-5.2" in screen_text(console))
        assert "old-llama: 12 in the last minute" in screen_text(console)


@pytest.mark.asyncio
async def test_the_form_says_what_follows_and_sets_them(plane: tuple[ConsolePlane, Path]) -> None:
    control, socket = plane
    control.table.put("models", "old-llama", with_fallbacks("old-llama", "glm-5.2"))
    async with following(socket) as (console, pilot):
        console.perform(FALLBACKS, (Subject(target=Target.MODEL, key=QWEN),))
        await until(lambda: isinstance(console.screen, FallbacksForm))
        await pilot.pause()
        assert promise_of(console) == "as it is"
        await fill(pilot, console, "fallbacks", "old-llama")
        assert note_of(console, "fallbacks") == "then what those fall back to: glm-5.2"
        assert promise_of(console).startswith(f"enter has {QWEN} fall back to old-llama while it cannot answer")
        await pilot.press("enter")
        await until(lambda: toasts(console) == [f"{QWEN} falls back to old-llama"])
        assert ("fallbacks", QWEN, ("old-llama",)) in [call[:3] for call in control.calls]


@pytest.mark.asyncio
async def test_the_form_sees_what_the_server_would_refuse(plane: tuple[ConsolePlane, Path]) -> None:
    control, socket = plane
    control.table.put("models", "old-llama", with_fallbacks("old-llama", QWEN))
    async with following(socket) as (console, pilot):
        console.perform(FALLBACKS, (Subject(target=Target.MODEL, key=QWEN),))
        await until(lambda: isinstance(console.screen, FallbacksForm))
        await fill(pilot, console, "fallbacks", "old-llama")
        await pilot.press("enter")
        assert f"goes in a circle: {QWEN} → old-llama → {QWEN}" in note_of(console, "fallbacks")
        await fill(pilot, console, "fallbacks", "nobody")
        await pilot.press("enter")
        assert "there is no model 'old-llamanobody' to fall back to" in note_of(console, "fallbacks")
        assert not [call for call in control.calls if call[0] == "fallbacks"]
