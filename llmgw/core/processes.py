"""Which process is meant: a pid alone is reused, so a process is named by boot, pid and start time."""

from pathlib import Path

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_START_TIME_AFTER_NAME = 19
"""Place of `starttime` (field 22 of proc_pid_stat(5)) among the fields that follow the parenthesised name."""


def boot_id() -> str:
    """Identity of this boot of the machine; a pid of another boot means nothing."""
    return _BOOT_ID.read_text().strip()


def start_time(pid: int) -> int | None:
    """Clock ticks after boot when the process started; none when there is no such process or it is a zombie."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The name may hold anything, parentheses and spaces too: the fields are counted from its end.
    fields = text[text.rindex(")") + 2 :].split()
    if fields[0] in "ZX":
        return None
    return int(fields[_START_TIME_AFTER_NAME])
