"""A view: one room of the console. It is told what changed while it is shown, and told everything when it comes back.

Life of a view, in order: `__init__(place)`, `compose`, `show(seen)` each time it comes to the front, `update(seen,
diff)` at most once a frame and `tick(seen)` once a second while it is there. A view asks the console to do things and
never touches the network itself, except through `console.admin` in a worker of its own.
"""

from typing import TYPE_CHECKING, Protocol, cast

from textual.content import Content
from textual.widget import Widget

from console.commands import Command
from console.places import Place, Subject
from console.signs import signs
from console.state.cluster import ClusterState
from console.state.diff import Diff
from console.state.scopes import KINDS, scope
from console.state.store import Link
from console.text import plain
from console.widgets.columns import Seen
from console.widgets.paint import Span
from llmgw.api.actions import Target

if TYPE_CHECKING:
    from console.client.access import Accesses
    from console.client.api import Admin

PAGE_OF: dict[Target, str] = {
    Target.MODEL: "model",
    Target.REPLICA: "replica",
    Target.NODE: "node",
    Target.KEY: "key",
    Target.TEAM: "team",
    Target.TENANT: "tenant",
    Target.REQUEST: "request",
}
"""Target → the page that tells all about one of it."""


class Desk(Protocol):
    """What a view may ask of the console."""

    @property
    def admin(self) -> "Admin":
        """The admin API."""

    @property
    def accesses(self) -> "Accesses":
        """Keys of the client API that were typed."""

    @property
    def link(self) -> Link:
        """How the feed is."""

    @property
    def read_only(self) -> bool:
        """Whether what changes something is absent."""

    @property
    def where(self) -> str:
        """The server, as the user named it."""

    def seen(self) -> Seen:
        """The state as it is."""

    def go(self, place: Place, *, filter_: str = "") -> None:
        """Show another place, filtered."""

    def back(self) -> None:
        """Show the place before."""

    def toast(self, sentence: str, *, error: bool = False) -> None:
        """Say a sentence."""

    def run_command(self, command_id: str, subject: Subject) -> None:
        """Do what a command does, for one subject; nothing when it is not possible."""

    def refresh_frame(self) -> None:
        """What can be done here and now may have changed."""


class View(Widget):
    """Base of every view and page."""

    def __init__(self, place: Place) -> None:
        super().__init__(classes="view")
        self.place = place

    @property
    def desk(self) -> Desk:
        """The console."""
        return cast("Desk", self.app)

    @property
    def typing(self) -> bool:
        """Whether letters are typed into a line of the view; they are no keys then."""
        return False

    def show(self, seen: Seen) -> None:
        """Show everything as it is; called when the view comes to the front."""
        self.update(seen, None)

    def update(self, seen: Seen, diff: Diff | None) -> None:
        """Show what changed; none is everything."""

    def tick(self, seen: Seen) -> None:
        """A second has passed: ages read differently."""

    def looked_at(self) -> str:
        """Node whose figures are read closely here, so that it measures oftener; empty is none."""
        return ""

    def subjects(self) -> tuple[Subject, ...]:
        """What actions are about: the marked rows, else the row under the cursor."""
        return (self.place.subject,) if self.place.subject else ()

    def aimed(self, action_id: str) -> tuple[Subject, ...]:
        """What one action is about where that is not what the others are about; none is the same."""
        return ()

    def commands(self) -> list[Command]:
        """What only this view can do."""
        return []

    def focus_keys(self) -> None:
        """Take the keys."""

    def give_keys(self, widget: Widget) -> None:
        """A widget of the view has the keys, at once: `Widget.focus` waits its turn, a key typed ahead does not."""
        self.screen.set_focus(widget, scroll_visible=False)

    def filter_text(self) -> str:
        """What `/` holds now."""
        return ""

    def set_filter(self, text: str) -> bool:
        """Filter or search by `text`; whether this view can."""
        return False

    def escape(self) -> bool:
        """Undo the innermost thing, such as a filter; whether there was one."""
        return False

    def cursor_row(self) -> str:
        """Row on which the cursor is to be again when one comes back."""
        return ""

    def turned(self) -> tuple[str, ...]:
        """What its keys have turned it to, for when one comes back."""
        return ()

    def document(self, state: ClusterState) -> tuple[Subject, object] | None:
        """What `y` shows: a subject and its row."""
        return None

    def copy_text(self) -> str:
        """What `c` copies."""
        subjects = self.subjects()
        return "\n".join(subject.key for subject in subjects)

    def open_subject(self, subject: Subject, *, row: str = "") -> None:
        """Go to the page about `subject`, if there is one; its cursor begins on `row`."""
        page = PAGE_OF.get(subject.target)
        if page is not None:
            self.desk.go(Place(view=page, subject=subject, row=row))


def row_of(state: ClusterState, subject: Subject) -> object | None:
    """The row a subject means; none when it is gone."""
    if subject.target in KINDS:
        return scope(state, KINDS[subject.target], subject.key)
    topic = {Target.MODEL: "models", Target.REPLICA: "replicas", Target.NODE: "nodes", Target.KEY: "keys"}.get(
        subject.target, "weights" if subject.target.value == "weights" else ""
    )
    return state.rows(topic).get(subject.key) if topic else None


def waiting_lines(desk: Desk) -> list[list[Span]]:
    """What stands where data will be, before any came."""
    link = desk.link
    if link.reason:
        return [[(link.reason, "bad")], [("trying again; nothing needs to be pressed", "dim")]]
    return [[(f"asking {desk.where}{signs().ellipsis}", "dim")]]


def counted(shown: int, total: int) -> str:
    """How many rows there are, and of how many: `12`, `3 of 12`."""
    return f"{shown:,}" if shown == total else f"{shown:,} of {total:,}"


def title(text: str, *facts: tuple[str, str]) -> Content:
    """A frame's title: the name, then facts with their styles (`dim`, `$warning`), dots between."""
    parts: list[str | tuple[str, str]] = [(plain(text), "bold $primary")]
    for fact, style in facts:
        if fact:
            parts += [(f" {signs().dot} ", "$tone-dim"), (plain(fact), style)]
    return Content.assemble(*parts)
