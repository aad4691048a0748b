"""Why a node or card was taken or refused: every verdict names its rule and, where a figure is missing, the figure."""

import msgspec


class CardVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """Why one card was taken or refused."""

    uuid: str
    index: int
    name: str
    fits: bool
    rule: str = ""
    """Rule that refused: `class`, `memory`, `unreadable`, `unhealthy`."""
    missing_bytes: int = 0
    message: str = ""


class NodeVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """Why one node was taken or refused for one profile."""

    node: str
    profile: str
    fits: bool
    rule: str = ""
    """Rule that refused: `link`, `cordoned`, `engine`, `class`, `cards`, `memory`."""
    missing_bytes: int = 0
    message: str
    cards: tuple[CardVerdict, ...] = ()
