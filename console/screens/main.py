"""The one screen: header, tabs, the view in front, the prompt, the footer. Knows where one is and gives keys their way.

A key goes to the focused widget's own text first, then to the list of commands, then to the widget's bindings. Keys
that were typed ahead wait until the view is there that they are for: a burst means what its keys mean one by one.
"""

import asyncio
import contextlib
from typing import TYPE_CHECKING, cast

from textual import events
from textual.app import ComposeResult
from textual.containers import Container
from textual.screen import Screen
from textual.widgets import Input
from textual.worker import Worker, WorkerError, WorkerState

from console import keys, lines
from console.commands import Command, by_key
from console.places import Place, Subject, Trail
from console.screens.registry import VIEWS, tabs_for, view_named
from console.screens.view import View
from console.state.names import called
from console.state.store import Update
from console.surroundings import hindrance
from console.widgets.columns import Seen
from console.widgets.footer import Footer
from console.widgets.header import Header, HeaderFacts
from console.widgets.prompt import Prompt
from console.widgets.tabs import Tabs

if TYPE_CHECKING:
    from console.app import Console


class MainScreen(Screen[None]):
    """The frame and what is in it."""

    AUTO_FOCUS = None

    def __init__(self, console: "Console", start: Place) -> None:
        super().__init__()
        self.host = console
        self.trail = Trail(here=start)
        self.view: View | None = None
        self.header = Header()
        self.tabs = Tabs()
        self.footer = Footer()
        self.prompt = Prompt(self, lambda text: lines.candidates(text, console.store.state, console.context_names()))
        self._body = Container(id="body")
        self._kept: dict[str, View] = {}
        self._tab = start.view
        self._commands: list[Command] | None = None
        self._journey: Worker[None] | None = None
        """The way to another place, while one is under way."""

    def compose(self) -> ComposeResult:
        yield self.header
        yield self.tabs
        yield self._body
        yield self.prompt
        yield self.footer

    async def on_mount(self) -> None:
        """The first view."""
        await self.bring(self.trail.here)

    # -- places

    async def bring(self, place: Place) -> None:
        """Put a place's view in front."""
        spec = view_named(place.view)
        if spec is None:
            return
        old = self.view
        view = self._kept.get(place.view) if spec.digit else None
        if view is None:
            view = spec.view_class()(place)
            if spec.digit:
                self._kept[place.view] = view
            await self._body.mount(view)
        if old is not None and old is not view:
            old.display = False
            if old.place.view not in self._kept:
                await old.remove()
        if not view.is_attached:
            # The console was left meanwhile.
            return
        view.display = True
        self.view = view
        if spec.digit:
            self._tab = place.view
        view.show(self.host.seen())
        view.focus_keys()
        self.refresh_frame()

    def restart(self, place: Place) -> None:
        """Begin again at `place`: the way here leads nowhere any more."""
        self.prompt.close(kept=True)
        self.trail = Trail(here=place)
        self._journey = self.run_worker(self.bring(place), exclusive=True, group="travel")

    def go(self, place: Place, *, filter_: str = "") -> None:
        """To a place, filtered."""
        self.travel(self._as_left().go(place), filter_=filter_)

    def _as_left(self) -> Trail:
        """The history, with the place one is at as it is left."""
        if self.view is None or self.view.place != self.trail.here:
            return self.trail
        view = self.view
        return self.trail.leaving(row=view.cursor_row(), filter_=view.filter_text(), turned=view.turned())

    def travel(self, trail: Trail, *, filter_: str = "") -> None:
        """Go along the history. What is typed from here on is for the view that comes."""
        self._journey = self.run_worker(self._travel(trail, filter_), exclusive=True, group="travel")

    async def _travel(self, trail: Trail, filter_: str) -> None:
        if trail != self.trail:
            self.prompt.close(kept=True)
            self.trail = trail
            await self.bring(trail.here)
        if filter_ and self.view is not None:
            self.view.set_filter(filter_)
            self.refresh_frame()

    async def _arrival(self) -> None:
        """Be where one is going: the view in front is the one that was asked for last."""
        while (journey := self._journey) is not None:
            if journey.state is WorkerState.PENDING and not journey.is_cancelled:
                # It begins with the loop's next turn.
                await asyncio.sleep(0)
                continue
            # A move that was overtaken by another has nothing to tell; the other is waited for in its place.
            with contextlib.suppress(WorkerError):
                await journey.wait()
            if self._journey is journey:
                self._journey = None

    def subjects(self) -> tuple[Subject, ...]:
        """What actions are about."""
        return self.view.subjects() if self.view is not None else ()

    # -- what changed

    def update_view(self, update: Update, seen: Seen) -> None:
        """One frame's change, for the view in front."""
        if self.view is not None and self.view.is_mounted:
            self.view.update(seen, update.diff)
        self.refresh_frame()

    def tick(self, seen: Seen) -> None:
        """A second has passed."""
        if self.view is not None and self.view.is_mounted:
            self.view.tick(seen)
        self.refresh_header()

    def refresh_header(self) -> None:
        """The first line."""
        console = self.host
        self.header.set_facts(
            HeaderFacts(
                context=console.context,
                state=console.store.state,
                link=console.store.link,
                read_only=console.read_only and console.store.state.heard,
                now=console.clock(),
            )
        )

    def refresh_frame(self) -> None:
        """Header, tabs and footer; what can be done is listed anew when next asked for."""
        self._commands = None
        self.refresh_header()
        here = self.trail.here
        spec = view_named(here.view)
        subject = here.subject
        name = called(self.host.store.state, subject.target, subject.key) if subject is not None else ""
        crumb = f"{spec.title.lower()} {name}" if spec is not None and not spec.digit else ""
        self.tabs.set_tabs(tabs_for(self.host.store.state.role))
        self.tabs.set_here(self._tab, crumb.strip())
        self.footer.set_commands(self.commands())

    def commands(self) -> list[Command]:
        """Everything that can be done here and now."""
        if self._commands is None:
            self._commands = keys.commands(self.host)
        return self._commands

    # -- keys

    async def on_key(self, event: events.Key) -> None:
        """A command's key runs it."""
        await self._arrival()
        if self.prompt.is_open:
            if self.prompt.take(event):
                event.stop()
                event.prevent_default()
            return
        if self.app.screen is not self:
            # Typed ahead of a form or a question that has opened since: it is that one's.
            event.stop()
            self.app.post_message(events.Key(event.key, event.character))
            return
        if isinstance(self.focused, Input) and event.is_printable and event.character:
            # Typed before the line had the keys, else the line would have taken it.
            event.stop()
            self.focused.insert_text_at_cursor(event.character)
            return
        key = event.character if event.is_printable and event.character else event.key
        # Listed anew: what the key before this one moved or marked is not told yet.
        command = by_key(keys.commands(self.host), key)
        if command is not None:
            event.stop()
            event.prevent_default()
            command.run()
        else:
            await self._run_binding(event)

    async def _run_binding(self, event: events.Key) -> None:
        """What the focused widget does with the key: here and not after, so that the next key finds it done."""
        active = self.active_bindings.get(event.key)
        if active is not None and active.enabled:
            event.stop()
            event.prevent_default()
            await self.app.run_action(active.binding.action, active.node)

    def on_tabs_chosen(self, event: Tabs.Chosen) -> None:
        """A tab was clicked."""
        self.host.go(Place(view=event.name))

    def prompt_typed(self, text: str) -> None:
        """The filter, letter by letter."""
        if self.view is not None:
            self.view.set_filter(text)

    def prompt_closed(self, mark: str, *, kept: bool) -> None:
        """The keys go back to the view; a filter left by esc is dropped."""
        if self.view is None:
            return
        if mark == "/" and not kept:
            self.view.set_filter("")
        self.view.focus_keys()
        self.refresh_frame()

    def prompt_entered(self, text: str) -> None:
        """A command line."""
        if text:
            self.host.run_line(text)

    # -- the frame's own commands

    def open_filter(self) -> None:
        """`/`."""
        if self.view is not None and self.view.set_filter(self.view.filter_text()):
            self.prompt.open("/", self.view.filter_text())

    def open_line(self) -> None:
        """`:`."""
        self.prompt.open(":", "")

    def open_monitor_line(self) -> None:
        """`:monitor `, with names to complete."""
        self.prompt.open(":", "monitor ")

    def open_yaml(self) -> None:
        """What the cursor is on, as YAML."""
        found = self.view.document(self.host.store.state) if self.view is not None else None
        if found is None:
            self.host.toast("nothing under the cursor to show as YAML")
        else:
            self.host.go(Place(view="yaml", subject=found[0]))

    def copy(self) -> None:
        """To the clipboard."""
        text = self.view.copy_text() if self.view is not None else ""
        if text:
            self.app.copy_to_clipboard(text)
            lines_ = text.count("\n") + 1
            self.host.toast((f"copied {text}" if lines_ == 1 else f"copied {lines_:,} lines") + hindrance())

    def escape(self) -> None:
        """The innermost thing first, then the place before; a tab is where it ends."""
        if self.view is None or self.view.escape():
            self.refresh_frame()
            return
        spec = view_named(self.trail.here.view)
        if spec is not None and not spec.digit:
            self.back()

    def back(self) -> None:
        """`[`."""
        self.travel(self._as_left().back())

    def forward(self) -> None:
        """`]`."""
        self.travel(self._as_left().forward())

    def open_palette(self) -> None:
        """Every command, by name."""
        from console.screens.palette import Palette

        def chosen(command_id: str | None) -> None:
            command = next((c for c in self.commands() if c.id == command_id), None)
            if command is not None:
                command.run()

        self.app.push_screen(Palette(self.commands()), chosen)

    def open_help(self) -> None:
        """Keys of the view in front."""
        from console.screens.help import Help

        spec = next((view for view in VIEWS if view.name == self.trail.here.view), None)
        self.app.push_screen(Help(spec.title if spec else "", self.commands(), self.focused))

    def toggle_read_only(self) -> None:
        """`ctrl+r`."""
        self.host.toggle_read_only()

    def put_aside(self) -> None:
        """`ctrl+z`."""
        self.host.action_put_aside()

    def quit(self) -> None:
        """`q`."""
        self.host.ask_to_quit()


def main_screen(screen: Screen[None]) -> MainScreen:
    """The frame a widget is in."""
    return cast("MainScreen", screen)
