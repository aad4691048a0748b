"""Why a node or card was taken or refused: every verdict names its rule and, where a figure is missing, the figure."""

import msgspec


class CardVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """Why one card was taken or refused."""

    uuid: str
    index: int
    name: str
    fits: bool
    rule: str = ""
    """Rule that refused: `class`, `memory`, `unreadable`, `unhealthy`, `capability`, `part`, `taken`."""
    missing_bytes: int = 0
    message: str = ""


class NodeVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """Why one node was taken or refused for one profile."""

    node: str
    profile: str
    fits: bool
    rule: str = ""
    """Rule that refused: `class`, `link`, `cordoned`, `shape`, `engine`, `cards`, `memory`; `nodes`: too few fit."""
    missing_bytes: int = 0
    message: str
    cards: tuple[CardVerdict, ...] = ()


class Suggestion(msgspec.Struct, frozen=True, kw_only=True):
    """One way to run the model on this fleet, or the nearest miss of a class of cards."""

    engine: str
    gpu_class: str | None = None
    """None is a node's memory."""
    tp: int = 1
    pp: int = 1
    spans: int = 1
    """Nodes one replica takes."""
    nodes: int = 0
    """Nodes that could hold a replica if nothing else ran there; 0 says that none could."""
    need_bytes: int = 0
    """On each card, or of the node."""
    room_bytes: int = 0
    """What the smallest of them has."""
    host_bytes: int = 0
    """Of the node's memory, beside the card."""
    args: tuple[str, ...] = ()
    """Flags with which it fits."""
    longest_context: int = 0
    """Tokens a request may span at most, with these slots; 0 where none fit."""
    message: str
