"""What is around the console: a terminal that takes copies or does not, a shell that waits or does not."""

import os
from collections.abc import Mapping


def hindrance(environment: Mapping[str, str] | None = None) -> str:
    """The end of a sentence that says what may keep a copy from the clipboard; empty where nothing is known to.

    Copying is asked of the terminal (OSC 52), which says nothing back.
    """
    told = os.environ if environment is None else environment
    if told.get("STY") and not told.get("TMUX"):
        return "; GNU screen does not pass it on"
    if told.get("TMUX") or told.get("TERM", "").startswith(("tmux", "screen")):
        return "; tmux passes it on where `set -s set-clipboard on` is set"
    return ""


def shell_waits() -> bool:
    """Whether a shell with jobs started this process by itself: anything else would wait for it for ever."""
    return os.getpgrp() == os.getpid() != os.getsid(0)
