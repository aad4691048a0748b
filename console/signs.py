"""The marks the console draws with, in Unicode and in ASCII. Every state has a mark, never only a colour."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Signs:
    """One set of marks; each is one column wide unless said."""

    ascii: bool
    """Whether the terminal gets nothing but ASCII."""
    ellipsis: str
    dot: str
    """Between facts on a line."""
    live: str
    lost: str
    good: str
    broken: str
    warning: str
    coming: str
    """Something under way: a download, a start."""
    stopped: str
    mark: str
    """A marked row."""
    cursor: str
    """Left of the row the cursor is on."""
    up: str
    down: str
    """Sorted that way; in ASCII two columns, for a letter would read as part of the word before it."""
    lock: str
    times: str
    dash: str
    """A figure nobody reported."""
    edge: str
    """Left edge of a tile."""
    rule: str
    bar: str
    """Eight heights from low to high, behind the empty one."""
    full: str
    """Filled and empty parts of a progress bar."""
    empty: str
    logo: str
    free: str
    """Two columns: a card nobody holds."""


UNICODE = Signs(
    ascii=False,
    ellipsis="…",
    dot="·",
    live="●",
    lost="○",
    good="✓",
    broken="✗",
    warning="!",
    coming="↓",
    stopped="■",
    mark="◆",
    cursor="▌",
    up="▲",
    down="▼",
    lock="read-only",
    times="×",
    dash="–",
    edge="▏",
    rule="─",
    bar=" ▁▂▃▄▅▆▇█",
    full="█",
    empty="░",
    logo="▚",
    free="╌╌",
)
ASCII = Signs(
    ascii=True,
    ellipsis="~",
    dot="-",
    live="*",
    lost="o",
    good="+",
    broken="x",
    warning="!",
    coming="v",
    stopped="#",
    mark="*",
    cursor=">",
    up="/\\",
    down="\\/",
    lock="read-only",
    times="x",
    dash="-",
    edge="|",
    rule="-",
    bar=" .:-=+*#@",
    full="#",
    empty=".",
    logo="%",
    free="--",
)

_chosen = UNICODE


def signs() -> Signs:
    """The set in use. It belongs to the terminal, so there is one a process."""
    return _chosen


def sort_mark(descending: bool) -> str:
    """What stands behind the name of what rows are sorted by; in ASCII a space keeps the two apart."""
    mark = _chosen.down if descending else _chosen.up
    return f" {mark}" if _chosen.ascii else mark


def use_signs(chosen: Signs) -> None:
    """Draw with `chosen` from the next line on."""
    global _chosen
    _chosen = chosen
