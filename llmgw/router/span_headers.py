"""Headers that a collector of spans asks for, a key above all: read from the operator's file, shown nowhere.

The file is one of the router's machine, and never one of the server's own secrets, nor anything but headers.
"""

import re
from collections.abc import Sequence
from pathlib import Path

from llmgw.router.provider_keys import NoKeys, read_operators_file

MAX_BYTES = 16 * 1024
MAX_LINES = 20
_LINE = re.compile(r"([A-Za-z0-9-]{1,64}): ([\x21-\x7e](?:[\x20-\x7e]{0,4094}[\x21-\x7e])?)")
_OURS = frozenset({"host", "content-length", "content-type", "content-encoding", "transfer-encoding", "connection"})


class BadHeaders(Exception):
    """The file cannot be used; the message says why, without a word of what it holds."""


def read_headers(path: str, private: Sequence[Path] = ()) -> dict[str, str]:
    """The headers in the file at `path`, `name: value` a line, empty lines and `#` lines aside; raises BadHeaders."""
    if not path:
        return {}
    try:
        data, _ = read_operators_file(path, MAX_BYTES, private)
        text = data.decode("ascii")
    except NoKeys as error:
        raise BadHeaders(f"{path}: {error}") from None
    except UnicodeDecodeError:
        raise BadHeaders(f"{path}: it holds more than ASCII") from None
    if len(data) > MAX_BYTES:
        raise BadHeaders(f"{path}: it is longer than {MAX_BYTES} bytes")
    found: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if not line or line.startswith("#"):
            continue
        match = _LINE.fullmatch(line)
        if match is None or match[1].lower() in _OURS or len(found) >= MAX_LINES:
            raise BadHeaders(f"{path}: line {number} is no header that may be sent: write `name: value`")
        found[match[1]] = match[2]
    return found
