"""`llmgw server -c FILE`: checks the whole configuration, then becomes the control plane."""

import argparse
import os
from pathlib import Path

from llmgw.cli.launch import entry, guarded
from llmgw.cli.parsing import Parser
from llmgw.core.addresses import parse_listen
from llmgw.core.config import LISTEN_VARIABLES, load_server_config


def main(arguments: list[str]) -> int:
    """Run the control plane; the exit code."""
    parser = Parser(prog="llmgw server", description="Run a control plane.")
    parser.add_argument("-c", "--config", metavar="FILE", required=True, type=Path, help="server.yaml")
    for key, variable in LISTEN_VARIABLES.items():
        parser.add_argument(f"--{key}", metavar="HOST:PORT", help=f"in place of the file's {key} and of {variable}")
    args = parser.parse_args(arguments)
    return guarded("llmgw server", lambda: _run(args))


def _run(args: argparse.Namespace) -> int | None:
    for key, variable in LISTEN_VARIABLES.items():
        text = getattr(args, key)
        if text is not None:
            parse_listen(text, source=f"--{key}")
            # The server reads file and environment itself; a flag reaches it the same way.
            os.environ[variable] = text
    load_server_config(args.config)
    code: int | None = entry("llmgw.control.server", "run")(args.config)
    return code
