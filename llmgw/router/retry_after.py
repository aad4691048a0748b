"""`Retry-After` of an engine or provider, which may say anything."""

import email.utils
import math
import time

from llmgw.router.limits import MAX_TOLD_S


def retry_after_s(value: bytes, *, wall: float | None = None) -> float | None:
    """Seconds until the moment the header names, a number of seconds or an HTTP date; none when it names none.

    `wall` is Unix seconds, the clock's by default. What lies in the past is 0.
    """
    text = value.decode("latin-1").strip()
    if not text:
        return None
    if text.isascii() and text.replace(".", "", 1).isdigit() and len(text) < 16:
        return float(text)
    try:
        moment = email.utils.parsedate_to_datetime(text).timestamp()
    except (ValueError, TypeError, OverflowError, IndexError):
        return None
    return max(0.0, moment - (time.time() if wall is None else wall))


def whole_seconds(value: bytes) -> bytes:
    """The same for a client: whole seconds, one at least, and one for whoever names none."""
    return b"%d" % min(MAX_TOLD_S, max(1, math.ceil(retry_after_s(value) or 1.0)))
