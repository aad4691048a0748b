"""Refusals on their way: a domain error becomes a problem document, and that an error a client can act on."""

from enum import IntEnum

from llmgw.api.types import Problem
from llmgw.core.errors import InvalidInput, LlmgwError


class Exit(IntEnum):
    """Exit codes of `ctl`; scripts rely on them."""

    DONE = 0
    REFUSED = 1
    """Refused by the server, or failed there."""
    USAGE = 2
    """The command line or a local file is wrong; nothing was sent."""
    UNREACHABLE = 3
    """No answer from a server."""
    DENIED = 4
    """The caller is not known, or its role does not allow it."""


class ClientError(Exception):
    """A sentence for the person in front, and the exit code it means."""

    exit_code = Exit.REFUSED

    def __init__(self, message: str, *, problem: Problem | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.problem = problem


class Refused(ClientError):
    """The server said no, and why."""


class Usage(ClientError):
    """What was asked for makes no sense as written; nothing was sent."""

    exit_code = Exit.USAGE


class Unreachable(ClientError):
    """No server answered, or the connection broke before the answer was whole."""

    exit_code = Exit.UNREACHABLE


class Denied(ClientError):
    """Not known, or not allowed."""

    exit_code = Exit.DENIED


def problem_of(error: LlmgwError) -> Problem:
    """The document the admin API answers `error` with."""
    field = error.field if isinstance(error, InvalidInput) else None
    return Problem(code=error.code, message=error.message, status=error.http_status, field=field)


def error_of(problem: Problem) -> ClientError:
    """The error a client raises for a problem it was answered with."""
    kind = Denied if problem.status in (401, 403) else Refused
    return kind(problem.message, problem=problem)
