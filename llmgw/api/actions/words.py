"""What an action is made of. Pure data, no behaviour."""

from enum import IntEnum, StrEnum

import msgspec


class Target(StrEnum):
    """What an action is about."""

    CLUSTER = "cluster"
    MODEL = "model"
    REPLICA = "replica"
    NODE = "node"
    CARD = "card"
    KEY = "key"
    SETTING = "setting"
    WEIGHTS = "weights"
    TEAM = "team"
    TENANT = "tenant"
    REQUEST = "request"


class Danger(StrEnum):
    """What a mistaken press costs; anything but none is asked about first."""

    NONE = "none"
    INTERRUPTS = "interrupts"
    """Requests in flight may end early; what was there comes back by the opposite action."""
    DESTROYS = "destroys"
    """Something is gone for good."""


class Permission(IntEnum):
    """Roles, each holding what the lower ones may do."""

    VIEWER = 1
    OPERATOR = 2
    ADMIN = 3

    @property
    def role(self) -> str:
        """The role's name: `viewer`, `operator`, `admin`."""
        return self.name.lower()


class Kind(StrEnum):
    """How an argument is written."""

    TEXT = "text"
    INTEGER = "integer"
    FLAG = "flag"
    LIST = "list"
    """`a,b`; may be given several times."""
    REPEAT = "repeat"
    """Given once for each value, commas being part of it."""
    LIMIT = "limit"
    """A whole number, or `none`."""
    MANY = "many"
    """A last positional that takes one value or more."""


class Argument(msgspec.Struct, frozen=True, kw_only=True):
    """One argument of a verb."""

    name: str
    """`source` is positional SOURCE, `--max-output` an option."""
    help: str
    kind: Kind = Kind.TEXT
    required: bool = True
    """Of positionals; options never are."""
    default: str | int | None = None
    choices: tuple[str, ...] = ()
    metavar: str | None = None

    @property
    def is_option(self) -> bool:
        """Whether it is written with dashes."""
        return self.name.startswith("--")

    @property
    def key(self) -> str:
        """Its name as an identifier: `max_output`."""
        return self.name.lstrip("-").replace("-", "_")


class View(msgspec.Struct, frozen=True, kw_only=True):
    """What a further verb of an action says of itself."""

    help: str
    arguments: tuple[Argument, ...] = ()


class Action(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that can be asked or done."""

    id: str
    """Stable name, `model.serve`; what the audit records."""
    label: str
    """Words of a menu entry."""
    target: Target
    method: str
    path: str
    """Template with `{name}` for each path parameter."""
    permission: Permission
    danger: Danger = Danger.NONE
    request: type[msgspec.Struct] | None = None
    """Body, none for requests without one."""
    response: object = None
    """Type of the answer's document; none is plain text."""
    stream: bool = False
    """The answer is lines of such documents, for as long as the reader stays."""
    query: tuple[Argument, ...] = ()
    """Query parameters of the route."""
    verb: tuple[str, ...] = ()
    """How ctl spells it; empty when another action's verb covers it."""
    arguments: tuple[Argument, ...] = ()
    views: tuple[tuple[str, ...], ...] = ()
    """Further verbs that show the same answer in another form."""
    view_words: dict[tuple[str, ...], View] = {}
    """Of those of them that say and take something else than the action's own verb."""
    covers: tuple[str, ...] = ()
    """Actions the same verb does depending on its arguments."""
    key: str = ""
    """Key of the console, none for the palette alone. Unique among actions of one target."""
    help: str

    def spelled(self, verb: tuple[str, ...]) -> "Action":
        """The action as `verb`, its own or one of its views, says and takes it."""
        view = self.view_words.get(verb)
        return self if view is None else msgspec.structs.replace(self, help=view.help, arguments=view.arguments)


def option(name: str, help_: str, kind: Kind = Kind.TEXT, **more: str) -> Argument:
    """An argument with dashes."""
    return Argument(name=name, help=help_, kind=kind, required=False, metavar=more.get("metavar"))


V, OP, A = Permission.VIEWER, Permission.OPERATOR, Permission.ADMIN
