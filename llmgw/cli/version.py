"""`llmgw version`: one line that scripts may rely on."""

from llmgw import __version__


def main(arguments: list[str]) -> int:
    """Print the version; the exit code."""
    print(__version__)
    return 0
