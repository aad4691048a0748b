"""Try a model: ask it something and watch the answer come, with the figures that a client would see.

One answer at a time. Leaving the page or pressing esc closes the stream, which frees the engine's slot; a temporary key
is revoked when the page goes.
"""

import asyncio
import contextlib
import time
from typing import ClassVar

from textual import events
from textual.app import ComposeResult
from textual.containers import Horizontal
from textual.timer import Timer
from textual.widgets import Input

from console.client.access import Access
from console.client.inference import ask
from console.commands import Command
from console.places import Place
from console.screens.exchange import exchange_lines, figures_line
from console.screens.view import View, title, waiting_lines
from console.screens.way_in import WayIn
from console.signs import signs
from console.state.diff import Diff
from console.state.trial import Conversation, Exchange
from console.widgets.columns import Seen
from console.widgets.lines import MAX_LINES, Line, Lines
from console.widgets.text_block import TextBlock
from console.widgets.titles import set_title
from llmgw.api.problems import ClientError
from llmgw.api.watch import ModelRow

PAINT_S = 0.1
"""Text that comes within this time is drawn together."""
MAX_QUESTION_CHARS = 100_000


class Asking(Input):
    """The line one types in. A pasted text keeps all its lines, as one."""

    def _on_paste(self, event: events.Paste) -> None:
        event.stop()
        event.prevent_default()
        self.insert_text_at_cursor(" ".join(event.text.split("\n")).replace("\r", ""))


class Playground(View):
    """A conversation with one model."""

    NOUN: ClassVar[str] = "try"

    def __init__(self, place: Place) -> None:
        super().__init__(place)
        self.talk = Conversation()
        self.lines = Lines(follow=True)
        self.way = WayIn(self, self._say_access)
        self._line = TextBlock([[]], id="try-line")
        self._input = Asking(placeholder="say something", max_length=MAX_QUESTION_CHARS, id="try-input")
        self._settled = 0
        """Lines of exchanges that do not change any more."""
        self._painting: Timer | None = None

    def compose(self) -> ComposeResult:
        self.lines.add_class("panel")
        yield self.lines
        yield self._line
        with Horizontal(id="try-ask"):
            yield TextBlock([[(f"{signs().cursor} ", "accent")]], id="try-mark")
            yield self._input

    # -- life

    def on_mount(self) -> None:
        """Nothing runs yet."""
        self.way.begin()
        self._painting = self.set_interval(PAINT_S, self._paint, pause=True)

    def show(self, seen: Seen) -> None:
        """Look for a key, once the cluster has said where its models are asked."""
        self.update(seen, None)

    def update(self, seen: Seen, diff: Diff | None) -> None:
        """The model's state; what was said stays."""
        self.way.find()
        if diff is None or diff.touches("models", "cluster"):
            self._say_title()
            self._say_line()

    def on_unmount(self) -> None:
        """Nobody reads any more."""
        self.workers.cancel_node(self)
        self.way.close()

    @property
    def access(self) -> Access | None:
        """With what models are asked; none while there is no key."""
        return self.way.access

    def _say_access(self) -> None:
        self._say_title()
        self._say_line()

    # -- asking

    def send(self) -> None:
        """Ask what is typed."""
        question = self._input.value.strip()
        if not question or self.running:
            return
        if self.access is None:
            self.way.offer()
            return
        self._input.value = ""
        if self._settled > MAX_LINES // 2:
            self.lines.set_lines([[("what was said before is not shown any more", "dim")], []])
            self._settled = self.lines.count
        exchange = self.talk.begin(question, time.monotonic())
        if self._painting is not None:
            self._painting.resume()
        self.lines.set_following(True)
        self.run_worker(self._ask(exchange, self.access), group="ask", exclusive=True)
        self._paint()
        self.desk.refresh_frame()

    async def _ask(self, exchange: Exchange, access: Access) -> None:
        try:
            async with contextlib.aclosing(ask(access.url, access.key, self.place.key, self.talk.turns())) as items:
                async for item in items:
                    exchange.hear(item, time.monotonic())
                    if exchange.full:
                        exchange.problem = f"ended after {exchange.answer.chars:,} characters: the page keeps no more"
                        break
        except ClientError as error:
            exchange.problem = error.message
        except asyncio.CancelledError:
            exchange.broken_off = True
            raise
        finally:
            if self.is_attached:
                self._finish(exchange)

    def _finish(self, exchange: Exchange) -> None:
        if self._painting is not None:
            self._painting.pause()
        self._paint()
        self._settled = self.lines.count
        if exchange.problem and not str(exchange.answer) and not self._input.value:
            # To be asked again without typing it again.
            self._input.value = exchange.question
            self._input.cursor_position = len(exchange.question)
        self.desk.refresh_frame()

    def end(self) -> None:
        """End the answer that is coming; its slot is free at once."""
        self.workers.cancel_group(self, "ask")

    def anew(self) -> None:
        """Forget what was said."""
        self.end()
        self.talk = Conversation()
        self._settled = 0
        self.lines.set_lines([])
        self._say_line()
        self.focus_keys()

    @property
    def running(self) -> bool:
        """Whether an answer is coming."""
        return self.talk.last is not None and self.talk.last.running

    # -- drawing

    def _paint(self) -> None:
        last = self.talk.last
        if last is not None:
            self.lines.replace_tail(self._settled, exchange_lines(last))
        self._say_line()

    def _say_line(self) -> None:
        last = self.talk.last
        if self.way.asked and self.access is None:
            line: Line = [("no key: ", "warn"), ("^o", "key"), (" gives one", "dim")]
        elif last is None:
            line = self._state_line() or [
                ("enter asks it: the answer comes with its first-token time and speed", "dim")
            ]
        elif last.running:
            line = figures_line(last, time.monotonic())
        else:
            line = self._state_line() or [
                ("the model has what was said before; ", "dim"),
                ("^n", "key"),
                (" forgets it", "dim"),
            ]
        self._line.set_lines([line])

    def _model(self) -> ModelRow | None:
        return self.desk.seen().state.models.get(self.place.key)

    def _state_line(self) -> Line:
        seen, model = self.desk.seen(), self._model()
        if not seen.state.heard:
            return waiting_lines(self.desk)[0]
        if model is None:
            return [(f"{self.place.key} is not there any more", "bad")]
        if not model.ready:
            return [(f"{model.name} is {model.state}: nothing answers yet", "warn")]
        return []

    def _say_title(self) -> None:
        model, access = self._model(), self.access
        facts = [(self.place.key, "bold")]
        if model is not None:
            facts.append((f"{model.ready} of {model.wanted} ready", "" if model.ready else "$warning"))
            facts.append((f"{model.context_length:,} tokens" if model.context_length else "", "$tone-dim"))
        if access is not None:
            facts += [(access.note, "$tone-dim"), (access.url, "$tone-dim")]
        set_title(self.lines, title(self.NOUN, *facts))

    # -- keys

    @property
    def typing(self) -> bool:
        """Whether letters go into the line."""
        return self._input.has_focus

    def commands(self) -> list[Command]:
        """Asking, ending, reading."""

        def command(id_: str, label: str, key: str, run: object, footer: int) -> Command:
            return Command(id=id_, label=label, key=key, group=self.NOUN, footer=footer, run=run)  # type: ignore[arg-type]

        first = (
            command("end", "end the answer", "escape", self.end, 99)
            if self.running
            else command("send", "send", "enter", self.send if self.typing else self.focus_keys, 99)
        )
        aside = (
            command("read", "read", "tab", self.lines.focus, 95)
            if self.typing
            else command("type", "type", "tab", self.focus_keys, 95)
        )
        return [
            first,
            aside,
            command("anew", "new conversation", "ctrl+n", self.anew, 94),
            command("key", "key and address", "ctrl+o", self.way.open_form, 93),
        ]

    def focus_keys(self) -> None:
        """The line has the keys."""
        self.give_keys(self._input)

    def on_descendant_focus(self) -> None:
        """Letters mean something else."""
        self.desk.refresh_frame()

    def filter_text(self) -> str:
        """What is searched for."""
        return self.lines.search

    def set_filter(self, text: str) -> bool:
        """Search what was said."""
        self.lines.set_search(text)
        return True

    def escape(self) -> bool:
        """The answer, the search, what is typed; then the page."""
        if self.running:
            self.end()
            return True
        if self.lines.search:
            return self.set_filter("")
        if self.typing and self._input.value:
            self._input.value = ""
            return True
        return False

    def copy_text(self) -> str:
        """The last answer."""
        return str(self.talk.last.answer) if self.talk.last else ""
