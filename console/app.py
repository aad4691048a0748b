"""The application: who talks to whom. The feed writes into the store, once a frame the screen gets what changed.

Keys never wait for the network: every call runs in a worker and its outcome is a sentence.
"""

import asyncio
import signal
import time
from collections.abc import Callable, Sequence
from enum import Enum
from typing import ClassVar

from rich.console import RenderableType
from textual import events
from textual._compositor import ChopsUpdate
from textual.app import App
from textual.binding import Binding, BindingType
from textual.filter import ANSIToTruecolor, LineFilter
from textual.message import Message
from textual.screen import Screen
from textual.timer import Timer

from console import themes
from console.actions.handler import Handler
from console.actions.handlers import HANDLERS
from console.client.access import Accesses
from console.client.api import Admin
from console.client.feed import Feed
from console.client.past import fetch_past
from console.contexts import Contexts
from console.frugal import FrugalUpdate
from console.looking import Looking
from console.performing import perform, run_line
from console.places import Place, Subject
from console.screens.dialog import Question
from console.screens.main import MainScreen
from console.signs import ASCII, UNICODE, use_signs
from console.state.store import Link, Store, Update
from console.surroundings import shell_waits
from console.sweeping import Sweeper
from console.text import plain
from console.widgets.columns import Seen
from llmgw.api.targets import ServerTarget

FRAME_S = 0.1
"""Shortest time between two updates of the screen; the server sends no more often either."""
FIGURES_S = 1.0
"""Time between two updates when nothing but figures change: nobody reads ten a second, and a slow line carries few."""
TICK_S = 1.0
"""How often ages and the clock are read again."""
TOAST_S = 6.0
TOAST_ERROR_S = 12.0


class Ending(Enum):
    """How the console was left."""

    LEFT = "left"
    """What runs goes on."""
    STOP = "stop"
    """The demo is to be stopped."""
    ENDED = "ended"
    """SIGTERM asked for it; what was started for this console alone is to end with it."""


class Console(App[Ending]):
    """The console of one cluster at a time."""

    CSS_PATH: ClassVar[list[str]] = [  # type: ignore[assignment]
        "styles/tones.tcss",
        "styles/frame.tcss",
        "styles/views.tcss",
        "styles/forms.tcss",
        "styles/gpus.tcss",
        "styles/monitor.tcss",
    ]
    ENABLE_COMMAND_PALETTE = False
    TITLE = "llmgw"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+c,ctrl+q", "ask_to_quit", "quit", show=False, priority=True),
        Binding("ctrl+z", "put_aside", "to the shell", show=False, priority=True),
    ]
    VERTICAL_BREAKPOINTS = [(0, "-short"), (30, "-high")]  # noqa: RUF012
    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (100, "-wide")]  # noqa: RUF012

    class Changed(Message):
        """One frame's worth of change."""

        def __init__(self, update: Update) -> None:
            super().__init__()
            self.update = update

    def __init__(
        self,
        target: ServerTarget,
        *,
        theme: str = "dark",
        ascii_only: bool = False,
        read_only: bool = False,
        demo: bool = False,
        start: str = "overview",
        store: Store | None = None,
        follow: bool = True,
        clock: Callable[[], float] = time.time,
    ) -> None:
        use_signs(ASCII if ascii_only else UNICODE)
        super().__init__()
        self.clock = clock
        self.contexts = Contexts(target)
        self.admin = Admin(target)
        self.accesses = Accesses()
        self.store = store or Store()
        self._follow = follow
        self._demo = demo
        self._held_read_only = read_only
        self._chosen_read_only: bool | None = True if read_only else None
        self._frame_timer: Timer | None = None
        self._frame_wait_s = FRAME_S
        self._past_due = False
        self._looking = Looking(self)
        self._sweeper = Sweeper(now=time.monotonic())
        for known in themes.THEMES:
            self.register_theme(known)
        self.set_look(theme)
        self.set_class(ascii_only, "-ascii")
        self.main = MainScreen(self, Place(view=start))

    # -- life

    def on_mount(self) -> None:
        """The screen first, then the network."""
        self.push_screen(self.main)
        self.set_interval(TICK_S, self._tick)
        loop = asyncio.get_running_loop()
        if hasattr(signal, "SIGHUP") and not self.is_headless:
            # The terminal has gone: nothing is left to draw on, and nothing to save.
            loop.add_signal_handler(signal.SIGHUP, self.exit, Ending.LEFT)
            loop.add_signal_handler(signal.SIGTERM, self.exit, Ending.ENDED)
        if not self.is_headless:
            self._sweeper.start()
        if self._follow:
            self.call_after_refresh(self.follow)

    def follow(self) -> None:
        """Keep to the feed of the cluster that is chosen."""
        self._past_due = True
        feed = Feed(self.admin.target, self.store, woken=self._woken, clock=self.clock)
        self.run_worker(feed.run(), group="feed", exclusive=True, name="feed")

    def on_unmount(self) -> None:
        """No further calls."""
        self.admin.close()
        self._sweeper.stop()

    def change_cluster(self, target: ServerTarget) -> None:
        """Leave this cluster for another; nothing of the old one stays on the screen."""
        self.admin.close()
        self.contexts.target = target
        self.admin = Admin(target)
        self.store = Store()
        self._chosen_read_only = True if self._held_read_only else None
        if self._follow:
            self.follow()
        self.main.restart(Place(view="overview"))

    # -- from the feed to the screen

    def _woken(self) -> None:
        wait_s = FRAME_S if self.store.pressing else FIGURES_S
        if self._frame_timer is None or wait_s < self._frame_wait_s:
            if self._frame_timer is not None:
                self._frame_timer.stop()
            self._frame_timer, self._frame_wait_s = self.set_timer(wait_s, self._frame), wait_s

    def _frame(self) -> None:
        self._frame_timer = None
        update = self.store.take()
        if update is not None:
            self.post_message(self.Changed(update))

    def on_console_changed(self, event: Changed) -> None:
        """One frame."""
        self.set_class(event.update.link.state == "lost", "-stale")
        self.main.update_view(event.update, self.seen())
        self.call_after_refresh(self._sweeper.after_frame)
        if self._past_due and event.update.state.heard:
            self._past_due = False
            self.run_worker(fetch_past(self.admin, self.store), group="past", exclusive=True)

    def get_line_filters(self) -> Sequence[LineFilter]:
        """Without what looks for colours of the terminal's, of which a theme has none: a twentieth of a frame."""
        return [filter_ for filter_ in super().get_line_filters() if type(filter_) is not ANSIToTruecolor]

    def _display(self, screen: Screen[object], renderable: RenderableType | None) -> None:
        """Write to the terminal what changed, and no more."""
        if type(renderable) is ChopsUpdate:
            renderable = FrugalUpdate(renderable.chops, renderable.spans, renderable.chop_ends)
        super()._display(screen, renderable)

    def _tick(self) -> None:
        self.main.tick(self.seen())
        self._looking.tick()
        self.call_after_refresh(lambda: self._sweeper.tick(now=time.monotonic()))

    async def on_event(self, event: events.Event) -> None:
        """Who presses a key or moves the mouse is looking."""
        if isinstance(event, events.InputEvent):
            self._looking.touched()
            self._sweeper.touched(now=time.monotonic())
        await super().on_event(event)

    # -- what views may ask

    @property
    def link(self) -> Link:
        """How the feed is."""
        return self.store.link

    @property
    def where(self) -> str:
        """The server."""
        return str(self.admin.target)

    @property
    def context(self) -> str:
        """What the header calls the cluster."""
        return self.contexts.name

    def context_names(self) -> list[str]:
        """Clusters one has a name for."""
        return self.contexts.names()

    @property
    def read_only(self) -> bool:
        """Whether what changes something is absent: as chosen, and by default for viewers."""
        if self._chosen_read_only is not None:
            return self._chosen_read_only
        return self.store.state.role == "viewer"

    @property
    def held_read_only(self) -> str:
        """Why nothing can be changed from here, whatever is pressed; empty where that can be turned off."""
        if self._held_read_only:
            return "started with --read-only: nothing can be changed from here"
        return "your role here is viewer: nothing can be changed from here" if self.store.state.role == "viewer" else ""

    def seen(self) -> Seen:
        """The state as it is."""
        state = self.store.state
        return Seen(state=state, history=self.store.history, now=state.now(self.clock()))

    def go(self, place: Place, *, filter_: str = "") -> None:
        """Show another place, filtered."""
        self.main.go(place, filter_=filter_)

    def back(self) -> None:
        """Show the place before."""
        self.main.back()

    def refresh_frame(self) -> None:
        """What can be done here and now may have changed."""
        self.main.refresh_frame()

    def toast(self, sentence: str, *, error: bool = False) -> None:
        """Say a sentence at the edge of the screen, in place of the one before about the same thing."""
        about = _about(plain(sentence, 600))
        before = [note for note in self._notifications if note.severity != "error"]
        for note in before:
            if _about(note.message) == about:
                self._unnotify(note, refresh=False)
        timeout = TOAST_ERROR_S if error else TOAST_S
        self.notify(plain(sentence, 600), severity="error" if error else "information", timeout=timeout, markup=False)

    def perform(self, handler: Handler, subjects: tuple[Subject, ...], arguments: tuple[str, ...] = ()) -> None:
        """Do what an action does, asking first where it is dangerous."""
        perform(self, handler, subjects, arguments)

    def run_command(self, command_id: str, subject: Subject) -> None:
        """Do what a command does, for one subject."""
        if command_id == "open" and self.main.view is not None:
            self.main.view.open_subject(subject)
        for handler in HANDLERS:
            if handler.id == command_id or (handler.action_id == command_id and subject.target in handler.about):
                self.perform(handler, (subject,))
                return

    def run_line(self, text: str) -> None:
        """Do what a `:` line says."""
        run_line(self, text)

    # -- the console itself

    def set_look(self, name: str) -> bool:
        """Another theme; whether there is one of that name."""
        known = themes.NAMES.get(name)
        if known is None:
            return False
        self.theme = known
        self.set_class(known == themes.SIXTEEN, "-sixteen")
        return True

    def toggle_read_only(self) -> None:
        """Read-only on or off; viewers and `--read-only` have no off."""
        if self.held_read_only:
            self.toast(self.held_read_only)
        else:
            self._chosen_read_only = not self.read_only
            self.toast("read-only: actions that change something are gone" if self.read_only else "read-only is off")
        self.refresh_frame()

    def action_ask_to_quit(self) -> None:
        """Ctrl+c, and ctrl+q, which the framework would have end the console without a word."""
        self.ask_to_quit()

    def action_put_aside(self) -> None:
        """Ctrl+z: the shell comes back, and its `fg` brings the console back, which reconnects by itself."""
        if self.is_headless or not shell_waits():
            self.toast("no shell here could bring the console back; q leaves, and what runs goes on")
        else:
            self.action_suspend_process()

    def ask_to_quit(self) -> None:
        """Leave; the demo is asked about."""
        if not self._demo or len(self.screen_stack) > 2:
            self.exit(Ending.LEFT)
            return

        def answered(choice: str | None) -> None:
            if choice == "leave":
                self.exit(Ending.LEFT)
            elif choice == "stop":
                self.exit(Ending.STOP)

        lines = [[("The demo goes on without the console: its models keep answering.", "")]]
        choices = [("stay", "Stay"), ("leave", "Leave it running"), ("stop", "Stop the demo")]
        self.push_screen(Question("Quit", lines, choices), answered)


def _about(sentence: str) -> str:
    """What a sentence is about: the name it begins with."""
    return sentence.partition(" ")[0].rstrip(":;,")
