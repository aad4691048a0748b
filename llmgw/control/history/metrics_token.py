"""The bearer token for the operator's metrics store, in a file that is read anew for every question.

What is wrong with the file is a sentence with its name and what would do; no word of what it holds is in it.
"""

from collections.abc import Sequence
from pathlib import Path

from llmgw.core.errors import InvalidInput, Unavailable
from llmgw.core.external import MAX_KEYS_FILE_BYTES, parse_keys
from llmgw.router.provider_keys import NoKeys, read_operators_file

SETTING = "monitor.prometheus.token_file"
_WANTED = f"{SETTING} takes a file that each server's account may read, with the token on its first line"
_FORM = "8 to 512 of letters, digits and . _ ~ + / = -"


def check_token_file(path: str) -> str:
    """What is wrong with the name of a token's file, as a sentence; nothing when it will do."""
    return "" if not path or Path(path).is_absolute() else f"{path[:80]!r} is not an absolute path on the servers"


def read_token(path: str, private: Sequence[Path]) -> str:
    """The token in the file at `path`, none of `private`; raises Unavailable."""
    try:
        data, _ = read_operators_file(path, MAX_KEYS_FILE_BYTES, private)
    except NoKeys as error:
        raise _unusable(path, str(error)) from error
    if not data.strip():
        raise _unusable(path, "it is empty")
    try:
        return parse_keys(data)[0]
    except InvalidInput as error:
        raise _unusable(path, f"it holds something that is no token ({_FORM})") from error


def _unusable(path: str, why: str) -> Unavailable:
    return Unavailable(f"its token file {path}: {why}; {_WANTED}")
