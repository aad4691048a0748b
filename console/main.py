"""How the console is started: from the command, and by the demo when it opens one."""

from console.app import Console, Ending
from llmgw.api.targets import ServerTarget


def run(
    target: ServerTarget,
    *,
    theme: str = "dark",
    ascii_only: bool = False,
    read_only: bool = False,
    demo: bool = False,
    start: str = "overview",
) -> Ending:
    """Show the console until it is left. `demo` asks at the end whether to stop what runs: then `Ending.STOP`."""
    console = Console(target, theme=theme, ascii_only=ascii_only, read_only=read_only, demo=demo, start=start)
    return console.run() or Ending.LEFT
