"""The themes: dark, light, and the sixteen colours of a plain terminal. Widgets know variables, never a colour."""

from textual.theme import Theme

DARK = "llmgw-dark"
LIGHT = "llmgw-light"
SIXTEEN = "llmgw-16"
NAMES = {"dark": DARK, "light": LIGHT, "16": SIXTEEN}
"""What `--theme` and `:theme` take."""


def _heat(colours: list[str], inks: list[str]) -> dict[str, str]:
    pairs = zip(colours, inks, strict=True)
    found: dict[str, str] = {}
    for step, (colour, ink) in enumerate(pairs):
        found[f"heat-{step}"] = colour
        found[f"heat-ink-{step}"] = ink
    return found


_DARK = Theme(
    name=DARK,
    dark=True,
    primary="#5ccfc6",
    secondary="#7aa2f7",
    accent="#e5b567",
    foreground="#d7dde8",
    background="#0c1017",
    surface="#0c1017",
    panel="#171e2b",
    success="#79c98c",
    warning="#e5b567",
    error="#f0707a",
    variables={
        "tone-dim": "#7d8899",
        "tone-info": "#7aa2f7",
        "line": "#263042",
        "line-focus": "#3d6b70",
        "bar": "#141b27",
        "cursor-ground": "#1d4a4d",
        "cursor-away-ground": "#1a2331",
        "marked-ground": "#2c2a1c",
        "match-ground": "#e5b567",
        "match-ink": "#0c1017",
        "tab-ground": "#5ccfc6",
        "tab-ink": "#0c1017",
        "chip-ground": "#3a3320",
        "spark": "#3f9c97",
        "unused-ink": "#4a5567",
        "unused-ground": "#121824",
        "worn-ink": "#ffb0b6",
        "worn-ground": "#5a1f2a",
        **_heat(
            ["#14202b", "#152c37", "#163a45", "#184954", "#1b5a64", "#1f6d76", "#258289", "#2f999d", "#45b3b3"],
            ["#8b98aa", "#a9b6c6", "#bfcad8", "#d0d9e4", "#dde5ee", "#e9f0f6", "#f3f8fb", "#06121a", "#06121a"],
        ),
        "scrollbar": "#263042",
        "scrollbar-hover": "#3d6b70",
        "scrollbar-active": "#5ccfc6",
        "scrollbar-background": "#0c1017",
        "scrollbar-background-hover": "#0c1017",
        "scrollbar-background-active": "#0c1017",
        "scrollbar-corner-color": "#0c1017",
    },
)

_LIGHT = Theme(
    name=LIGHT,
    dark=False,
    primary="#0b6e6e",
    secondary="#2b5cb8",
    accent="#8a5a00",
    foreground="#1c2430",
    background="#f7f8fa",
    surface="#f7f8fa",
    panel="#e6eaf0",
    success="#1e7a38",
    warning="#8a5a00",
    error="#b3261e",
    variables={
        "tone-dim": "#5b6675",
        "tone-info": "#2b5cb8",
        "line": "#c4ccd8",
        "line-focus": "#5c9ea0",
        "bar": "#e6eaf0",
        "cursor-ground": "#bfe3e2",
        "cursor-away-ground": "#dfe5ec",
        "marked-ground": "#f5e7c8",
        "match-ground": "#f2c94c",
        "match-ink": "#1c2430",
        "tab-ground": "#0b6e6e",
        "tab-ink": "#ffffff",
        "chip-ground": "#f5e7c8",
        "spark": "#2f8f8c",
        "unused-ink": "#8d97a5",
        "unused-ground": "#eef1f5",
        "worn-ink": "#8c1410",
        "worn-ground": "#f7cfcb",
        **_heat(
            ["#e3eef0", "#cfe5e7", "#b8dadc", "#9ccdd0", "#7fbdc1", "#5fabae", "#3f9699", "#227f82", "#0b686b"],
            ["#4d5866", "#33404d", "#28343f", "#1c2832", "#14202a", "#0c1820", "#04121a", "#ffffff", "#ffffff"],
        ),
        "scrollbar": "#c4ccd8",
        "scrollbar-hover": "#5c9ea0",
        "scrollbar-active": "#0b6e6e",
        "scrollbar-background": "#f7f8fa",
        "scrollbar-background-hover": "#f7f8fa",
        "scrollbar-background-active": "#f7f8fa",
        "scrollbar-corner-color": "#f7f8fa",
    },
)

# Exactly the sixteen colours of the standard palette: a terminal with no more shows them as they are, and one whose
# user chose other sixteen shows those. Nothing is blended.
_BLACK, _RED, _GREEN, _YELLOW = "#000000", "#aa0000", "#00aa00", "#aa5500"
_BLUE, _CYAN, _WHITE, _GREY = "#0000aa", "#00aaaa", "#aaaaaa", "#555555"
_BRIGHT_RED, _BRIGHT_GREEN, _BRIGHT_YELLOW = "#ff5555", "#55ff55", "#ffff55"
_BRIGHT_BLUE, _BRIGHT_CYAN, _BRIGHT_WHITE = "#5555ff", "#55ffff", "#ffffff"

_SIXTEEN = Theme(
    name=SIXTEEN,
    dark=True,
    primary=_BRIGHT_CYAN,
    secondary=_BRIGHT_BLUE,
    accent=_BRIGHT_YELLOW,
    foreground=_WHITE,
    background=_BLACK,
    surface=_BLACK,
    panel=_BLACK,
    boost=_BLACK,
    success=_BRIGHT_GREEN,
    warning=_BRIGHT_YELLOW,
    error=_BRIGHT_RED,
    variables={
        "tone-dim": _WHITE,
        "tone-info": _BRIGHT_BLUE,
        "line": _GREY,
        "line-focus": _CYAN,
        "bar": _BLACK,
        "cursor-ground": _CYAN,
        "cursor-ink": _BLACK,
        "cursor-away-ground": _GREY,
        "marked-ground": _BLUE,
        "match-ground": _BRIGHT_YELLOW,
        "match-ink": _BLACK,
        "tab-ground": _BRIGHT_CYAN,
        "tab-ink": _BLACK,
        "chip-ground": _YELLOW,
        "spark": _CYAN,
        "unused-ink": _GREY,
        "unused-ground": _BLACK,
        "worn-ink": _BRIGHT_WHITE,
        "worn-ground": _RED,
        **_heat(
            [_BLACK, _BLACK, _BLUE, _BLUE, _BLUE, _CYAN, _CYAN, _BRIGHT_CYAN, _BRIGHT_CYAN],
            [_WHITE, _BRIGHT_WHITE, _WHITE, _BRIGHT_WHITE, _BRIGHT_WHITE, _BLACK, _BLACK, _BLACK, _BLACK],
        ),
        "scrollbar": _GREY,
        "scrollbar-hover": _WHITE,
        "scrollbar-active": _BRIGHT_CYAN,
        "scrollbar-background": _BLACK,
        "scrollbar-background-hover": _BLACK,
        "scrollbar-background-active": _BLACK,
        "scrollbar-corner-color": _BLACK,
    },
)

THEMES: tuple[Theme, ...] = (_DARK, _LIGHT, _SIXTEEN)
for _theme in (_DARK, _LIGHT):
    _theme.variables.setdefault("cursor-ink", _theme.foreground or "")
