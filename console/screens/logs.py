"""The log of a replica's engine, a node's agent or the server: the last lines, then those that come.

Lines are shown as bytes said them, made harmless; what is older than the widget keeps is gone, and the title says so.
"""

import asyncio
from typing import ClassVar

from textual.app import ComposeResult

from console.commands import Command
from console.figures import plural
from console.places import Place, Subject
from console.screens.text_page import TextPage
from console.signs import signs
from console.widgets.columns import Seen
from console.widgets.lines import MAX_LINE_CHARS, Line
from console.widgets.text_block import TextBlock
from llmgw.api.actions import Target
from llmgw.api.problems import ClientError

TAIL_LINES = 2000
"""Lines asked for at first."""
BATCH_S = 0.1
"""Lines that come within this time are drawn together."""
RETRY_S = 2.0
"""Wait before a log that broke off is followed again."""
MAX_BATCH = 2000

_BAD = ("error", "fatal", "exception", "traceback", "panic", "failed")
_WARN = ("warn",)


class LogsPage(TextPage):
    """Follows until it is told not to."""

    NOUN: ClassVar[str] = "logs"
    FOLLOW: ClassVar[bool] = True

    def __init__(self, place: Place) -> None:
        super().__init__(place)
        self._state = ""
        """What stands against following."""
        self._told = TextBlock(wrapped=True, id="log-state")
        """That, whole: without a line it is all there is to read."""

    def compose(self) -> ComposeResult:
        yield from super().compose()
        yield self._told

    def show(self, seen: Seen) -> None:
        """Begin."""
        self._say(f"asking{signs().ellipsis}")
        self.say_title()
        self.run_worker(self._run(), exclusive=True, group="log")

    def subjects(self) -> tuple[Subject, ...]:
        """The replica or the node; the server is nothing that anything could be done to."""
        return tuple(subject for subject in super().subjects() if subject.target != Target.CLUSTER)

    def commands(self) -> list[Command]:
        """Following."""
        label = "stop following" if self.lines.following else "follow"
        follow = Command(
            id="follow",
            label=label,
            key="f",
            group=self.NOUN,
            footer=88,
            run=lambda: self.lines.set_following(not self.lines.following),
        )
        clear = Command(
            id="clear", label="clear", key="z", group=self.NOUN, footer=30, run=lambda: self.lines.set_lines([])
        )
        return [follow, *super().commands(), clear]

    def title_facts(self) -> list[tuple[str, str]]:
        """How it is read, and how much is there."""
        if self._state and not self.lines.count:
            # Nothing was heard: no line is not what the log holds.
            return []
        facts = [(plural(self.lines.count, "line"), "")]
        if self.lines.dropped:
            facts.append((f"{self.lines.dropped:,} older ones dropped", "$tone-dim"))
        if self._state:
            return [*facts, ("not heard", "$warning")]
        return [*facts, ("following", "$success") if self.lines.following else ("not following", "$warning")]

    async def _run(self) -> None:
        tail = TAIL_LINES
        while True:
            try:
                await self._follow(tail)
                self._say(f"the log ended; asking again every {RETRY_S:g} s")
            except ClientError as error:
                self._say(error.message)
            # Only what comes from here on is new.
            tail = 0 if self.lines.count else TAIL_LINES
            await asyncio.sleep(RETRY_S)

    async def _follow(self, tail: int) -> None:
        waiting: list[Line] = []

        async def draw() -> None:
            while True:
                await asyncio.sleep(BATCH_S)
                if waiting:
                    self.lines.add_lines(waiting)
                    waiting.clear()

        async with self.desk.admin.logs(self.place.key, tail=tail, follow=True) as lines:
            self._say("")
            drawing = asyncio.ensure_future(draw())
            try:
                async for line in lines:
                    waiting.append(log_line(line))
                    while len(waiting) >= MAX_BATCH:  # noqa: ASYNC110 - the drawing below empties it at its own pace
                        await asyncio.sleep(BATCH_S / 2)
            finally:
                drawing.cancel()
                self.lines.add_lines(waiting)

    def _say(self, text: str) -> None:
        self._state = text
        self._told.set_lines([[(text, "warn")]] if text else [])
        self.say_title()


def log_line(line: bytes) -> Line:
    """One line of a log, in the tone of its level."""
    text = line[: MAX_LINE_CHARS * 4].decode(errors="replace").rstrip("\r")
    start = text[:120].casefold()
    if any(word in start for word in _BAD):
        return [(text, "bad")]
    return [(text, "warn" if any(word in start for word in _WARN) else "")]
