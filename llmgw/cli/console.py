"""`llmgw console`: what can be wrong is said before the screen is taken."""

import os
import sys
from collections.abc import Mapping
from typing import TypedDict

from llmgw.api.problems import ClientError, Usage
from llmgw.api.targets import resolve
from llmgw.cli.parsing import Parser

THEMES = ("auto", "dark", "light", "16")
FEW_COLOURS = ("linux", "vt100", "vt220", "ansi", "xterm", "screen", "dumb")
"""Terminal types that promise no more than sixteen colours, unless COLORTERM says otherwise."""


def main(arguments: list[str]) -> int:
    """Run the console; the exit code."""
    parser = Parser(prog="llmgw console", description="Run a whole cluster from one screen.")
    parser.add_argument("--server", metavar="URL", help="unix:/path/admin.sock, a path, or http://HOST:PORT")
    parser.add_argument("--token-file", metavar="FILE", help="file whose first line is the admin token, for http")
    parser.add_argument("--ascii", action="store_true", help="draw with ASCII only")
    parser.add_argument("--theme", choices=THEMES, default="auto", help="colours (auto: by the terminal)")
    parser.add_argument("--read-only", action="store_true", help="nothing can be changed")
    args = parser.parse_args(arguments)
    try:
        target = resolve(server=args.server, token_file=args.token_file)
        _check_terminal()
    except ClientError as error:
        print(f"llmgw console: {error.message}", file=sys.stderr)
        return error.exit_code
    from console.main import run

    ascii_only = args.ascii or not _speaks_unicode()
    run(target, theme=_theme(args.theme), ascii_only=ascii_only, read_only=args.read_only)
    return 0


class Look(TypedDict):
    """How the console is to look."""

    theme: str
    ascii_only: bool


def look() -> Look:
    """What this terminal can show, by its environment."""
    return Look(theme=_theme("auto"), ascii_only=not _speaks_unicode())


def _check_terminal() -> None:
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise Usage("this needs a terminal; `llmgw ctl` answers scripts")
    if os.environ.get("TERM", "") in ("", "dumb"):
        raise Usage("this terminal (TERM=dumb) cannot place text; `llmgw ctl` works here")


def _theme(asked: str) -> str:
    if asked != "auto":
        return asked
    few = os.environ.get("TERM", "") in FEW_COLOURS and not os.environ.get("COLORTERM")
    return "16" if few else "dark"


def _speaks_unicode() -> bool:
    encoding = (getattr(sys.stdout, "encoding", None) or "ascii").replace("-", "").casefold()
    return encoding == "utf8" and not asked_for_c(os.environ)


def asked_for_c(environment: Mapping[str, str]) -> bool:
    """Whether the C locale was asked for by name: Python writes UTF-8 there all the same, and sets LC_CTYPE itself."""
    named = environment.get("LC_ALL") or environment.get("LC_CTYPE", "")
    if named in ("", "C.UTF-8") and not environment.get("LC_ALL"):
        named = environment.get("LANG", "")
    return named in ("C", "POSIX")
