"""What a finished attempt means: for its replica's health, for the request, and for who may be asked next."""

from dataclasses import dataclass

from llmgw.router.breaker import Failure
from llmgw.router.ends import COMPLETE, ENGINE_REFUSES_ROUTER, End
from llmgw.router.errors import UNSUPPORTED, engine_failed, unsupported
from llmgw.router.limits import MAX_TOLD_S, PAUSE_LAST_S
from llmgw.router.ports import Refusal
from llmgw.router.relay import Stream
from llmgw.router.retry_after import retry_after_s
from llmgw.router.tls import PeerFailure

_NO_ANSWER = {End.CLOSED: "it closes connections without an answer", End.EMPTY: "what it answers is empty"}
BUSY = 429
UNAVAILABLE = 503


@dataclass(frozen=True, slots=True)
class Verdict:
    """Without a refusal the client has its answer, or as much of one as there will be."""

    refusal: Refusal | None = None
    """What the client is told if nobody else can be asked."""
    failure: Failure | None = None
    """What speaks against the replica."""
    well: bool = False
    """The replica proved to be well."""
    final: bool = False
    """No other replica would say anything else."""
    may_repeat: bool = False
    """Whether the same replica may be asked again when there is no other."""


NOTHING_PROVED = Verdict()
_WELL = Verdict(well=True)


def verdict(stream: Stream, *, external: bool) -> Verdict:
    """What to make of how `stream` ended; `external` is an endpoint outside the cluster."""
    end = stream.end
    if end is COMPLETE:
        return _WELL
    if end is End.LOST:
        broke_off = Failure("its answers break off midway", hung=stream.silent)
        # An error that broke off is still about what the client asked.
        return Verdict(failure=None if stream.expired or stream.status >= 400 else broke_off)
    if end is None or not end.before_start:
        return NOTHING_PROVED
    if end is End.STATUS and stream.refusal is not None:
        return Verdict(stream.refusal, well=True, final=stream.refusal.code != UNSUPPORTED)
    if end is End.STATUS:
        return _of_status(stream.status, stream.retry_after, external=external)
    if end is End.SLOW:
        slow = None if stream.expired else Failure("it gives no first byte in time", hung=True, waited=True)
        return Verdict(engine_failed(504, "The model's engine gave no answer in time.", "engine_timeout"), slow)
    refusal = engine_failed(502, f"No answer from the model: {end.value}.", "engine_lost")
    return Verdict(refusal, Failure(_NO_ANSWER.get(end, "what it answers is not HTTP")), may_repeat=True)


def unreachable(error: OSError) -> Verdict:
    """The connection failed."""
    reason = error.strerror or str(error) or type(error).__name__
    # A certificate that is refused is the one thing about the way there that its readers can do something about.
    told = isinstance(error, PeerFailure)
    what = f"provider could not be reached: {error}" if told else "engine could not be reached"
    refusal = engine_failed(502, f"The model's {what}.", "engine_unreachable")
    failure = Failure(f"it cannot be reached: {reason}", at_once=True, hung=isinstance(error, TimeoutError))
    return Verdict(refusal, failure, may_repeat=True)


def _of_status(status: int, retry_after: bytes, *, external: bool) -> Verdict:
    """An answer that no client may read."""
    told_s = retry_after_s(retry_after)
    if told_s is not None:
        told_s = min(told_s, MAX_TOLD_S if external else PAUSE_LAST_S)
    if status == 501:
        return Verdict(unsupported(), well=True)
    if status == BUSY:
        return _busy(told_s, external=external)
    refusal = engine_failed(
        status if status in (UNAVAILABLE, 504) else 502, f"The model's engine answered {status}.", "engine_error"
    )
    if status in ENGINE_REFUSES_ROUTER:
        return Verdict(refusal, Failure(f"it refuses the key it is shown ({status})", at_once=True))
    if status == UNAVAILABLE and told_s:
        refusal.retry_after_s = told_s
        return Verdict(refusal, Failure("it asks to be left alone (503)", at_once=True, hung=True, pause_s=told_s))
    return Verdict(refusal, Failure(f"it answers {status}"), may_repeat=status >= 500)


def _busy(told_s: float | None, *, external: bool) -> Verdict:
    """A 429: an engine's is about this moment, a provider's about everyone who uses the same account."""
    refusal = Refusal(
        429 if not external else 503,
        "The model is busy: nobody who serves it takes another request at the moment.",
        type="rate_limit_error" if not external else "service_unavailable_error",
        code="engine_busy",
        retry_after_s=told_s or 1.0,
    )
    if not external:
        return Verdict(refusal, well=True)
    limited = Failure("its provider's limits are reached (429)", at_once=True, hung=True, pause_s=told_s or 0.0)
    return Verdict(refusal, limited)
