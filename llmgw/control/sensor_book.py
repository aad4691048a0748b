"""Newest readings of nodes' sensors: of cards, of what wears out in them, and of what engines take.

A node is believed about its own cards only: names it makes up take no memory and change nobody else's figures.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence

from llmgw.control.resting import Resting
from llmgw.core.cluster import Replica
from llmgw.core.figures import CardFigures, NodeFigures, ReplicaFigures
from llmgw.core.wear import CardWear

NOT_TOLD = CardFigures()
"""Of a card nobody reports on."""


class SensorBook:
    """Readings by card and by node. Times are the leader's monotonic seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._cards: dict[str, CardFigures] = {}
        self._wear: dict[str, CardWear] = {}
        self._resting = Resting()
        self._engines: dict[str, dict[str, ReplicaFigures]] = {}
        """What engines take, by node and replica."""

    def sensed(self, node: str, cards: Iterable[str], figures: NodeFigures) -> bool:
        """What the node with these cards measured; whether something of it changed that seldom does."""
        self._engines[node] = figures.replicas
        # A card it is silent about, as of one that fell off the bus, has no figures: the last ones say nothing of now.
        told = {uuid: figures.cards.get(uuid, NOT_TOLD) for uuid in cards}
        changed = any(_lasting(self.figures(uuid)) != _lasting(sensed) for uuid, sensed in told.items())
        self._cards.update(told)
        self._resting.hear(told, self._clock())
        return changed

    def worn(self, cards: Iterable[str], wear: Mapping[str, CardWear]) -> None:
        """Newest counts of what wears out, of a node's own cards."""
        self._wear.update({uuid: wear[uuid] for uuid in cards if uuid in wear})

    def forget_cards(self, gone: Iterable[str]) -> None:
        """Cards that are not there any more."""
        for uuid in gone:
            self._cards.pop(uuid, None)
            self._wear.pop(uuid, None)
            self._resting.forget(uuid)

    def forget_node(self, name: str) -> None:
        """A node that is not there any more; its cards are told of apart."""
        self._engines.pop(name, None)

    def figures(self, card_uuid: str) -> CardFigures:
        """A card's newest readings."""
        return self._cards.get(card_uuid, NOT_TOLD)

    def resting_since(self, card_uuid: str) -> float | None:
        """The moment from which a card did nothing; none while it works or does not tell."""
        return self._resting.since(card_uuid)

    def wear(self, card_uuid: str) -> CardWear | None:
        """A card's newest counts; none where it keeps none."""
        return self._wear.get(card_uuid)

    def complaints(self, card_uuid: str) -> Sequence[str]:
        """What wears out in a card."""
        wear = self._wear.get(card_uuid)
        return () if wear is None else wear.problems()

    def takes(self, replica: Replica) -> ReplicaFigures:
        """What a replica's engine takes of its node."""
        return self._engines.get(replica.node, {}).get(replica.id, ReplicaFigures())

    def engines(self, node: str) -> Mapping[str, ReplicaFigures]:
        """What the node's engines take, by replica."""
        return self._engines.get(node, {})


def _lasting(figures: CardFigures) -> tuple[float | None, bool]:
    """What of a card's readings seldom changes: its power limit, and whether its SMs are counted."""
    return figures.power_limit_w, figures.sm_active_percent is not None
