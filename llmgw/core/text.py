"""Text from outside becomes harmless before it reaches a terminal: no control, no bidi override, one line."""

import unicodedata

_PICTURES = 0x2400
_VISIBLE_DELETE = "\u2421"
_BIDI = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
_SEPARATORS = frozenset("\u2028\u2029")
_HIDDEN = frozenset("\u200b\u2060\ufeff\u00ad")
"""Zero-width signs with which two different names look the same. The joiners are left alone: scripts need them."""


def safe(text: str) -> str:
    """`text` with every control, bidi, separator, invisible and surrogate character as a visible sign.

    C0 controls and DEL become their control pictures (`␛`), everything else `<U+202E>`. The result is one line.
    """
    if text.isascii() and text.isprintable():
        return text
    return "".join(_visible(char) for char in text)


def _visible(char: str) -> str:
    code = ord(char)
    if code < 0x20:
        return chr(_PICTURES + code)
    if code == 0x7F:
        return _VISIBLE_DELETE
    if 0x80 <= code < 0xA0 or char in _BIDI or char in _SEPARATORS or char in _HIDDEN or 0xD800 <= code < 0xE000:
        return f"<U+{code:04X}>"
    return char


def display_width(text: str) -> int:
    """Terminal columns that safe `text` takes: wide characters count two, combining ones none."""
    if text.isascii():
        return len(text)
    return sum(_char_width(char) for char in text)


def _char_width(char: str) -> int:
    if unicodedata.combining(char) or unicodedata.category(char) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(char) in ("W", "F") else 1


def clip(text: str, width: int) -> str:
    """Safe `text` in at most `width` columns, an ellipsis standing for what was cut."""
    if display_width(text) <= width:
        return text
    if width <= 0:
        return ""
    taken = 0
    kept: list[str] = []
    for char in text:
        taken += _char_width(char)
        if taken > width - 1:
            break
        kept.append(char)
    return "".join(kept) + "…"
