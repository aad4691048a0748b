"""The keys of every endpoint outside the cluster. What is known of them outlives the endpoint's connections.

A key that rests does so until its rest is over, though nobody asked for the model meanwhile: an hour that a provider
named is longer than an unused pool is kept.
"""

from collections.abc import Collection, Sequence
from pathlib import Path

from llmgw.core.routing import RoutedReplica
from llmgw.router.provider_keys import KeyRing


class KeyRings:
    """A ring an endpoint and file."""

    def __init__(self, private: Sequence[Path] = ()) -> None:
        """No keys are read from files in `private`."""
        self._private = private
        self._rings: dict[tuple[str, str, str], KeyRing] = {}

    def of(self, replica: RoutedReplica) -> KeyRing:
        """The endpoint's ring, with what was known of its keys."""
        path = replica.external.keys_file if replica.external is not None else ""
        place = (replica.id, replica.endpoint, path)
        ring = self._rings.get(place)
        if ring is None:
            ring = self._rings[place] = KeyRing(path, self._private)
        return ring

    def sweep(self, used: Collection[KeyRing], now: float) -> None:
        """Forget rings of which no key rests, but for those in use."""
        for place, ring in list(self._rings.items()):
            if ring not in used and not ring.rests(now):
                del self._rings[place]
