"""Outside text on its way to the screen: bounded, without a control character, measured as the renderer measures it.

Nothing here returns markup. A name, a log line or an error leaves this module as plain text for a segment, or as a
`Content` for a widget that takes one; brackets in it are brackets.
"""

import re
import unicodedata

from rich.cells import cell_len
from textual.content import Content

from console.signs import signs
from llmgw.core.text import safe

MAX_CELL_CHARS = 2048
"""Longest text kept for a cell or a sentence; no terminal shows more of it on a line."""
MAX_COMBINING = 2
"""Combining marks kept on one letter: scripts need two, only mischief needs forty."""

_IN_ASCII = str.maketrans(
    {"…": "...", "×": "x", "·": "-", "–": "-", "—": "-", "’": "'", "‘": "'", "“": '"', "”": '"', "°": "", "→": "->"}
)
"""How our own sentences and most others' read in ASCII; the rest is spelled out as escapes."""

_HARMLESS = re.compile("[ -~°·×–—‘’“”…←-↓─-▟■-◼⠀-⣿]*")
"""ASCII and what the console draws with, which is nearly all there is: none of it hides, each takes a column."""


def plain(text: str, limit: int = MAX_CELL_CHARS) -> str:
    """`text` as one harmless line of at most `limit` characters, every hidden or joining sign made visible."""
    if len(text) > limit:
        text = text[:limit] + signs().ellipsis
    if _is_harmless(text):
        return text
    kept = _steady(safe(text))
    if not signs().ascii or kept.isascii():
        return kept
    return kept.translate(_IN_ASCII).encode("ascii", "backslashreplace").decode()


def _is_harmless(text: str) -> bool:
    if text.isascii():
        return text.isprintable()
    return not signs().ascii and _HARMLESS.fullmatch(text) is not None


def _steady(text: str) -> str:
    """`text` without what terminals and the renderer measure differently."""
    if text.isascii():
        return text
    out: list[str] = []
    combining = 0
    for char in text:
        category = "L" if char.isalnum() else unicodedata.category(char)
        if category in ("Mn", "Me"):
            combining += 1
            if combining > MAX_COMBINING or 0xFE00 <= ord(char) <= 0xFE0F:
                continue
        else:
            combining = 0
        out.append(f"<U+{ord(char):04X}>" if category in ("Cf", "Co", "Cn") else char)
    return "".join(out)


def width(text: str) -> int:
    """Terminal columns of plain text."""
    return len(text) if text.isascii() else cell_len(text)


def fitted(text: str, columns: int) -> tuple[str, int]:
    """Outside text as `plain` shows it and as `clip` cuts it, and the columns it takes."""
    if len(text) <= columns and _is_harmless(text):
        return text, len(text)
    shown = clip(plain(text), columns)
    return shown, width(shown)


def clip(text: str, columns: int) -> str:
    """Plain text in at most `columns` columns, an ellipsis standing for what was cut."""
    if columns <= 0:
        return ""
    if width(text) <= columns:
        return text
    mark = signs().ellipsis
    if columns <= len(mark):
        return mark[:columns]
    return head(text, columns - len(mark)) + mark


def cut(text: str) -> str:
    """Plain text that fits, and behind which more would stand: as wide as it was, an ellipsis at its end."""
    return fit(text + signs().ellipsis, width(text))


def head(text: str, columns: int) -> str:
    """The longest beginning of `text` that takes at most `columns` columns."""
    if text.isascii():
        return text[:columns]
    low, high = 0, min(len(text), max(columns, 0) * (MAX_COMBINING + 1))
    while low < high:
        middle = (low + high + 1) // 2
        if cell_len(text[:middle]) <= columns:
            low = middle
        else:
            high = middle - 1
    return text[:low]


def fit(text: str, columns: int, align: str = "left") -> str:
    """Plain text in exactly `columns` columns: cut with an ellipsis, or padded on the side `align` leaves free."""
    text = clip(text, columns)
    gap = columns - width(text)
    if gap <= 0:
        return text
    return " " * gap + text if align == "right" else text + " " * gap


def content(text: str, limit: int = MAX_CELL_CHARS) -> Content:
    """Outside text for a widget that takes content: never read as markup."""
    return Content(plain(text, limit))
