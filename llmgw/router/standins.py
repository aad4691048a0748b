"""Which models answer in the place of others, said in the log once a change: never once a request."""

import logging

from llmgw.router.ports import Refusal

RECOVERED_S = 10.0
"""A model that answers again, and for which nobody answered for this long, is said to answer for itself again."""

log = logging.getLogger(__name__)


class Standins:
    """Models for which another one answered lately, as this router knows them. Times are monotonic seconds."""

    def __init__(self) -> None:
        self._standing: dict[str, tuple[str, float]] = {}
        """By the model that was asked for: who answered last, and when."""

    def answered(self, asked: str, model: str, why: Refusal, now: float) -> None:
        """`model` answered a request for `asked`, which could not for the reason in `why`."""
        before = self._standing.get(asked)
        if before is None or before[0] != model:
            log.info("model %s answers for %s, which cannot (%s)", model, asked, why.code or why.status)
        self._standing[asked] = (model, now)

    def own(self, asked: str, now: float) -> None:
        """The model answered a request for itself."""
        before = self._standing.get(asked)
        if before is not None and now - before[1] >= RECOVERED_S:
            del self._standing[asked]
            log.info("model %s answers for itself again", asked)
