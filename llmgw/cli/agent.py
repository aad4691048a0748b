"""`llmgw agent -c FILE` runs a node's agent; `llmgw agent join TOKEN URL` makes this machine a node first.

`llmgw agent check` says whether the engines installed here take the flags they are given.
"""

import sys
from functools import partial
from pathlib import Path

from llmgw.cli.launch import entry, guarded
from llmgw.cli.parsing import Parser

DEFAULT_DATA = Path("/var/lib/llmgw/agent")
"""Where a system service keeps a node's files."""


def main(arguments: list[str]) -> int:
    """Run the agent or join; the exit code."""
    if arguments[:1] == ["join"]:
        return _join(arguments[1:])
    if arguments[:1] == ["check"]:
        return _check(arguments[1:])
    parser = Parser(
        prog="llmgw agent",
        description="Run a node's agent.",
        epilog="`llmgw agent join --help` tells how a machine becomes a node, and `llmgw agent check --help` how its "
        "engines are looked over.",
    )
    parser.add_argument("-c", "--config", metavar="FILE", required=True, type=Path, help="agent.yaml")
    args = parser.parse_args(arguments)

    def run() -> int | None:
        config = entry("agent.config", "load_agent_config")(args.config)
        code: int | None = entry("agent.main", "run")(config)
        return code

    return guarded("llmgw agent", run)


def _join(arguments: list[str]) -> int:
    parser = Parser(prog="llmgw agent join", description="Make this machine a node, once.")
    parser.add_argument("token", metavar="TOKEN", help="what `llmgw ctl join-token` printed")
    parser.add_argument("url", metavar="URL", help="the control plane's agent port, HOST:PORT")
    parser.add_argument("--data", metavar="DIR", type=Path, default=DEFAULT_DATA, help="default: %(default)s")
    parser.add_argument("--name", metavar="NAME", help="name of the node; this machine's host name when not given")
    args = parser.parse_args(arguments)

    def run() -> int | None:
        join = partial(entry("agent.join", "join"), args.token, args.url, data=args.data, name=args.name)
        identity = entry("trio", "run")(join)
        print(f"this machine is node {identity.node} of cluster {identity.cluster_id} now", file=sys.stderr)
        return None

    return guarded("llmgw agent join", run)


def _check(arguments: list[str]) -> int:
    parser = Parser(
        prog="llmgw agent check",
        description="Ask every engine that is installed here whether it takes the flags it is given.",
    )
    parser.add_argument("engines", metavar="ENGINE", nargs="*", help="only these; all that are here when none is named")
    parser.add_argument("-c", "--config", metavar="FILE", type=Path, help="agent.yaml, for engines it names a place of")
    args = parser.parse_args(arguments)

    def run() -> int | None:
        config = entry("agent.config", "load_agent_config")(args.config) if args.config else None
        good: bool = entry("agent.engines.check", "report")(config, args.engines)
        return 0 if good else 1

    return guarded("llmgw agent check", run)
