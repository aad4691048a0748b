"""At 200 ms there and back: the console is there at once, no key waits for the network, and what was asked comes.

Nothing here looks at a clock: the line is held while an answer is out, and what keys do meanwhile is seen.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from textual.pilot import Pilot

from console.app import Console, Ending
from console.screens.explain import ExplainPage
from console.screens.form import Form
from console.screens.nodes import Nodes
from console.screens.serve import ServeForm
from llmgw.api.targets import ServerTarget
from tests.console.harness import screen_text, shown, until
from tests.support.admin_server import TOKENS
from tests.support.console_plane import ConsolePlane, served_plane
from tests.support.slow_line import SlowLine, slow_line

pytestmark = pytest.mark.asyncio


@dataclass(kw_only=True)
class Far:
    """A console far from its server."""

    console: Console
    pilot: Pilot[Ending]
    line: SlowLine
    plane: ConsolePlane

    def toasts(self) -> list[str]:
        """What was said."""
        return [note.message for note in self.console._notifications]

    async def sees(self, text: str) -> None:
        """Wait until `text` is on the screen."""
        await until(lambda: text in screen_text(self.console))

    def nodes(self) -> Nodes:
        """The nodes, in front."""
        view = self.console.main.view
        assert isinstance(view, Nodes)
        return view


@asynccontextmanager
async def far(directory: Path, *, held: bool = False) -> AsyncIterator[Far]:
    """A console behind a slow line, from before its first word."""
    with served_plane(directory) as (plane, server):
        async with slow_line(server.port) as line:
            if held:
                line.hold()
            console = Console(ServerTarget(host="127.0.0.1", port=line.port, token=TOKENS["admin"]))
            async with shown(console) as pilot:
                yield Far(console=console, pilot=pilot, line=line, plane=plane)


async def test_it_is_there_before_a_word_has_come_and_every_room_can_be_entered(tmp_path: Path) -> None:
    async with far(tmp_path, held=True) as here:
        assert not here.console.store.state.heard
        assert "Overview" in screen_text(here.console)
        assert "connecting" in screen_text(here.console)
        for key, name in (("2", "models"), ("3", "replicas"), ("4", "nodes")):
            await here.pilot.press(key)
            assert here.console.main.trail.here.view == name
            assert "asking" in screen_text(here.console)
        await until(lambda: here.line.there > 0)
        assert here.line.back == 0
        here.line.release()
        await here.sees("gpu03")
        await here.pilot.press("2")
        await here.sees("qwen2.5-7b")
        assert here.console.store.link.live


async def test_while_an_answer_is_out_the_cursor_moves_views_change_and_then_it_comes(tmp_path: Path) -> None:
    async with far(tmp_path) as here:
        await here.pilot.press("4")
        await here.sees("gpu03")
        table = here.nodes().table
        first, second = table.shown[:2]
        here.line.hold()
        await here.pilot.press("x")
        await until(lambda: ("cordon", first, True) in [call[:3] for call in here.plane.calls])
        # It is done over there, and nothing of it is known here yet.
        back = here.line.back
        await here.pilot.press("j")
        assert table.cursor_key == second
        await here.pilot.press("slash", *second, "enter")
        assert table.shown == [second]
        await here.pilot.press("2")
        assert here.console.main.trail.here.view == "models"
        assert here.toasts() == []
        assert here.line.back == back
        here.line.release()
        await until(lambda: here.toasts() == [f"{first} is cordoned; 1 replica runs on"])


async def test_a_form_takes_letters_while_the_nodes_are_asked(tmp_path: Path) -> None:
    async with far(tmp_path) as here:
        await here.pilot.press("2")
        await here.sees("qwen2.5-7b")
        here.line.hold()
        await here.pilot.press("s", *"sim:one")
        # A slow machine pauses between letters, and the form may have asked for a part of the name before.
        await until(lambda: "sim:one" in [asked.source for asked in here.plane.asked])
        form = here.console.screen
        assert isinstance(form, ServeForm)
        assert form.explanation is None
        await here.pilot.press("tab", *"second")
        assert form.values()["name"] == "second"
        assert "asking every node" in screen_text(here.console)
        here.line.release()
        await until(lambda: form.explanation is not None and form.explanation.model == "second")
        await here.pilot.press("enter")
        await until(lambda: here.toasts() == ["second is served"])
        assert not isinstance(here.console.screen, Form)
        await until(lambda: here.console.main.trail.here.key == "second")


async def test_a_page_is_left_before_its_answer_has_come(tmp_path: Path) -> None:
    async with far(tmp_path) as here:
        await here.pilot.press("2")
        await here.sees("qwen2.5-7b")
        here.line.hold()
        await here.pilot.press("e")
        assert isinstance(here.console.main.view, ExplainPage)
        await here.pilot.press("escape", "4")
        assert here.console.main.trail.here.view == "nodes"
        here.line.release()
        await here.pilot.press("2", "e")
        await here.sees("goes to gpu02")
