"""`llmgw demo`: the demo states its own options."""

from llmgw.cli.launch import entry, guarded
from llmgw.cli.parsing import Parser


def main(arguments: list[str]) -> int:
    """Run the demo; the exit code."""
    parser = Parser(prog="llmgw demo", description="A cluster of one on this machine, with a real model.")
    entry("llmgw.demo.main", "add_arguments")(parser)
    args = parser.parse_args(arguments)

    def run() -> int | None:
        code: int | None = entry("llmgw.demo.main", "run")(args)
        return code

    return guarded("llmgw demo", run)
