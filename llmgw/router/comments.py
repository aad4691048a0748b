"""Comments that tell the client of a stream that it is still served, though there is nothing to say.

The head they need is ours and goes out at most once. It commits the answer to be a stream of events, and no engine:
whatever comes later, an answer, another replica's or an error, follows as events under it.
"""

import msgspec

from llmgw.router.events import DONE_EVENT
from llmgw.router.limits import KEEP_ALIVE_S
from llmgw.router.ports import Refusal, Reservation
from llmgw.router.responses import Framing
from llmgw.router.shapes import OPENAI, Shape

COMMENT = b": keep-alive\n\n"
LAST_CHUNK = b"0\r\n\r\n"
_decode = msgspec.json.Decoder().decode
_encode = msgspec.json.Encoder().encode


class Comments:
    """The comments of one request, over all its attempts. Costs nothing until one is due."""

    __slots__ = (
        "_keep_alive",
        "_request_id",
        "_shape",
        "_told",
        "answered_by",
        "framing",
        "opened",
        "reservation",
        "said_at",
    )

    def __init__(
        self,
        *,
        request_id: bytes,
        http11: bool,
        keep_alive: bool,
        began_at: float,
        reservation: Reservation | None = None,
        shape: Shape = OPENAI,
    ) -> None:
        self.reservation = reservation
        """What the request is charged, for the head to say how near its limits are."""
        self._shape = shape
        self._request_id = request_id
        self._keep_alive = keep_alive
        self.framing = Framing.CHUNKED if http11 else Framing.CLOSE
        self.opened = False
        """Whether the head went out, and with it the status 200."""
        self.said_at = began_at
        """Monotonic seconds of the last comment, or when the request began."""
        self.answered_by = self._told = b""
        """Header lines, each with its CRLF, that say that another model answers than was asked for."""

    @property
    def must_close(self) -> bool:
        """Whether the client's connection ends with the answer."""
        return not self._keep_alive or self.framing is Framing.CLOSE

    def due(self, now: float, heard_at: float) -> bool:
        """Whether the client, who heard something else at `heard_at`, has heard nothing for too long."""
        return now - self.said_at >= KEEP_ALIVE_S and now - heard_at >= KEEP_ALIVE_S

    def say(self, now: float, *, headless: bool) -> bytes:
        """The next comment as it is sent, after our head if no other went out (`headless`); it counts as said."""
        self.said_at = now
        head = b""
        if headless and not self.opened:
            self.opened = True
            head = self._head()
        return head + self.framed(COMMENT)

    def late_words(self) -> bytes:
        """What an answer's own head would have said beyond ours that went out before it, as a comment."""
        if self.answered_by == self._told or not self.answered_by:
            return b""
        self._told = self.answered_by
        lines = b"".join(b": %b\n" % line for line in self.answered_by.split(b"\r\n") if line)
        return self.framed(lines + b"\n")

    def framed(self, data: bytes, *, last: bool = False) -> bytes:
        """`data` as part of the body, and the body's end."""
        if self.framing is not Framing.CHUNKED:
            return data
        return b"%x\r\n%b\r\n%b" % (len(data), data, LAST_CHUNK if last else b"")

    def ending(self, refusal: Refusal) -> bytes:
        """What ends an opened answer that nobody gave."""
        return self.late_words() + self.framed(self._shape.broken(refusal), last=True)

    def _head(self) -> bytes:
        framing = b"transfer-encoding: chunked\r\n" if self.framing is Framing.CHUNKED else b""
        closing = b"connection: close\r\n" if self.must_close else b""
        extra = (self.reservation.head_lines if self.reservation is not None else b"") + self.answered_by
        self._told = self.answered_by
        return (
            b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\ncache-control: no-cache\r\n"
            b"x-request-id: %b\r\n%b%bx-accel-buffering: no\r\n%b\r\n" % (self._request_id, extra, framing, closing)
        )


def document_as_events(status: int, body: bytes, shape: Shape = OPENAI) -> bytes:
    """An engine's answer that is no stream, for a client that was promised one: its error if it holds one, and the end.

    `body` is empty for one too long to be an error.
    """
    try:
        document = _decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        document = None
    error = document.get("error") if isinstance(document, dict) else None
    if status >= 400 and isinstance(error, dict):
        if shape is not OPENAI:
            message = error.get("message")
            return shape.broken(
                Refusal(status, message if isinstance(message, str) else f"The engine answered {status}.")
            )
        return b"data: " + _encode({"error": error}) + b"\n\n" + DONE_EVENT
    what = f"The model's engine answered {status}." if status >= 400 else "The model's engine did not stream."
    return shape.broken(Refusal(502, what, type="server_error", code="engine_error"))
