"""Routes come from the actions registry, so that each has its permission; a route without one is refused, not open.

Life of a request: `Gate.check` names the caller and compares its role with the route's permission, then the handler
runs with `caller()` and `control()`.
"""

from collections.abc import Awaitable, Callable
from datetime import datetime

from quart import Response, g, request
from quart_trio import QuartTrio

from llmgw.api.actions import BY_ID, Permission
from llmgw.core.errors import InvalidInput, NotAllowed, NotFound
from llmgw.web.access import Access, Caller
from llmgw.web.ports import ControlPlane
from llmgw.web.serve import connection_facts

Handler = Callable[..., Awaitable[Response]]


class Routes:
    """Binds handlers to actions and remembers every route's permission."""

    def __init__(self, app: QuartTrio, control: ControlPlane, access: Access) -> None:
        self.control = control
        self._app = app
        self._access = access
        self._permissions: dict[str, Permission | None] = {}
        app.before_request(self._gate)

    @property
    def permissions(self) -> dict[str, Permission | None]:
        """Permission of each endpoint; None is open to anyone who can connect."""
        return dict(self._permissions)

    def handle(self, action_id: str, handler: Handler) -> None:
        """Serve the action with `handler`, which gets the path's parameters by name."""
        action = BY_ID[action_id]
        # Names may hold slashes; the templates are such that no two of them take the same path and method.
        rule = action.path.replace("{", "<path:").replace("}", ">")
        self.raw(action_id, rule, action.method, action.permission, handler)

    def raw(self, endpoint: str, rule: str, method: str, permission: Permission | None, handler: Handler) -> None:
        """Serve something that is no action, such as `/metrics`."""
        self._permissions[endpoint] = permission
        self._app.add_url_rule(rule, endpoint, handler, methods=[method], provide_automatic_options=False)

    async def _gate(self) -> None:
        rule = request.url_rule
        if rule is not None and rule.endpoint in self._permissions and self._permissions[rule.endpoint] is None:
            return
        peer, _, _ = connection_facts(request.scope)
        caller = self._access.identify(peer, request.headers.get("Authorization"))
        if rule is None:
            # A caller who is known learns that the path is not there; nobody else learns anything.
            return
        needed = self._permissions.get(rule.endpoint)
        if needed is None:
            raise NotAllowed("this route has no permission and is closed")
        if caller.permission < needed:
            raise NotAllowed(
                f"{caller.actor} is {caller.permission.role}; {rule.endpoint} needs the role {needed.role}"
            )
        g.caller = caller


def actor() -> str:
    """Who asks, for the audit."""
    return caller().actor


def caller() -> Caller:
    """Who asks, with the role."""
    found = g.caller
    assert isinstance(found, Caller)
    return found


def query_text(key: str, known: tuple[str, ...]) -> str | None:
    """Query parameter `key`, refusing parameters that are not `known` and repeated ones; raises InvalidInput."""
    for name in request.args:
        if name not in known:
            raise InvalidInput(f"unknown parameter; known here: {', '.join(known)}", field=name[:80])
    values = request.args.getlist(key)
    if len(values) > 1:
        raise InvalidInput("is given more than once", field=key)
    return values[0] if values else None


def query_int(key: str, known: tuple[str, ...], *, default: int, low: int, high: int) -> int:
    """Query parameter `key` as an integer in a range; raises InvalidInput."""
    text = query_text(key, known)
    if text is None:
        return default
    if not (text.isascii() and text.isdigit() and len(text) < 12 and low <= int(text) <= high):
        raise InvalidInput(f"{text[:40]!r} is not a whole number from {low} to {high}", field=key)
    return int(text)


def query_time(key: str, known: tuple[str, ...]) -> datetime | None:
    """Query parameter `key`, an ISO 8601 time with its offset from UTC; raises InvalidInput."""
    text = query_text(key, known)
    if text is None:
        return None
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        raise InvalidInput(f"{text[:40]!r} is not an ISO 8601 time", field=key) from None
    if time.tzinfo is None:
        raise InvalidInput(f"{text[:40]!r} has no offset from UTC", field=key)
    return time


def query_flag(key: str, known: tuple[str, ...]) -> bool:
    """Query parameter `key`, `true` or `false`; raises InvalidInput."""
    text = query_text(key, known)
    if text not in (None, "true", "false"):
        raise InvalidInput(f"{text[:40]!r} is neither true nor false", field=key)
    return text == "true"


def checked_name(name: str) -> str:
    """A path parameter that can be a name at all; raises NotFound."""
    if not name or len(name) > 256 or not name.isprintable():
        raise NotFound("there is nothing of that name")
    return name
