"""Which replica a session belongs to: rendezvous hashing, so that every router says the same and remembers nothing.

Each replica has a distance from a session, which depends on the two alone, and the session goes to the nearest that may
take it. A replica that leaves moves its own sessions and no others; one that comes takes its share from all alike.
"""

from hashlib import blake2b
from math import log

_MASK = (1 << 64) - 1
_FIRST, _SECOND = 0xBF58476D1CE4E5B9, 0x94D049BB133111EB
"""Multipliers of the finalizer of SplitMix64 (Steele, Lea, Flood 2014), after which each bit depends on all."""
_UNIT = 2.0**-53


def session_mark(scope: str, session: bytes) -> int:
    """64 bits for a session's id; the same id of another scope is another session."""
    return _mark(scope.encode() + b"\0" + session)


def replica_mark(replica_id: str) -> int:
    """64 bits for a replica."""
    return _mark(replica_id.encode())


def distance(session: int, replica: int, weight: float) -> float:
    """How far the replica is from the session, by their marks: exponentially distributed with the weight as its rate.

    The nearest of several is then each with the probability of its share of their weights.
    """
    mixed = session ^ replica
    mixed = ((mixed ^ (mixed >> 30)) * _FIRST) & _MASK
    mixed = ((mixed ^ (mixed >> 27)) * _SECOND) & _MASK
    mixed ^= mixed >> 31
    return -log(((mixed >> 11) + 0.5) * _UNIT) / weight


def _mark(data: bytes) -> int:
    return int.from_bytes(blake2b(data, digest_size=8).digest(), "big")
