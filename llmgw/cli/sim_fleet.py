"""`llmgw sim-fleet`: simulated nodes for a cluster that wants something to show, or to be exercised."""

from llmgw.cli.launch import entry, guarded
from llmgw.cli.parsing import Parser


def main(arguments: list[str]) -> int:
    """Run the fleet; the exit code."""
    parser = Parser(
        prog="llmgw sim-fleet",
        description="Simulated nodes that speak the real agent protocol and run the sim engine.",
    )
    entry("llmgw.sim.fleet.main", "add_arguments")(parser)
    args = parser.parse_args(arguments)

    def run() -> int | None:
        code: int | None = entry("llmgw.sim.fleet.main", "run")(args)
        return code

    return guarded("llmgw sim-fleet", run)
