"""The forms against the real admin app: what is asked while one types, what is sent, and what comes of it."""

import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio
from textual import events
from textual.pilot import Pilot

from console.actions.handlers import HANDLERS
from console.app import Console, Ending
from console.places import Place, Subject
from console.screens.fetch_form import FetchForm
from console.screens.fields import Field, harmless, listed, whole
from console.screens.form import Form
from console.screens.join_form import JoinForm
from console.screens.key_form import KeyForm
from console.screens.scale import ScaleForm
from console.screens.serve import ServeForm
from console.screens.shown import Shown
from llmgw.api import types as t
from llmgw.api.actions import Target
from llmgw.api.targets import ServerTarget
from llmgw.api.watch import WeightsRow
from llmgw.core.catalog import Scaling
from tests.console.harness import console_with, screen_text, shown, until
from tests.support.console_plane import FULL_CONTEXT, ConsolePlane, console_plane
from tests.support.fake_control import KEY
from tests.support.fleet_rows import model_row, small_fleet, small_rows

MAX_KEYS = 25
SCALE = next(handler for handler in HANDLERS if handler.action_id == "model.scale")
HOSTILE = ("[@click=app.quit]x[/]", "node[/]", "\x1b[31mred", "a\u202eb", "日本\u200b語")


@pytest.fixture
def plane(tmp_path: Path) -> Iterator[tuple[ConsolePlane, Path]]:
    with console_plane(tmp_path) as made:
        yield made


@asynccontextmanager
async def following(socket: Path, *, size: tuple[int, int] = (120, 40)) -> AsyncIterator[tuple[Console, Pilot[Ending]]]:
    """A console that has heard the plane's feed."""
    console = Console(ServerTarget(socket=socket))
    async with shown(console, size=size) as pilot:
        await until(lambda: console.store.state.heard and console.store.link.live)
        await until(lambda: "qwen2.5-7b" in screen_text(console))
        yield console, pilot


def toasts(console: Console) -> list[str]:
    """What was said."""
    return [note.message for note in console._notifications]


def form_of(console: Console) -> Form[object]:
    """The form in front."""
    assert isinstance(console.screen, Form)
    return console.screen


def note_of(console: Console, field: str) -> str:
    """What stands beside a field."""
    return "".join(text for line in form_of(console).rows[field].note._given for text, _ in line)


def promise_of(console: Console) -> str:
    """What enter will do, as the form says it."""
    return "".join(text for line in form_of(console).promise_line._given for text, _ in line)


async def fill(pilot: Pilot[Ending], console: Console, field: str, text: str) -> None:
    """Type into a field."""
    line = form_of(console).rows[field].input
    console.screen.set_focus(line)
    await pilot.press(*text)
    await until(lambda: line.value.endswith(text))


# -- serve


@pytest.mark.asyncio
async def test_serving_asks_every_node_while_one_types_and_changes_nothing(plane: tuple[ConsolePlane, Path]) -> None:
    control, socket = plane
    async with following(socket) as (console, pilot):
        await pilot.press("s", *"sim:one")
        form = form_of(console)
        assert isinstance(form, ServeForm)
        await until(lambda: form.explanation is not None)
        assert control.asked[-1] == t.ServeRequest(source="sim:one")
        assert len(control.asked) < len("sim:one")
        assert not [call for call in control.calls if call[0] == "serve"]
        text = screen_text(console)
        assert "1 of 3 nodes can take it" in text
        assert "weights 8 GB + KV 1 GB" in text
        assert "3.2 GB missing" in text
        assert "serves one with 1 replica; it goes to gpu02 and takes 9 GB" in promise_of(console)
        assert form.rows["name"].input.placeholder == "one"
        # Markup in a node's name is text, and the best place comes first.
        lines = text.splitlines()
        order = [next(i for i, line in enumerate(lines) if name in line) for name in ("✓ gpu02", "✗ gpu01", "✗ gpu[/]")]
        assert order == sorted(order)
        assert "[@click=app.quit]other[/] cards" in text


@pytest.mark.asyncio
async def test_enter_serves_and_leads_to_the_models_page(plane: tuple[ConsolePlane, Path]) -> None:
    control, socket = plane
    async with following(socket) as (console, pilot):
        await pilot.press("s", *"sim:one")
        await fill(pilot, console, "context", "8,192")
        await fill(pilot, console, "min", "2")
        await pilot.press("enter")
        await until(lambda: console.main.trail.here.view == "model")
        served = next(call for call in control.calls if call[0] == "serve")
        assert served[1] == t.ServeRequest(source="sim:one", context_length=8192, scaling=Scaling(min=2, max=2))
        assert toasts(console) == ["sim is served"]
        assert console.main.trail.here == Place(view="model", subject=Subject(target=Target.MODEL, key="sim"))
        assert console.screen is console.main


@pytest.mark.asyncio
async def test_a_refusal_stands_beside_the_field_it_names_until_that_is_mended(
    plane: tuple[ConsolePlane, Path],
) -> None:
    _, socket = plane
    async with following(socket) as (console, pilot):
        await pilot.press("s", *"sim:one")
        await fill(pilot, console, "slots", "9")
        await until(lambda: "9 slots are over the engine's 8" in note_of(console, "slots"))
        assert "profiles[0]" not in note_of(console, "slots")
        assert promise_of(console) == "not yet: slots"
        await pilot.press("backspace", "8")
        await until(lambda: "goes to gpu02" in promise_of(console))
        assert form_of(console).rows["slots"].problem == ""


@pytest.mark.asyncio
async def test_what_is_wrong_by_itself_is_said_at_once_and_not_sent(plane: tuple[ConsolePlane, Path]) -> None:
    control, socket = plane
    async with following(socket) as (console, pilot):
        await pilot.press("s", "enter")
        assert form_of(console).rows["source"].problem == "is needed"
        await fill(pilot, console, "source", "sim:one")
        for field, text, said in (
            ("context", "abc", "is not a whole number"),
            ("max_output", "0", "0 is outside 1 to 16,777,216"),
            ("slots", "1e3", "is not a whole number"),
            ("max", "300", "300 is outside 1 to 256"),
        ):
            await fill(pilot, console, field, text)
            assert form_of(console).rows[field].problem == said
        await pilot.press("enter")
        assert console.focused is form_of(console).rows["context"].input
        for field in ("context", "max_output", "slots", "max"):
            form_of(console).rows[field].input.value = ""
        await fill(pilot, console, "name", "qwen2.5-7b")
        await until(lambda: form_of(console).rows["name"].problem == "qwen2.5-7b is served already")
        await pilot.press("enter")
        assert not [call for call in control.calls if call[0] == "serve"]


@pytest.mark.asyncio
@pytest.mark.parametrize("size", [(120, 40), (80, 24)], ids=str)
async def test_a_source_that_is_served_already_says_as_what_and_what_to_do(
    plane: tuple[ConsolePlane, Path], size: tuple[int, int]
) -> None:
    control, socket = plane
    async with following(socket, size=size) as (console, pilot):
        await pilot.press("s", *"hf:org/qwen2.5-7b")
        said = "served already as qwen2.5-7b: scale qwen2.5-7b (+ on its row), or give this one another name"
        await until(lambda: note_of(console, "source") == said)
        assert form_of(console).rows["name"].problem == "qwen2.5-7b is served already: type another one"
        assert promise_of(console) == "not yet: name"
        assert "served already as qwen2.5-7b: scale" in screen_text(console)
        # Enter goes to where another name is to be typed.
        await pilot.press("enter")
        assert console.focused is form_of(console).rows["name"].input
        assert not [call for call in control.calls if call[0] == "serve"]
        await pilot.press(*"second")
        other = "served already as qwen2.5-7b; this will be another model, with replicas of its own"
        await until(lambda: note_of(console, "source") == other)
        assert form_of(console).rows["name"].problem == ""
        await pilot.press("enter")
        await until(lambda: toasts(console) == ["second is served"])
        sent = [call[1] for call in control.calls if call[0] == "serve"]
        assert sent == [t.ServeRequest(source="hf:org/qwen2.5-7b", name="second")]


@pytest.mark.asyncio
async def test_a_field_that_is_needed_is_no_mistake_before_one_was_there(plane: tuple[ConsolePlane, Path]) -> None:
    _, socket = plane
    async with following(socket) as (console, pilot):
        await pilot.press("s")
        assert promise_of(console) == "source first"
        assert form_of(console).rows["source"].problem == ""
        await pilot.press("enter")
        assert form_of(console).rows["source"].problem == "is needed"
        assert promise_of(console) == "not yet: source"


@pytest.mark.asyncio
async def test_a_model_without_room_may_be_served_and_the_form_says_that_it_waits(
    plane: tuple[ConsolePlane, Path],
) -> None:
    control, socket = plane
    async with following(socket) as (console, pilot):
        await pilot.press("s", *"sim:one")
        await fill(pilot, console, "context", str(FULL_CONTEXT))
        await until(lambda: "waits for room: gpu02: 14.2 GB missing" in promise_of(console))
        assert "0 of 3 nodes can take it" in screen_text(console)
        assert "it would fit: vllm on 2 cards [/] of h100-80g (tp 2)" in screen_text(console)
        assert "does not fit in memory" not in screen_text(console)
        await fill(pilot, console, "tp", "2")
        await pilot.press("enter")
        await until(lambda: toasts(console) == ["sim is served"])
        served = next(call for call in control.calls if call[0] == "serve")
        assert served[1] == t.ServeRequest(source="sim:one", context_length=FULL_CONTEXT, tp=2)


@pytest.mark.asyncio
async def test_a_server_that_does_not_know_leaves_what_was_typed(plane: tuple[ConsolePlane, Path]) -> None:
    _, socket = plane
    async with following(socket) as (console, pilot):
        await pilot.press("s", *"sim:away")
        await until(lambda: promise_of(console) == "the leader does not answer")
        await pilot.press("enter")
        await until(lambda: promise_of(console) == "the database does not answer")
        assert form_of(console).values()["source"] == "sim:away"
        assert not form_of(console).sent
        await pilot.press("escape")
        assert console.screen is console.main


@pytest.mark.asyncio
async def test_a_source_given_on_the_line_is_filled_in(plane: tuple[ConsolePlane, Path]) -> None:
    _, socket = plane
    async with following(socket) as (console, pilot):
        await pilot.press(*":serve sim:two second", "enter")
        await until(lambda: isinstance(console.screen, ServeForm))
        assert form_of(console).values()["source"] == "sim:two"
        assert form_of(console).values()["name"] == "second"


@pytest.mark.asyncio
async def test_forms_are_not_there_for_those_who_may_not_change_anything() -> None:
    for console in (console_with(small_fleet("viewer")), console_with(small_fleet(), read_only=True)):
        async with shown(console) as pilot:
            await pilot.press("s")
            assert console.screen is console.main
            ids = {command.id for command in console.main.commands()}
            assert not ids & {"model.serve", "key.create", "node.join-token", "weights.fetch", "model.scale"}


@pytest.mark.asyncio
@pytest.mark.parametrize("size", [(20, 5), (80, 24), (120, 40), (200, 60)])
async def test_the_form_keeps_its_fields_and_its_promise_at_every_size(
    plane: tuple[ConsolePlane, Path], size: tuple[int, int]
) -> None:
    _, socket = plane
    console = Console(ServerTarget(socket=socket))
    async with shown(console, size=size) as pilot:
        await until(lambda: console.store.state.heard)
        console.run_line("serve sim:one")
        await until(lambda: isinstance(console.screen, ServeForm))
        await until(lambda: "goes to gpu02" in promise_of(console))
        await pilot.pause()
        if size[0] >= 80:
            text = screen_text(console)
            for label in ("source", "context", "longest answer", "GPU class", "✓ gpu02", "goes to gpu02"):
                assert label in text
        else:
            assert "sim:on" in screen_text(console)
        await pilot.press("enter")
        await until(lambda: toasts(console) == ["sim is served"])


# -- the others


@pytest.mark.asyncio
async def test_scaling_says_how_many_start_and_the_most_goes_along(plane: tuple[ConsolePlane, Path]) -> None:
    control, socket = plane
    async with following(socket) as (console, pilot):
        before = console.store.state.models["qwen2.5-7b"].spec.scaling
        console.perform(
            SCALE,
            (Subject(target=Target.MODEL, key="qwen2.5-7b"),),
        )
        await until(lambda: isinstance(console.screen, ScaleForm))
        await pilot.pause()
        assert promise_of(console).startswith("as it is")
        wanted = before.max + 2
        await pilot.press(*str(wanted))
        await until(lambda: "the next goes to gpu02" in promise_of(console))
        assert f"{wanted - before.min} replicas more" in promise_of(console)
        assert f"goes along to {wanted}" in note_of(console, "max")
        await pilot.press("enter")
        await until(lambda: toasts(console) == [f"qwen2.5-7b: {wanted} to {wanted} replicas"])
        assert ("scale", "qwen2.5-7b", wanted, wanted) in [call[:4] for call in control.calls]


@pytest.mark.asyncio
async def test_a_new_key_is_shown_once_copied_and_nowhere_else(plane: tuple[ConsolePlane, Path]) -> None:
    control, socket = plane
    async with following(socket) as (console, pilot):
        await pilot.press("8")
        await until(lambda: console.main.trail.here.view == "keys")
        await pilot.press("n", *"ci", "tab", *"qwen2.5-7b,nobody")
        assert isinstance(console.screen, KeyForm)
        assert note_of(console, "name") == "1 key of that name already"
        assert note_of(console, "models") == "not in the catalog: nobody"
        assert promise_of(console) == (
            "enter makes a key for ci that may use 2 models: qwen2.5-7b, nobody; no limits, no budget"
        )
        await pilot.press("enter")
        await until(lambda: isinstance(console.screen, Shown) and KEY in screen_text(console))
        assert ("create_key", t.KeyCreate(name="ci", models=("qwen2.5-7b", "nobody"))) in [c[:2] for c in control.calls]
        await pilot.press("escape")
        assert isinstance(console.screen, Shown), "an esc by mistake does not lose it"
        assert "Not copied yet" in screen_text(console)
        await pilot.press("c")
        assert console.clipboard == KEY
        await pilot.press("escape")
        await until(lambda: "k1" in console.store.state.keys and console.screen is console.main)
        await pilot.pause()
        assert KEY not in screen_text(console)
        assert not any(KEY in said for said in toasts(console))


@pytest.mark.asyncio
async def test_a_join_token_comes_as_a_command_to_paste(plane: tuple[ConsolePlane, Path]) -> None:
    control, socket = plane
    async with following(socket) as (console, pilot):
        await pilot.press("4")
        await until(lambda: console.main.trail.here.view == "nodes")
        await pilot.press("n")
        await until(lambda: isinstance(console.screen, JoinForm))
        assert "within 15 minutes" in promise_of(console)
        await pilot.press(*"1441")
        assert form_of(console).rows["minutes"].problem == "1,441 is outside 1 to 1,440"
        await pilot.press("backspace", "enter")
        command = "llmgw agent join llmgw-join.secret.fingerprint here:9443"
        await until(lambda: isinstance(console.screen, Shown) and command in screen_text(console))
        assert ("join_token", t.JoinTokenCreate(minutes=144)) in [call[:2] for call in control.calls]
        await pilot.press("enter")
        assert console.clipboard == command


@pytest.mark.asyncio
async def test_weights_are_fetched_from_a_source_that_is_one(plane: tuple[ConsolePlane, Path]) -> None:
    control, socket = plane
    async with following(socket) as (console, pilot):
        console.run_line("weights fetch sim:x")
        await until(lambda: isinstance(console.screen, FetchForm))
        await until(lambda: form_of(console).rows["source"].problem == "a simulated model has no weights")
        form_of(console).rows["source"].input.value = ""
        await fill(pilot, console, "source", "hf:org/glm-5.2")
        assert promise_of(console) == "the mirror has it already: ready, 188 GB"
        await fill(pilot, console, "source", "-air")
        assert "looks the source up" in promise_of(console)
        await pilot.press("enter")
        await until(lambda: toasts(console) == ["hf:org/glm-5.2-air: the mirror looks the source up"])
        assert ("fetch_weights", "hf:org/glm-5.2-air") in [call[:2] for call in control.calls]


@pytest.mark.asyncio
async def test_a_form_that_is_left_does_not_lose_what_it_sent(tmp_path: Path) -> None:
    going_on = threading.Event()

    class Slow(ConsolePlane):
        async def fetch_weights(self, request: t.WeightsFetch, *, actor: str) -> t.Result:
            self.calls.append(("began",))
            await trio.to_thread.run_sync(going_on.wait)
            return await super().fetch_weights(request, actor=actor)

    with console_plane(tmp_path, kind=Slow) as (control, socket):
        async with following(socket) as (console, pilot):
            console.run_line("weights fetch hf:a/b")
            await until(lambda: isinstance(console.screen, FetchForm))
            await pilot.press("enter")
            await until(lambda: ("began",) in control.calls)
            assert promise_of(console) == "sent; waiting for the answer"
            await pilot.press("enter", "escape")
            assert console.screen is console.main
            going_on.set()
            await until(lambda: toasts(console) == ["hf:a/b: the mirror looks the source up"])
            assert control.calls.count(("began",)) == 1


# -- hostile text


@pytest.mark.asyncio
@pytest.mark.case("C27")
async def test_hostile_names_are_shown_as_they_are_and_never_completed_to(tmp_path: Path) -> None:
    rows = small_rows()
    rows["models"] |= {name: model_row(name) for name in HOSTILE}
    rows["weights"] |= {name: WeightsRow(source=name, id="w", state="ready") for name in HOSTILE}
    with console_plane(tmp_path, rows) as (_, socket):
        async with following(socket) as (console, pilot):
            await pilot.press("s", *"[@click")
            await pilot.pause()
            assert isinstance(console.screen, ServeForm)
            offered = form_of(console).rows["source"].field.offers
            assert set(HOSTILE) < set(offered)
            await fill(pilot, console, "source", "=")
            await pilot.press("escape")
            console.perform(
                SCALE,
                (Subject(target=Target.MODEL, key=HOSTILE[0]),),
            )
            await until(lambda: isinstance(console.screen, ScaleForm))
            await pilot.pause()
            assert f"scale {HOSTILE[0]}" in screen_text(console)
            await pilot.press("5")
            assert f"keeps 5 replicas of {HOSTILE[0]}" in promise_of(console)
            console.run_line("keys create \x1b[31mred[/] a\u202eb")
            await pilot.pause()
            assert console.is_running
            assert "\x1b" not in screen_text(console)
            assert "\u202e" not in screen_text(console)


def test_fields_take_nothing_that_hides_or_moves_the_cursor() -> None:
    assert harmless("hf:org/name@main:a.gguf") == "hf:org/name@main:a.gguf"
    assert harmless("日本 [@click=x]") == "日本 [@click=x]"
    for text in ("\x1b[31m", "a\u202eb", "a\u200bb", "a\nb", "x" * 5000):
        assert harmless(text) == ""


@pytest.mark.parametrize(
    ("text", "number"),
    [("8192", 8192), ("8,192", 8192), ("8 192", 8192), ("", None), ("-1", None), ("1e3", None), ("٣", None)],
)
def test_whole_numbers(text: str, number: int | None) -> None:
    assert whole(text) == number
    assert whole("9" * 400) is None


def test_lists_and_complaints() -> None:
    assert listed(" a, b,,a ,c d") == ("a", "b", "c d")
    field = Field(name="n", label="n", required=True, whole=(1, 64))
    assert [field.complaint(text) for text in ("", "0", "x", "64")] == [
        "is needed",
        "0 is outside 1 to 64",
        "is not a whole number",
        "",
    ]


@pytest.mark.asyncio
async def test_tab_and_arrows_walk_and_right_completes(plane: tuple[ConsolePlane, Path]) -> None:
    _, socket = plane
    async with following(socket) as (console, pilot):
        await pilot.press("s", *"hf:org/glm-5.2")
        line = form_of(console).rows["source"].input
        await pilot.press("tab")
        assert console.focused is form_of(console).rows["name"].input
        await pilot.press("up")
        assert console.focused is line
        await pilot.press("down", "down")
        assert console.focused is form_of(console).rows["context"].input
        await fill(pilot, console, "gpu_class", "h1")
        gpu = form_of(console).rows["gpu_class"].input
        await until(lambda: gpu._suggestion == "h100-80g")
        await pilot.press("right")
        assert gpu.value == "h100-80g"
        await until(lambda: note_of(console, "gpu_class") == "24 cards, 3 held by nobody")
        await pilot.press("x")
        assert note_of(console, "gpu_class") == "no node has one"


@pytest.mark.asyncio
async def test_what_is_typed_ahead_of_a_form_is_its_own_and_opens_no_second_one(
    plane: tuple[ConsolePlane, Path],
) -> None:
    _, socket = plane
    async with following(socket) as (console, _pilot):
        # As a slow line brings them: all at once, before the first has opened anything.
        for letter in "ssim:fast":
            console.post_message(events.Key("colon" if letter == ":" else letter, letter))
        await until(lambda: isinstance(console.screen, ServeForm) and console.screen.values()["source"] == "sim:fast")
        assert len(console.screen_stack) == 3


# -- keys an operator presses


class Typist:
    """Presses keys and counts them."""

    def __init__(self, pilot: Pilot[Ending]) -> None:
        self.pilot = pilot
        self.count = 0

    async def press(self, *keys: str) -> None:
        """Press these."""
        self.count += len(keys)
        await self.pilot.press(*keys)


@pytest.mark.asyncio
async def test_the_days_work_takes_few_keys(plane: tuple[ConsolePlane, Path]) -> None:
    control, socket = plane
    counts: dict[str, int] = {}
    async with following(socket) as (console, pilot):

        def at(view: str) -> bool:
            return console.main.trail.here.view == view and console.main.view is not None

        typist = Typist(pilot)
        await typist.press("s", *"sim:demo", "enter")
        await until(lambda: at("model"))
        counts["serve a model"] = typist.count

        typist = Typist(pilot)
        await typist.press("8")
        await until(lambda: at("keys"))
        await typist.press("n", *"alice", "enter")
        await until(lambda: isinstance(console.screen, Shown))
        await typist.press("c", "escape")
        assert console.clipboard == KEY
        counts["make a key"] = typist.count

        typist = Typist(pilot)
        await typist.press("4")
        await until(lambda: at("nodes"))
        node = console.main.subjects()[0].key
        await typist.press("x")
        await until(lambda: ("cordon", node, True) in [call[:3] for call in control.calls])
        counts["cordon a node"] = typist.count

        typist = Typist(pilot)
        await typist.press("2")
        await until(lambda: at("models"))
        model = console.main.subjects()[0].key
        await typist.press("D", *model, "enter")
        await until(lambda: ("remove", model, False) in [call[:3] for call in control.calls])
        counts["remove a model"] = typist.count
    print(counts)
    assert max(counts.values()) <= MAX_KEYS, counts
