"""Database failures in the domain's words. No message carries a password, a statement or a stored value."""

import re

import psycopg
from psycopg import errors

from llmgw.core.errors import Conflict, InvalidInput, LlmgwError, Unavailable

_PASSWORD = re.compile(r"(password\s*=\s*)('(?:[^'\\]|\\.)*'|\S+)|(://[^:/@\s]*:)[^@\s]*@", re.IGNORECASE)


def translate(error: psycopg.Error | UnicodeEncodeError) -> LlmgwError | None:
    """What the error means to a caller; none is a mistake in our own SQL, to be seen as it is."""
    match error:
        case UnicodeEncodeError() | errors.UntranslatableCharacter() | errors.CharacterNotInRepertoire():
            return InvalidInput("the text holds a character that cannot be stored")
        case errors.QueryCanceled():
            return Unavailable("the database took too long and was stopped; it is overloaded, or something blocks it")
        case errors.UniqueViolation() | errors.SerializationFailure() | errors.DeadlockDetected():
            return Conflict("somebody else changed the same thing at the same moment: look again, then repeat")
        case errors.DiskFull():
            return Unavailable("the database's disk is full: free space there")
        case errors.ReadOnlySqlTransaction():
            return Unavailable("the database is read-only (a standby, perhaps): it must be the primary")
        case errors.IdleInTransactionSessionTimeout():
            return Unavailable(
                "this server was paused in the middle of a change, which the database ended: nothing of it was kept"
            )
        case psycopg.OperationalError() | psycopg.InterfaceError():
            return Unavailable(f"the database is away: {describe(error)}")
        case errors.InternalError_() | errors.DataCorrupted() | errors.IndexCorrupted():
            return Unavailable(f"the database met a fault of its own: {describe(error)}")
        case psycopg.DataError() if "NUL" in str(error):
            return InvalidInput("the text holds a NUL character, which cannot be stored")
        case _:
            return None


def describe(error: BaseException) -> str:
    """The error's first line, without what follows `password=` or a URL's colon."""
    lines = str(error).strip().splitlines()
    text = lines[0] if lines else type(error).__name__
    return _PASSWORD.sub(lambda m: f"{m[1]}***" if m[1] else f"{m[3]}***@", text)[:300]
