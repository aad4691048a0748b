"""The recorded tour of the documentation: an operator in ten frames, by keys alone; `make snapshots` records it."""

import sys
from collections.abc import Callable

import msgspec
import pytest
from textual.pilot import Pilot

from console.app import Console, Ending
from console.client.inference import Ended, Piece
from console.screens.dialog import Question
from console.screens.playground import Playground
from console.screens.serve import ServeForm
from console.screens.shown import Shown
from llmgw.api.key_types import KeyCreate, KeyCreated
from llmgw.api.types import ModelInfo, ModelResult, ProgressInfo, ServeRequest
from llmgw.api.watch import WeightsRow
from tests.console import showcase_names
from tests.console.harness import screen_text, shown, tell, until
from tests.console.scenes import StillAdmin, console_in, settle
from tests.support.fleet_rows import GB, NOW, card_uuid, delta, model_row, replica_row

pytestmark = pytest.mark.skipif(
    sys.version_info[:2] != (3, 11),
    reason="pictures are compared on Python 3.11 alone: other versions know other Unicode tables",
)
MODEL = "glm-5.3"
SOURCE = f"hf:org/{MODEL}"
REPLICA = f"{MODEL}-4be1"
NODE = "gpu04"
ANSWER = "The mirror fetches each set of weights once and checks every file;\nnodes copy it from there."
SameFrame = Callable[[Console, str], bool]


class TourAdmin(StillAdmin):
    """Serves a model and makes a key, besides what it tells."""

    def serve(self, request: ServeRequest) -> ModelResult:
        """To gpu04."""
        row = model_row(MODEL, "fetching", ready=0)
        model = ModelInfo(name=MODEL, state=row.state, ready=0, wanted=1, source=request.source, spec=row.spec)
        return ModelResult(message=f"{MODEL}: 1 replica wanted; goes to {NODE} with profile main", model=model)

    def create_key(self, request: KeyCreate) -> KeyCreated:
        """A key like any other."""
        return KeyCreated(
            id="key-15",
            name=request.name,
            key="sk-5Vq0TzX1m4bR8cJ2yWfUe7LhNs9DaKoPgi3MuExample",
            team=request.team,
            limits=request.limits,
            budgets=request.budgets,
        )


def under_way(state: str) -> dict[str, dict[str, msgspec.Struct]]:
    """The new model while its weights are fetched, and when it answers."""
    here = state == "ready"
    done = 38 * GB if here else 17 * GB
    progress = None if here else ProgressInfo(phase="fetching", done_bytes=done, total_bytes=38 * GB)
    replica = replica_row(REPLICA, MODEL, NODE, state, since_s=14.0, cards=(card_uuid(NODE, 6),), progress=progress)
    weights = WeightsRow(
        source=SOURCE, id="w9", state=state, done_bytes=done, total_bytes=38 * GB, files=9, models=(MODEL,)
    )
    return {
        "models": {MODEL: msgspec.structs.replace(model_row(MODEL, state, ready=int(here)), facts=None)},
        "replicas": {REPLICA: replica},
        "weights": {SOURCE: weights},
    }


async def hear(console: Console, pilot: Pilot[Ending]) -> None:
    """The question on the screen is answered, as far as the screen tells."""
    view = console.main.view
    assert isinstance(view, Playground)
    exchange = view.talk.begin("What does a mirror do here?", 100.0)
    for number, word in enumerate(ANSWER.split(" ")):
        exchange.hear(Piece(text=word + " "), 100.21 + 0.011 * number)
    exchange.hear(Ended(reason="stop", input_tokens=23, output_tokens=21), 100.45)
    view._paint()
    await settle(console, pilot)


def tour_console() -> Console:
    """The showcase, as `make run` opens it."""
    console = console_in("normal")
    console.admin.close()
    console.admin = TourAdmin(away=False)
    console._demo = True
    return console


@pytest.mark.asyncio
async def test_the_tour(same_frame: SameFrame) -> None:
    console = tour_console()
    different: list[str] = []
    pressed = 0

    async def press(*keys: str) -> None:
        nonlocal pressed
        pressed += len(keys)
        await pilot.press(*keys)
        await settle(console, pilot)

    async def frame(number: int, *said: str) -> None:
        await settle(console, pilot)
        missing = [text for text in said if text not in screen_text(console)]
        assert not missing, (number, missing, screen_text(console))
        if not same_frame(console, f"tour-{number:02d}"):
            different.append(f"tour-{number:02d}")

    async with shown(console, size=(120, 40)) as pilot:
        await settle(console, pilot)
        await frame(1, "needs attention", showcase_names.BAD_MODEL)
        await press("e")
        await until(lambda: "cannot be placed" in screen_text(console) and "missing" in screen_text(console))
        await frame(2, "explain", "missing")

        await press("s", *SOURCE)
        await until(lambda: "goes to gpu04" in screen_text(console))
        await frame(3, "serve a model", "goes here", "missing")
        assert isinstance(console.screen, ServeForm)
        await press("enter")
        await tell(console, pilot, delta(under_way("fetching"), rev=9_001, now=NOW))
        await until(lambda: console.main.trail.here.key == MODEL)
        # The page comes with its facts, and then with its charts and its table.
        await until(lambda: all(said in screen_text(console) for said in ("fetching", "requests/s", "last word")))
        await frame(4, f"model {MODEL}", "45%", "of 38 GB")

        await tell(console, pilot, delta(under_way("ready"), rev=9_002, now=NOW))
        await press("t")
        await until(lambda: isinstance(console.main.view, Playground))
        await hear(console, pilot)
        await frame(5, "first token", "tokens/s")
        await press("escape", "l")
        await until(lambda: "llama-server" in screen_text(console))
        await frame(6, "logs", "following")

        await press("8", "n", *"robot", "tab", *MODEL, "enter")
        await until(lambda: isinstance(console.screen, Shown))
        console.clear_notifications()
        await frame(7, "a new key", "shown once")
        await press("c", "enter", "5")
        await frame(8, "work", "held and doing nothing")
        await press("8")
        await frame(9, "keys", "budget", "chat-frontend")
        await press("q")
        await until(lambda: isinstance(console.screen, Question))
        await frame(10, "Stop the demo", "Stay")
    assert different == []
    assert pressed < 60


def test_every_frame_has_its_sentence_in_the_tour(tour_page: str) -> None:
    for number in range(1, 11):
        assert f"](images/tour-{number:02d}.svg)" in tour_page
