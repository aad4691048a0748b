"""What a simulated fleet is made from. Nothing here reaches outside loopback unless `host` says so."""

from dataclasses import dataclass
from pathlib import Path

from llmgw.core.errors import InvalidInput

MAX_NODES = 4000
"""One control plane holds streams of 4,096 nodes."""
MAX_CARDS = 64
"""Cards of one simulated node."""
DEFAULT_PREFIX = "sim"


@dataclass(frozen=True, kw_only=True)
class FleetOptions:
    """One fleet."""

    nodes: int
    cards: int
    """Of each node."""
    data: Path
    """Identities of the nodes are kept here: a second start joins nobody again."""
    host: str = "127.0.0.1"
    """Where all replicas listen; routers reach them there."""
    port: int = 0
    """0 takes a free one."""
    seed: int = 0
    """Same seed, same jitter."""
    prefix: str = DEFAULT_PREFIX
    """Names of the nodes begin with it."""
    steady: bool = False
    """No slow node, no silent node, no card that wears out."""
    tokens: tuple[tuple[str, str], ...] = ()
    """Join tokens with the agent port each is for, where no admin API gives them."""


def parse_size(text: str) -> tuple[int, int]:
    """Nodes and cards of `12x8`; raises InvalidInput."""
    nodes, times, cards = text.lower().partition("x")
    if not times or not all(part.isascii() and part.isdigit() and len(part) <= 5 for part in (nodes, cards)):
        raise InvalidInput(f"{text[:40]!r} is not NODESxCARDS, as in 12x8", field="--fleet")
    check_size(int(nodes), int(cards))
    return int(nodes), int(cards)


def check_size(nodes: int, cards: int) -> None:
    """Raise InvalidInput for a fleet no control plane would take."""
    if not 1 <= nodes <= MAX_NODES:
        raise InvalidInput(f"{nodes} nodes is outside 1 to {MAX_NODES}", field="nodes")
    if not 1 <= cards <= MAX_CARDS:
        raise InvalidInput(f"{cards} cards a node is outside 1 to {MAX_CARDS}", field="cards")
