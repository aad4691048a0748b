"""A command is something that can be done here and now: one list feeds keys, footer, palette, help and the `:` line."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

KEY_NAMES = {
    "escape": "esc",
    "enter": "enter",
    "space": "space",
    "left_square_bracket": "[",
    "right_square_bracket": "]",
    "pageup": "pgup",
    "pagedown": "pgdn",
}


@dataclass(frozen=True, kw_only=True)
class Command:
    """One command, with what it is about already filled in."""

    id: str
    label: str
    """Words of the footer and the palette."""
    run: Callable[[], None]
    key: str = ""
    """The character typed, or the name of a key (`ctrl+p`, `escape`)."""
    help: str = ""
    """A line for the help; the label when empty."""
    group: str = "everywhere"
    """Heading it stands under in the help and the palette."""
    footer: int = 0
    """Its place in the footer: the highest first, 0 not at all."""
    dangerous: bool = False
    """Whether it asks first."""


def key_name(key: str) -> str:
    """A key as the footer and the help write it: `^p`, `esc`, `D`."""
    if key.startswith("ctrl+"):
        return f"^{key.removeprefix('ctrl+')}"
    return KEY_NAMES.get(key, key)


def by_key(commands: Iterable[Command], key: str) -> Command | None:
    """The first command on `key`."""
    return next((command for command in commands if command.key == key), None)


def for_footer(commands: Sequence[Command]) -> list[Command]:
    """Commands of the footer in its order."""
    return sorted((command for command in commands if command.footer and command.key), key=lambda c: -c.footer)


def grouped(commands: Iterable[Command]) -> dict[str, list[Command]]:
    """Commands under their headings, both in order of appearance."""
    groups: dict[str, list[Command]] = {}
    for command in commands:
        groups.setdefault(command.group, []).append(command)
    return groups
