"""Serving over several nodes by the form: what is wrong stands beside its field, and the fit says who takes a part."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from llmgw.api import types as t
from llmgw.core.verdicts import NodeVerdict
from tests.console.harness import screen_text, until
from tests.console.test_forms import fill, following, form_of, note_of, promise_of, toasts
from tests.support.console_plane import ConsolePlane, console_plane

SOURCE = "hf:org/large"


class SeveralNodes(ConsolePlane):
    """Two of its three nodes have eight cards; a replica over three has no place."""

    async def explain_serve(self, request: t.ServeRequest) -> t.Explanation:
        self.asked.append(request)
        spans = request.nodes or 1
        fits = spans <= 2
        tail = "" if fits else "; 3 nodes are needed and 2 can"
        verdicts = tuple(
            NodeVerdict(
                node=name,
                profile="h100-80g",
                fits=fits,
                rule="" if fits else "nodes",
                message=f"fits: 70 GB on card 0, 1{tail}",
            )
            for name in ("gpu01", "gpu02")
        )
        other = NodeVerdict(node="gpu03", profile="h100-80g", fits=False, rule="class", message="has no card of it")
        return t.Explanation(
            model="large",
            dry_run=True,
            would_place="gpu01 and gpu02" if fits else None,
            spans=spans,
            message="goes to gpu01 and gpu02" if fits else "needs 3 nodes with 2 cards; gpu01 and gpu02 have them",
            need_bytes=280 * 10**9,
            need_detail="weights 200 GB",
            verdicts=(*verdicts, other),
        )


@pytest.fixture
def plane(tmp_path: Path) -> Iterator[tuple[ConsolePlane, Path]]:
    with console_plane(tmp_path, kind=SeveralNodes) as made:
        yield made


@pytest.mark.asyncio
async def test_a_replica_over_two_nodes_is_asked_for_and_goes_to_both(plane: tuple[ConsolePlane, Path]) -> None:
    control, socket = plane
    async with following(socket) as (console, pilot):
        await pilot.press("s", *SOURCE)
        await fill(pilot, console, "gpu_class", "h100-80g")
        await fill(pilot, console, "tp", "2")
        await fill(pilot, console, "nodes", "2")
        assert form_of(console).rows["pp"].input.placeholder == "2"
        assert note_of(console, "nodes").startswith("4 cards: 2 on each of 2 nodes; ")
        assert note_of(console, "pp") == "2 of 2 cards each"
        await until(lambda: "it goes to gpu01 and gpu02" in promise_of(console))
        assert "2 of 3 nodes can take a part, 2 are needed" in screen_text(console)
        assert screen_text(console).count("goes here") == 2
        await pilot.press("enter")
        await until(lambda: bool(toasts(console)))
        (sent,) = [call[1] for call in control.calls if call[0] == "serve"]
        assert sent == t.ServeRequest(source=SOURCE, gpu_class="h100-80g", tp=2, nodes=2)


@pytest.mark.asyncio
async def test_too_few_nodes_are_said_with_those_that_have_room(plane: tuple[ConsolePlane, Path]) -> None:
    _, socket = plane
    async with following(socket) as (console, pilot):
        await pilot.press("s", *SOURCE)
        await fill(pilot, console, "gpu_class", "h100-80g")
        await fill(pilot, console, "nodes", "3")
        await until(lambda: "waits for room: needs 3 nodes with 2 cards" in promise_of(console))
        text = screen_text(console)
        assert "2 of 3 nodes can take a part, 3 are needed" in text
        assert "too few others" in text
        assert text.index("gpu01") < text.index("gpu03")


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("given", "field", "words"),
    [
        ({"nodes": "2"}, "gpu_class", "is needed: a replica on 2 nodes runs on cards"),
        ({"pp": "2"}, "gpu_class", "is needed: a replica in 2 stages runs on cards"),
        (
            {"gpu_class": "h100-80g", "tp": "3", "nodes": "2", "pp": "1"},
            "nodes",
            "tp 3 × pp 1 are 3 cards, which 2 nodes cannot have as many of each",
        ),
        (
            {"gpu_class": "h100-80g", "engine": "sglang", "nodes": "2"},
            "nodes",
            "sglang runs on one node, and there with tp alone; nodes above 1 is for vllm",
        ),
        ({"gpu_class": "h100-80g", "nodes": "99"}, "nodes", "99 is outside 1 to 16"),
    ],
)
async def test_a_shape_that_cannot_be_is_said_beside_its_field_and_nobody_is_asked(
    plane: tuple[ConsolePlane, Path], given: dict[str, str], field: str, words: str
) -> None:
    control, socket = plane
    async with following(socket) as (console, pilot):
        await pilot.press("s", *SOURCE)
        for name, text in given.items():
            await fill(pilot, console, name, text)
        await pilot.pause()
        assert form_of(console).rows[field].problem == words
        before = len(control.asked)
        await pilot.press("enter")
        await pilot.pause()
        assert len(control.asked) == before
        assert not [call for call in control.calls if call[0] == "serve"]
