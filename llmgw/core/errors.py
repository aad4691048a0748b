"""One root for every error an operator or a client can cause: a stable code and a sentence to act on.

Errors are translated at edges only: SQL to domain in the store, domain to HTTP problem in the web apps, problem to
a console sentence or an exit code in the clients.
"""


class LlmgwError(Exception):
    """What was refused, with the figure and what would make it work, in one sentence.

    `code` is stable and machine-readable; `http_status` is what the admin API answers with.
    """

    code = "internal"
    http_status = 500

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


class InvalidInput(LlmgwError):
    """The request, file or flag is wrong; `field` names where (``profiles[0].tp``, ``server.yaml:12``)."""

    code = "invalid"
    http_status = 400

    def __init__(self, message: str, *, field: str | None = None) -> None:
        super().__init__(f"{field}: {message}" if field else message)
        self.field = field


class NotFound(LlmgwError):
    """The named thing is not there."""

    code = "not_found"
    http_status = 404


class Conflict(LlmgwError):
    """The thing exists already, or is in a state that forbids the change."""

    code = "conflict"
    http_status = 409


class NotAllowed(LlmgwError):
    """The caller's role does not permit the action."""

    code = "not_allowed"
    http_status = 403


class Unauthenticated(LlmgwError):
    """No credential, or one that is not known."""

    code = "unauthenticated"
    http_status = 401


class Unavailable(LlmgwError):
    """Something needed is away (the store, the leader, a node); the same request may work later."""

    code = "unavailable"
    http_status = 503


class CannotPlace(LlmgwError):
    """No node can hold the model; the message says which figure is missing where."""

    code = "cannot_place"
    http_status = 409
