"""Where one is, and the way there: places are values, and the history of them moves like a browser's."""

from dataclasses import dataclass, field, replace

from llmgw.api.actions import Target

MAX_PLACES = 100
"""Places remembered; nobody goes back further."""


@dataclass(frozen=True, kw_only=True)
class Subject:
    """What an action is about: a row of a topic."""

    target: Target
    key: str


@dataclass(frozen=True, kw_only=True)
class Place:
    """A view, and what it is about when it is about something."""

    view: str
    """Name in the registry of views."""
    subject: Subject | None = None
    row: str = field(default="", compare=False)
    """Row of its table on which the cursor begins; the place is the same whichever it is."""
    filter: str = field(default="", compare=False)
    """What its table is filtered by at first; the place is the same whatever it is."""
    turned: tuple[str, ...] = field(default=(), compare=False)
    """What keys of its view have turned it to, such as a span of time; the place is the same whatever that is."""

    @property
    def key(self) -> str:
        """Key of what it is about."""
        return self.subject.key if self.subject else ""


@dataclass(frozen=True, kw_only=True)
class Trail:
    """The history: `here` and what is before and after it."""

    here: Place
    before: tuple[Place, ...] = ()
    after: tuple[Place, ...] = field(default=())

    def go(self, place: Place) -> "Trail":
        """To a place; what was after is forgotten. Going where one is changes nothing."""
        if place == self.here:
            return self
        return Trail(here=place, before=(*self.before, self.here)[-MAX_PLACES:])

    def leaving(self, *, row: str, filter_: str, turned: tuple[str, ...]) -> "Trail":
        """The same, with `here` as it is left: who comes back finds it so."""
        return replace(self, here=replace(self.here, row=row, filter=filter_, turned=turned))

    def back(self) -> "Trail":
        """To the place before, if there is one."""
        if not self.before:
            return self
        return Trail(here=self.before[-1], before=self.before[:-1], after=(self.here, *self.after))

    def forward(self) -> "Trail":
        """To the place one came back from, if there is one."""
        if not self.after:
            return self
        return Trail(here=self.after[0], before=(*self.before, self.here), after=self.after[1:])
