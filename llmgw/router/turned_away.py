"""Refusals of the waiting line: which band, which figure, and when to come back."""

import math

from llmgw.core.units import size
from llmgw.router.ports import Refusal

QUEUE_FULL, QUEUE_TIMEOUT = "queue_full", "queue_timeout"


class TurnedAway(Refusal):
    """A request that was not let in. `reason` is one of FULL, BYTES, DISPLACED and TIMEOUT."""

    def __init__(self, status: int, message: str, *, code: str, band: str, reason: str, retry_after_s: float) -> None:
        super().__init__(status, message, type="requests" if status == 429 else "server_error", code=code)
        self.retry_after_s = retry_after_s
        self.band = band
        self.reason = reason


FULL, BYTES, DISPLACED, TIMEOUT = "full", "bytes", "displaced", "timeout"


def no_place(model: str, band: str, waiting: int, limit: int, *, whole: bool, retry_after_s: float) -> TurnedAway:
    """All places to wait are taken: those of the band, or (`whole`) all there are."""
    taken = "all bands together" if whole else f"band {band!r}"
    message = f"{_busy(model)} and the queue is full: {waiting} of {limit} places of {taken} are taken. "
    return _full(message, band, FULL, retry_after_s)


def too_heavy(model: str, band: str, held: int, limit: int, size_bytes: int, retry_after_s: float) -> TurnedAway:
    """The request would wait, and its body does not fit beside those that wait."""
    message = (
        f"{_busy(model)} and the queue of band {band!r} is full: waiting requests hold {size(held)} of {size(limit)}, "
        f"and this one has {size(size_bytes)}. "
    )
    return _full(message, band, BYTES, retry_after_s)


def displaced(model: str, band: str, retry_after_s: float) -> TurnedAway:
    """It waited, all places were taken, and a request of a higher band came."""
    message = f"{_busy(model)}, the queue is full, and requests of a higher band than {band!r} came. "
    return _full(message, band, DISPLACED, retry_after_s)


def waited_too_long(model: str, band: str, waited_s: float, retry_after_s: float) -> TurnedAway:
    """It waited as long as it may."""
    return TurnedAway(
        504,
        f"{_busy(model)}: this request waited {waited_s:.3g} s in the queue of band {band!r}, as long as it may wait. "
        + _again(retry_after_s),
        code=QUEUE_TIMEOUT,
        band=band,
        reason=TIMEOUT,
        retry_after_s=retry_after_s,
    )


def _full(message: str, band: str, reason: str, retry_after_s: float) -> TurnedAway:
    return TurnedAway(
        429,
        message + _again(retry_after_s),
        code=QUEUE_FULL,
        band=band,
        reason=reason,
        retry_after_s=retry_after_s,
    )


def _busy(model: str) -> str:
    if not model:
        return "Every model that this key may use is at its limit"
    return f"The model {model[:140]!r} is at its limit"


def _again(seconds: float) -> str:
    return f"Try again in {max(1, math.ceil(seconds))} s."
