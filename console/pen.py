"""What a terminal is told to paint text in, once: the pen knows what it was told last and says only what differs.

A cell of two 24-bit colours costs 40 bytes when each begins and ends by itself, and 4 when its colours are already set.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

from rich.color import ColorSystem
from rich.segment import Segment
from rich.style import Style
from textual.strip import Strip

_NO_INK, _NO_GROUND = "39", "49"
"""The terminal's own colours."""
_WEIGHTS, _NORMAL_WEIGHT = ("1", "2"), "22"
"""Bold and faint, and what ends both."""
_KNOWN_STYLES = 4096
"""Styles whose codes are kept; a theme has a few dozen."""


@dataclass(frozen=True, slots=True)
class _Look:
    """A style as the parameters of SGR (ECMA-48)."""

    ink: str = _NO_INK
    ground: str = _NO_GROUND
    marks: str = ""
    """Bold, underlined and so on."""
    shows_blank: bool = False
    """Whether a blank shows more than its ground: a line, or ink and ground exchanged."""


_REST = _Look()


class Pen:
    """Writes segments of one update. Begins with a terminal at rest, and `rest` leaves it so."""

    def __init__(self, system: ColorSystem | None) -> None:
        self._system = system or ColorSystem.TRUECOLOR
        self._look = _REST

    def write(self, segments: Iterable[Segment]) -> str:
        """The segments' text, with what must be told before each."""
        written: list[str] = []
        for text, style, control in segments:
            if not text or control:
                written.append(text)
            elif style is not None and style.link:
                # A link's codes enclose its text, and end at rest.
                written += [self.rest(), Strip.render_style(style, text, self._system)]
            else:
                written += [self._told(_REST if style is None else _look(style, self._system), text), text]
        return "".join(written)

    def rest(self) -> str:
        """What leaves the terminal at rest."""
        moved, self._look = self._look != _REST, _REST
        return "\x1b[0m" if moved else ""

    def _told(self, wanted: _Look, text: str) -> str:
        now = self._look
        if not (wanted.shows_blank or now.shows_blank) and text.isspace():
            # Of a blank only the ground is seen.
            wanted = _Look(now.ink, wanted.ground, now.marks)
        if wanted == now:
            return ""
        self._look = wanted
        if wanted.marks != now.marks:
            codes, now = _marked(now, wanted.marks)
        else:
            codes = []
        codes += [wanted.ink] if wanted.ink != now.ink else []
        codes += [wanted.ground] if wanted.ground != now.ground else []
        return f"\x1b[{';'.join(codes)}m"


def _marked(now: _Look, wanted: str) -> tuple[list[str], _Look]:
    """What takes the marks of `now` away and sets the `wanted` ones, and which colours are left."""
    set_ = [wanted] if wanted else []
    if not now.marks:
        return set_, now
    if now.marks in _WEIGHTS:
        return [_NORMAL_WEIGHT, *set_], now
    # Other marks are not taken away one by one: not every terminal can.
    return ["0", *set_], _REST


@lru_cache(maxsize=_KNOWN_STYLES)
def _look(style: Style, system: ColorSystem) -> _Look:
    ink, ground = style.color, style.bgcolor
    shows = (style.underline, style.underline2, style.reverse, style.strike, style.frame, style.encircle)
    return _Look(
        ink=";".join(ink.downgrade(system).get_ansi_codes()) if ink is not None else _NO_INK,
        ground=";".join(ground.downgrade(system).get_ansi_codes(foreground=False))
        if ground is not None
        else _NO_GROUND,
        marks=Strip.render_ansi(style.without_color, system),
        shows_blank=any(shows) or bool(style.overline),
    )
