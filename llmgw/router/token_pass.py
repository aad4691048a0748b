"""Whether the token's way runs in C here, and that module: `csrc/` beside this file says what it does.

`make setup` builds it into `native/pass/` within seconds where there is a C compiler. What lies there is used only if
it was made of these very sources for this very Python; else `express` and `reactor` do the same in Python.
"""

import functools
import hashlib
import importlib.machinery
import importlib.util
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Protocol, cast

from llmgw.router import compiled
from llmgw.router.compiled import PLAIN_VARIABLE, RECORD, suffix

NAME = "_token_pass"
AGAIN = "`python -m llmgw.router.build --pass-only` builds it again"

_PACKAGE = Path(__file__).parent


class Handler(Protocol):
    """The handler of an engine's connection that stands between two chunks."""

    def __call__(self, mask: int, /) -> None:
        """What epoll said of the engine's socket."""

    def settle(self) -> None:
        """Tell stream and events what was passed on since they were told last."""


class TokenPass(Protocol):
    """The module in C."""

    RECV_BYTES: int
    PLAIN_BYTES: int
    MAX_EVENTS: int

    Pass: Callable[[object, object, object, object, tuple[float, ...]], Handler]
    """A handler for a connection, its stream, events and reactor; the last are bounds of classes of gaps."""

    def serve(
        self,
        reactor: object,
        epoll_fd: int,
        handlers: dict[int, Callable[[int], None]],
        nap_s: float,
        wait_ms: int,
        turn_s: float,
        /,
    ) -> int:
        """What `Reactor.walk` does."""

    def find_done(self, data: bytes, at: int, end: int, /) -> int:
        """Where the first `[DONE]` in data[at:end] is; -1 is nowhere."""

    def find_usage(self, data: bytes, at: int, end: int, /) -> int:
        """Where the first "usage" with something in it is in data[at:end]; -1 is nowhere."""

    def line_ends(self, data: bytes, /) -> int:
        """How many LF there are."""

    def whole_chunks(self, data: bytes, at: int, /) -> tuple[bytes, int]:
        """What the whole chunks from there on hold, none of which is the last, and where they end."""


def sources(package: Path = _PACKAGE) -> list[Path]:
    """What is compiled, and what it includes."""
    return sorted([*package.glob("csrc/*.c"), *package.glob("csrc/*.h")])


def digest(package: Path = _PACKAGE) -> str:
    """Of every source."""
    seen = hashlib.sha256()
    for source in sources(package):
        content = source.read_bytes()
        seen.update(f"{source.name} {len(content)}\n".encode())
        seen.update(content)
    return seen.hexdigest()


def built(package: Path = _PACKAGE) -> Path:
    """Where the build puts it."""
    return package / "native" / "pass"


def found(package: Path = _PACKAGE) -> tuple[Path | None, str]:
    """The usable module of the router in `package`, if there is one; if not, why."""
    directory = built(package)
    if os.environ.get(PLAIN_VARIABLE):
        return None, f"{PLAIN_VARIABLE} is set"
    try:
        record = json.loads((directory / RECORD).read_text())
    except FileNotFoundError:
        return None, "it was not built, which `make setup` does where there is a C compiler"
    except (OSError, ValueError) as error:
        return None, f"{directory / RECORD} cannot be read: {error}"
    if record.get("failed"):
        return None, str(record["failed"])
    if record.get("suffix") != suffix():
        return None, f"it was built for another Python ({record.get('suffix')}): {AGAIN}"
    try:
        same = record.get("sources") == digest(package)
    except OSError as error:
        return None, f"its sources cannot be read: {error}"
    if not same:
        return None, f"its sources changed since it was built: {AGAIN}"
    return directory / f"{NAME}{suffix()}", ""


@functools.cache
def loaded() -> tuple[TokenPass | None, str]:
    """The module, found and loaded once a process; if there is none, why."""
    path, why = found()
    if path is None:
        return None, why
    name = f"llmgw.router.{NAME}"
    loader = importlib.machinery.ExtensionFileLoader(name, str(path))
    spec = importlib.util.spec_from_file_location(name, path, loader=loader)
    if spec is None:
        return None, f"{path} is no module"
    try:
        module = importlib.util.module_from_spec(spec)
        loader.exec_module(module)
    except ImportError as error:
        return None, f"{path} cannot be loaded: {error}"
    return cast("TokenPass", module), ""


def describe() -> str:
    """What of the router runs compiled, in a few words for a log, or for a figure that depends on it."""
    module, why = loaded()
    tokens = "tokens pass in C" if module is not None else f"tokens pass in Python ({why})"
    return f"{compiled.describe()}; {tokens}"
