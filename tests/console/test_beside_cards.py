"""Memory beside cards where an operator looks: in the form, in what explains a placement, and on a replica's page."""

from pathlib import Path

import msgspec
import pytest

from console.screens.explain import explanation_lines
from console.screens.fit import headline
from console.screens.serve import ServeForm
from console.widgets.lines import Line
from llmgw.api.types import Explanation, ServeRequest
from llmgw.core.verdicts import NodeVerdict
from tests.console.harness import screen_text, until
from tests.console.test_forms import following, form_of, promise_of
from tests.support.console_plane import ConsolePlane, console_plane

GB = 10**9
ANSWER = Explanation(
    model="m",
    dry_run=True,
    would_place="gpu07",
    message="goes to gpu07",
    need_bytes=6 * GB,
    need_host_bytes=48 * GB,
    need_detail="weights 52 GB",
    verdicts=(NodeVerdict(node="gpu07", profile="mix", fits=True, message="fits: 6 GB on card 0"),),
)


def text(line: Line) -> str:
    return "".join(part for part, _ in line)


def test_the_form_says_what_is_needed_on_cards_and_beside_them() -> None:
    assert text(headline(ANSWER)).endswith("it needs 6 GB on cards and 48 GB of memory beside them: weights 52 GB")


def test_what_explains_a_placement_says_it_too() -> None:
    lines = [text(line) for line in explanation_lines(ANSWER)]
    assert "needs        6 GB on cards and 48 GB of memory beside them  weights 52 GB" in lines


@pytest.mark.asyncio
async def test_the_form_promises_both(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = ConsolePlane.explain_serve

    async def mixed(plane: ConsolePlane, request: ServeRequest) -> Explanation:
        return msgspec.structs.replace(await plain(plane, request), need_host_bytes=48 * GB)

    monkeypatch.setattr(ConsolePlane, "explain_serve", mixed)
    with console_plane(tmp_path) as (_, socket):
        async with following(socket) as (console, pilot):
            await pilot.press("s", *"sim:one")
            form = form_of(console)
            assert isinstance(form, ServeForm)
            await until(lambda: form.explanation is not None)
            assert "goes to gpu02 and takes 9 GB and 48 GB of memory beside" in promise_of(console)
            assert "9 GB on cards and 48 GB of memory beside them" in screen_text(console)
