"""What an endpoint outside the cluster answers about the gateway itself: its keys, its limits, its certificate.

A client is told of its provider's limits in the provider's own words, and never of the gateway's keys more than that
they were refused.
"""

from llmgw.router.breaker import Failure
from llmgw.router.errors import engine_failed
from llmgw.router.ports import Refusal
from llmgw.router.provider_keys import LIMITED, REFUSED, KeyRing, NoKeys, Resting
from llmgw.router.relay import Stream
from llmgw.router.retry_after import retry_after_s
from llmgw.router.verdicts import Verdict


def judged(found: Verdict, stream: Stream, keys: KeyRing, key: str, now: float) -> Verdict:
    """`found` corrected for an endpoint that was shown `key`, which rests if that was refused."""
    status = stream.status
    if status not in REFUSED and status != LIMITED:
        if 200 <= status < 300:
            keys.worked(key, now)
        return found
    rest_s = keys.refused(key, status, retry_after_s(stream.retry_after), now)
    # While some key may be used the endpoint is as good as before.
    failure = None if rest_s == 0.0 else _failure(status, rest_s)
    refusal = None
    if found.refusal is not None:
        refusal = _limited(rest_s or 1.0) if status == LIMITED else _refused(status)
    return Verdict(refusal, failure, may_repeat=refusal is not None and keys.has_other(key, now))


def keyless(error: NoKeys | Resting) -> Verdict:
    """There is no key to show, so nobody was asked."""
    if isinstance(error, NoKeys):
        refusal = engine_failed(502, "The gateway has no key for the model's provider.", "provider_key_missing")
        return Verdict(refusal, Failure(str(error), at_once=True))
    status = LIMITED if error.limited else 401
    refusal = _limited(error.retry_after_s) if error.limited else _refused(status)
    # Whoever found out what every other request would: nobody is asked before the first rest is over.
    return Verdict(refusal, _failure(status, error.retry_after_s))


def _failure(status: int, rest_s: float) -> Failure:
    if status == LIMITED:
        words = "its provider's limits are reached (429)"
    else:
        words = f"its provider refuses the gateway's key ({status})"
    return Failure(words, at_once=True, hung=True, pause_s=rest_s)


def _limited(retry_after_s_: float) -> Refusal:
    return Refusal(
        429,
        "The model's provider takes no more requests from this gateway for the moment.",
        type="rate_limit_error",
        code="provider_rate_limited",
        retry_after_s=retry_after_s_,
    )


def _refused(status: int) -> Refusal:
    message = f"The model's provider refused the gateway's key ({status}): its operator has to mend that."
    return engine_failed(502, message, "provider_refused_key")
