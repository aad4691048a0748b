"""`llmgw agent -c FILE` runs a node's agent; `llmgw agent join TOKEN URL` makes this machine a node first."""

import argparse
import sys
from functools import partial
from pathlib import Path

from llmgw.cli.launch import entry, guarded

DEFAULT_DATA = Path("/var/lib/llmgw/agent")
"""Where a system service keeps a node's files."""


def main(arguments: list[str]) -> int:
    """Run the agent or join; the exit code."""
    if arguments[:1] == ["join"]:
        return _join(arguments[1:])
    parser = argparse.ArgumentParser(
        prog="llmgw agent",
        description="Run a node's agent.",
        epilog="`llmgw agent join --help` tells how a machine becomes a node.",
        allow_abbrev=False,
    )
    parser.add_argument("-c", "--config", metavar="FILE", required=True, type=Path, help="agent.yaml")
    args = parser.parse_args(arguments)

    def run() -> int | None:
        config = entry("agent.config", "load_agent_config")(args.config)
        code: int | None = entry("agent.main", "run")(config)
        return code

    return guarded("llmgw agent", run)


def _join(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="llmgw agent join", description="Make this machine a node, once.", allow_abbrev=False
    )
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
