"""The one entry point, `llmgw`. A command's code is imported when that command runs, and not before.

`llmgw --help` and `llmgw version` load neither trio nor psycopg nor Textual; `ctl` loads the API's contract.
"""

import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import cast

Command = Callable[[list[str]], int]

USAGE_EXIT = 2
COMMANDS: dict[str, tuple[str, str]] = {
    "demo": ("llmgw.cli.demo", "a cluster of one on this machine, with a real model"),
    "console": ("llmgw.cli.console", "run a whole cluster from one screen"),
    "ctl": ("llmgw.cli.ctl", "look at a cluster and change it"),
    "server": ("llmgw.cli.server", "run a control plane"),
    "agent": ("llmgw.cli.agent", "run a node's agent, or join a node to a cluster"),
    "sim-fleet": ("llmgw.cli.sim_fleet", "simulated nodes, for trying and for scale"),
    "version": ("llmgw.cli.version", "print the version"),
}
"""Command → its module, whose `main(arguments)` returns the exit code, and its line of help."""
HIDDEN: dict[str, str] = {"router": "llmgw.router.process", "sim-engine": "llmgw.sim.engine"}
"""Commands that other parts of llmgw start."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command that `argv` (the process's own arguments by default) names; its exit code."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        print(_usage())
        return 0 if arguments else USAGE_EXIT
    name = "version" if arguments[0] == "--version" else arguments[0]
    module = HIDDEN.get(name) or COMMANDS.get(name, ("", ""))[0]
    if not module:
        from llmgw.core.near import did_you_mean

        hint = did_you_mean(name[:80], COMMANDS) or f"; known are {', '.join(COMMANDS)}"
        print(f"llmgw: {name[:80]!r} is not a command{hint}", file=sys.stderr)
        return USAGE_EXIT
    return cast("Command", import_module(module).main)(arguments[1:])


def _usage() -> str:
    lines = ["usage: llmgw COMMAND …", "", "GPU machines as one LLM service, run from a terminal.", ""]
    lines += [f"  {name:<10}{text}" for name, (_, text) in COMMANDS.items()]
    return "\n".join([*lines, "", "`llmgw COMMAND --help` tells more."])


if __name__ == "__main__":
    sys.exit(main())
