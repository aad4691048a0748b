"""Since when each card does nothing, by what its sensors said: a card that is not in it works, or does not tell."""

from collections.abc import Mapping

from llmgw.core.card_use import rests, work_of
from llmgw.core.figures import CardFigures


class Resting:
    """Monotonic moments by UUID. Written by the inventory with every sample; others ask it."""

    def __init__(self) -> None:
        self._since: dict[str, float] = {}

    def hear(self, told: Mapping[str, CardFigures], now: float) -> None:
        """Newest readings of some cards."""
        for uuid, card in told.items():
            work = work_of(card.sm_active_percent, card.power_w, card.power_limit_w)
            if rests(card.utilization_percent, work):
                self._since.setdefault(uuid, now)
            else:
                self._since.pop(uuid, None)

    def forget(self, uuid: str) -> None:
        """The card is gone."""
        self._since.pop(uuid, None)

    def since(self, uuid: str) -> float | None:
        """The moment from which it did nothing; none while it works or does not tell."""
        return self._since.get(uuid)
