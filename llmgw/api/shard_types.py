"""The parts of a replica that spans several nodes, as operators see them."""

import msgspec

from llmgw.core.compute import Compute


class ShardInfo(msgspec.Struct, frozen=True, kw_only=True):
    """One node's part of a replica."""

    role: str
    """`head`, which answers for all, or `worker`."""
    node: str
    state: str
    pid: int = 0
    cards: tuple[str, ...] = ()
    message: str = ""
    adopted: bool = False
    compute: Compute | None = None
    """Where its engine said that it computes; absent where it did not say."""
