"""How a fetch went, once it is over: for whoever writes it down. It says where weights came from, and no credential."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class FetchedFile:
    """One file's part of a fetch."""

    name: str
    began: float
    """Unix seconds."""
    ended: float
    resumed_from: int
    """Bytes that an earlier fetch had left here."""
    bytes: int
    """Bytes that are here now, those among them."""
    failed: str = ""
    """Why it is not whole, as a sentence; empty where it is."""


@dataclass(frozen=True, kw_only=True)
class FetchedSet:
    """One try at a set, whether it became whole or not."""

    source: str
    """Without user, password and query."""
    began: float
    ended: float
    files: tuple[FetchedFile, ...]
    """Those that were not whole before, in the order they ended."""
    failed: str = ""
