"""`llmgw ctl`: verbs and arguments are those of the actions registry; a handler turns them into one request.

An option of nobody's is an unknown option. Exit codes: 0 done, 1 refused or failed, 2 usage, 3 cannot reach the
server, 4 not allowed, 130 interrupted, 141 the reader of stdout went away.
"""

import argparse
import sys
from collections.abc import Sequence
from typing import Any

from llmgw.api.actions import ACTIONS, Action, Argument, Kind
from llmgw.api.problems import ClientError, Exit
from llmgw.cli.context import Context, Handler
from llmgw.cli.output import Output, abandon_stdout, tolerate_encoding
from llmgw.cli.parsing import Parser
from llmgw.core.money import NONE

INTERRUPTED_EXIT = 130
BROKEN_PIPE_EXIT = 141
ALONE: dict[str, tuple[str, ...]] = {
    "keys": ("keys", "list"),
    "teams": ("teams", "list"),
    "bands": ("bands", "list"),
    "tenants": ("tenants", "list"),
    "config": ("config", "list"),
    "weights": ("weights", "list"),
}
"""What a group does when no verb follows it."""
GROUPS = {
    "node": "one node: show, cordon, uncordon",
    "model": "the catalog: serve, add, show, stop, start, scale, remove",
    "keys": "API keys: list, create, limits, budget, move, band, revoke",
    "teams": "teams, which hold keys: list, create, limits, budget, move, band, remove",
    "tenants": "tenants, which hold teams: list, create, limits, budget, remove",
    "bands": "in which order requests wait: list, set, remove",
    "config": "cluster settings: list, get, set, reference",
    "weights": "weights on the mirror: list, fetch, verify, remove, orphans",
}
SHORT = {"--file": "-f", "--follow": "-f"}
"""Options with a letter, which mean the same in every verb that has them."""
MAX_DIGITS = 13
"""Of a whole number: no figure that may be set has more."""
_VERB = "_verb"


def main(arguments: Sequence[str]) -> int:
    """Run one verb; its exit code."""
    tolerate_encoding()
    args = build_parser().parse_args(arguments)
    out = Output(json=args.json)
    try:
        _handler(getattr(args, _VERB))(Context(args=args, out=out))
        return Exit.DONE
    except ClientError as error:
        out.say(f"llmgw ctl: {error.message}")
        return error.exit_code
    except BrokenPipeError:
        abandon_stdout()
        return BROKEN_PIPE_EXIT
    except KeyboardInterrupt:
        print(file=sys.stderr)
        return INTERRUPTED_EXIT


def build_parser() -> Parser:
    """The parser of every verb of the registry."""
    shared = _global_options(argparse.SUPPRESS)
    parser = Parser(prog="llmgw ctl", description="Look at a cluster and change it.", parents=[_global_options(None)])
    verbs = parser.add_subparsers(metavar="VERB", required=True)
    groups: dict[str, argparse._SubParsersAction[Parser]] = {}
    for verb, action in _spellings():
        name = verb[0]
        if len(verb) == 1:
            _add_verb(verbs, name, verb, action, shared)
            continue
        if name not in groups:
            group = verbs.add_parser(name, help=GROUPS[name], description=GROUPS[name], parents=[shared])
            if name in ALONE:
                group.set_defaults(**{_VERB: ALONE[name]})
            groups[name] = group.add_subparsers(metavar="VERB", required=name not in ALONE)
        _add_verb(groups[name], verb[1], verb, action, shared)
    return parser


def _spellings() -> list[tuple[tuple[str, ...], Action]]:
    return [(verb, action.spelled(verb)) for action in ACTIONS for verb in (action.verb, *action.views) if verb]


def _global_options(missing: str | None) -> Parser:
    """Options that stand before or after the verb; after it, one that is not given must not undo one before it."""

    def default(value: object) -> object:
        return missing if missing is not None else value

    options = Parser(add_help=False)
    group = options.add_argument_group("everywhere")
    group.add_argument(
        "--server", metavar="URL", default=default(None), help="unix:/path/admin.sock or http://HOST:PORT"
    )
    group.add_argument(
        "--token-file", metavar="FILE", default=default(None), help="file with the bearer token, over TCP"
    )
    group.add_argument("--json", action="store_true", default=default(False), help="print documents for scripts")
    group.add_argument("--yes", action="store_true", default=default(False), help="do not ask before acting")
    return options


def _add_verb(
    where: "argparse._SubParsersAction[Parser]",
    name: str,
    verb: tuple[str, ...],
    action: Action,
    shared: Parser,
) -> None:
    parser = where.add_parser(name, help=action.help, description=_sentence(action), parents=[shared])
    parser.set_defaults(**{_VERB: verb})
    for argument in action.arguments:
        _add_argument(parser, argument)


def _add_argument(parser: argparse.ArgumentParser, argument: Argument) -> None:
    options: dict[str, Any] = {"help": argument.help.replace("%", "%%")}
    if argument.kind is Kind.FLAG:
        short = SHORT.get(argument.name)
        names = [short, argument.name] if short else [argument.name]
        parser.add_argument(*names, action="store_true", **options)
        return
    options["metavar"] = argument.metavar
    if argument.choices:
        options["choices"] = argument.choices
    if argument.kind is Kind.INTEGER:
        options["type"] = _integer
    elif argument.kind is Kind.LIMIT:
        options["type"] = _limit
    elif argument.kind in (Kind.LIST, Kind.REPEAT):
        options["action"] = "append"
    if argument.is_option:
        short = SHORT.get(argument.name)
        names = [short, argument.name] if short else [argument.name]
        parser.add_argument(*names, required=argument.required, default=argument.default, **options)
    else:
        if argument.kind is Kind.MANY:
            options["nargs"] = "+"
        elif not argument.required:
            options["nargs"] = "?"
        parser.add_argument(argument.name, **options)


def _integer(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= MAX_DIGITS):
        raise argparse.ArgumentTypeError(
            f"{text[:40]!r} is no whole number from 0 on: give digits alone, {MAX_DIGITS} at most"
        )
    return int(text)


def _limit(text: str) -> int | str:
    """A figure, or the word `none`."""
    if text == NONE:
        return text
    try:
        return _integer(text)
    except argparse.ArgumentTypeError as error:
        raise argparse.ArgumentTypeError(f"{error}, or {NONE}") from error


def _sentence(action: Action) -> str:
    return f"{action.help[:1].upper()}{action.help[1:]}. Needs the role {action.permission.role}."


def _handler(verb: tuple[str, ...]) -> Handler:
    from llmgw.cli.groups import HANDLERS

    return HANDLERS[verb]
