"""Starting a long-lived process: a mistake in its configuration is a sentence, said before anything is touched."""

import sys
from collections.abc import Callable
from importlib import import_module
from typing import Any

from llmgw.core.errors import InvalidInput, LlmgwError

REFUSED_EXIT = 1
USAGE_EXIT = 2


def entry(module: str, name: str) -> Callable[..., Any]:
    """Function `name` of `module`, imported now."""
    function: Callable[..., Any] = getattr(import_module(module), name)
    return function


def guarded(program: str, body: Callable[[], int | None]) -> int:
    """Run `body`; its exit code, 0 for none. An operator's mistake is a sentence and an exit code, not a traceback."""
    try:
        return body() or 0
    except InvalidInput as error:
        print(f"{program}: {error.message}", file=sys.stderr)
        return USAGE_EXIT
    except LlmgwError as error:
        print(f"{program}: {error.message}", file=sys.stderr)
        return REFUSED_EXIT
    except KeyboardInterrupt:
        return 130
