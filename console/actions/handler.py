"""What the console does of one of the registry's actions, and whether someone may, here and now.

A handler does one of three things: `do` calls the API in a thread and returns the sentence to show, `opens` names a
place to go to, `form` names a screen that asks for what is missing.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from console.places import Place, Subject
from console.state.cluster import ClusterState
from llmgw.api.actions import Action, Permission, Target, action

if TYPE_CHECKING:
    from llmgw.api.client import AdminClient

Keys = tuple[str, ...]


def always(_: ClusterState, __: Subject) -> bool:
    """A condition that nothing stands against."""
    return True


@dataclass(frozen=True, kw_only=True)
class Handler:
    """One action on the screen."""

    action_id: str
    variant: str = ""
    """Tells handlers of the same action apart."""
    name: str = ""
    """Label in place of the registry's."""
    help: str = ""
    """Line of help in place of the registry's."""
    bound: str | None = None
    """Key in place of the registry's; empty for none."""
    targets: tuple[Target, ...] = ()
    """What it can be about, the registry's target by default; the cluster needs nothing under the cursor."""
    views: tuple[str, ...] = ()
    """Views in which its key works, all by default; the palette has it everywhere."""
    when: Callable[[ClusterState, Subject], bool] = always
    """Whether it makes sense for a subject as it is."""
    do: "Callable[[AdminClient, str], str] | None" = None
    """Called with the subject's key, in a thread; returns a sentence, raises ClientError."""
    opens: Callable[[ClusterState, Subject], Place | None] | None = None
    form: str = ""
    """`module:Class` of a screen taking (subjects, arguments)."""
    warn: Callable[[ClusterState, Keys], str] | None = None
    """What a dangerous one will do, in figures."""
    look: "Callable[[AdminClient, Keys], str] | None" = None
    """More of that, asked for in a thread while the question stands there."""
    typed: bool = True
    """Whether what cannot be undone is asked for by its name, and not by a choice."""
    footer: int = 0

    @property
    def action(self) -> Action:
        """The registry's entry."""
        return action(self.action_id)

    @property
    def id(self) -> str:
        """Unique among handlers."""
        return f"{self.action_id}.{self.variant}" if self.variant else self.action_id

    @property
    def label(self) -> str:
        """Words of the footer and the palette."""
        return self.name or self.action.label

    @property
    def key(self) -> str:
        """Its key, if it has one."""
        return self.action.key if self.bound is None else self.bound

    @property
    def about(self) -> tuple[Target, ...]:
        """What it can be about."""
        return self.targets or (self.action.target,)

    @property
    def changes(self) -> bool:
        """Whether it changes anything; in read-only mode it is then absent."""
        return self.action.method != "GET"


def allowed(handler: Handler, *, role: str, read_only: bool) -> bool:
    """Whether someone of `role` may use it; what changes something is absent in read-only mode."""
    if read_only and handler.changes:
        return False
    return permission_of(role) >= handler.action.permission


def permission_of(role: str) -> Permission:
    """What a role of the feed may do; one that this version does not know may look."""
    try:
        return Permission[role.upper()]
    except KeyError:
        return Permission.VIEWER


def possible(handlers: tuple[Handler, ...], state: ClusterState, subjects: tuple[Subject, ...]) -> list[Handler]:
    """Handlers that make sense for every one of `subjects`, and those that need none."""
    return [handler for handler in handlers if Target.CLUSTER in handler.about or _fits(handler, state, subjects)]


def _fits(handler: Handler, state: ClusterState, subjects: tuple[Subject, ...]) -> bool:
    # A page and a form are about one thing; a call can be made for each of several.
    if not subjects or (len(subjects) > 1 and handler.do is None):
        return False
    return all(subject.target in handler.about and handler.when(state, subject) for subject in subjects)
