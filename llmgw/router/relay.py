"""One answer on its way from an engine to a client: one read there, one write here, and nothing in between waits.

Until `started` not a byte of an answer has reached the client, though comments may have, and a failure leaves the
request free to be tried elsewhere. From then on every end is visible to the client: the proper end, an error event and
`[DONE]`, or a body short of its length.
A stream ends exactly once: `end` is set, the engine's connection is released or closed, and the signal fires.
"""

import time
from bisect import bisect_left
from collections.abc import Callable, Sequence
from typing import Protocol

from llmgw.core.meters import INTER_TOKEN_S
from llmgw.core.routing import Timeouts
from llmgw.router.comments import Comments, document_as_events
from llmgw.router.ends import COMPLETE, End, engines_own
from llmgw.router.engine_errors import engine_refusal, looked_into, says_error
from llmgw.router.errors import engine_failed
from llmgw.router.events import EventStream
from llmgw.router.express import express, settled
from llmgw.router.limits import MAX_ENGINE_BODY_BYTES, USAGE_TAIL_BYTES
from llmgw.router.masking import Mask
from llmgw.router.meters import Cells, new_cells
from llmgw.router.ports import Refusal, Reservation
from llmgw.router.reactor import Reactor, Signal
from llmgw.router.responses import CHUNKED, CLOSE, Framing, head_of, is_event_stream
from llmgw.router.retry_after import retry_after_s
from llmgw.router.routes import Route
from llmgw.router.token_usage import Usage, usage_at_end
from llmgw.router.upstream import Header, Upstream


class Client(Protocol):
    """The client's side of a stream."""

    stream: "Stream | None"
    signal: Signal

    def send(self, data: bytes, /) -> int:
        """One non-blocking send; raises OSError."""

    def abort(self) -> None:
        """Close the connection without another byte, throwing away what waits to be sent."""


class Stream:
    """Relays one attempt of a request. `start(upstream, request)`, then wait for `client.signal`, then read `end`."""

    __slots__ = (
        "_body_bytes",
        "_closing",
        "_comments",
        "_express",
        "_first_byte_s",
        "_framing",
        "_head",
        "_held_back",
        "_http11",
        "_keep_alive",
        "_on_answer",
        "_progress",
        "_reactor",
        "_refused",
        "_request_id",
        "_settle",
        "_shares_429",
        "_tail",
        "_timeouts",
        "_total_at",
        "_withhold",
        "answered_by",
        "begun_at",
        "client",
        "end",
        "events",
        "expired",
        "first_at",
        "gaps",
        "heard_at",
        "mask",
        "must_close",
        "pending",
        "refusal",
        "reservation",
        "retry_after",
        "route",
        "silent",
        "started",
        "status",
        "token_at",
        "upstream",
    )

    def __init__(
        self,
        reactor: Reactor,
        client: Client,
        timeouts: Timeouts,
        *,
        request_id: bytes,
        http11: bool,
        keep_alive: bool,
        withhold: bool,
        total_at: float,
        gaps: Cells | None = None,
        first_byte_s: float | None = None,
        comments: Comments | None = None,
        shares_429: bool = True,
        on_answer: Callable[[float], None] | None = None,
        route: Route = Route.CHAT,
    ) -> None:
        """`first_byte_s` may be shorter than the timeout of that name; `comments` are for who asked for a stream.

        `shares_429` tells whether an engine's 429 is for the client to read; `on_answer` is called at `started`.
        """
        self._reactor = reactor
        self.client = client
        self._express: Callable[[int], None] | None = None
        self._settle: Callable[[], None] = settled
        self._timeouts = timeouts
        self._request_id = request_id
        self._http11 = http11
        self._keep_alive = keep_alive
        self._withhold = withhold
        self._total_at = total_at
        self._first_byte_s = timeouts.first_byte if first_byte_s is None else first_byte_s
        self._comments = comments
        self._shares_429 = shares_429
        self._on_answer = on_answer
        self.route = route
        self._refused = False
        """The engine's answer is not for the client."""
        self._held_back = False
        """The engine's answer is an error of which it depends on the whole whether it is for the client."""
        self.refusal: Refusal | None = None
        """What the client is told instead of it."""
        self.retry_after = b""
        """What an engine that would not answer, or not now, had to say of when to come back."""
        self.expired = False
        """The request as a whole ran out of time, for which this engine need not be to blame."""
        self.silent = False
        """It was lost because the engine said nothing more."""
        self.gaps = new_cells(INTER_TOKEN_S) if gaps is None else gaps
        """Where gaps between tokens are counted (`meters.Meter.gaps`)."""
        self.token_at = 0.0
        """When the last read came that brought tokens, or the client took what held the engine up."""
        self.upstream: Upstream | None = None
        self.end: End | None = None
        self.status = 0
        """The engine's status, once its head is there."""
        self.events: EventStream | None = None
        """Set when the engine streams events."""
        self.reservation: Reservation | None = None
        """Set for a request with limits: the answer says how near they are."""
        self.answered_by = b""
        """Header lines, each with its CRLF, that say that another model answers than was asked for."""
        self.mask: Mask | None = None
        """Set for a provider that was shown a key: no body, and no error in a stream, may show it to the client."""
        self.started = False
        """Whether a byte of an answer was given to the client."""
        self.must_close = False
        """Whether the client's connection ends with this answer."""
        self.pending = b""
        """What the client did not take yet."""
        self.begun_at = self.first_at = self.heard_at = self._progress = 0.0
        self._head = b""
        self._framing: Framing = CLOSE
        self._closing = False
        self._body_bytes = 0
        self._tail = b""

    def start(self, upstream: Upstream, request: bytes, rest: Sequence[memoryview] = ()) -> Signal:
        """Send the request, and the `rest` of it, and relay what comes; the signal fires once, when `end` is set."""
        self.begun_at = self.heard_at = time.monotonic()
        self.upstream = upstream
        self.client.stream = self
        upstream.begin(self, request, rest)
        return self.client.signal

    def on_head(self, status: int, headers: list[Header]) -> None:
        """The engine's head. It waits for the first byte of the body, so that both leave in one segment."""
        self.status = status
        if status == 429 or engines_own(status):
            self.retry_after = next((value for name, value in headers if name == b"retry-after"), b"")
            self._refused = status != 429 or not self._shares_429
            if self._refused:
                return
        if self.mask is not None:
            mask = self.mask
            headers = [(name, value) for name, value in headers if not mask.hides(value)]
        events = status == 200 and is_event_stream(headers)
        if events:
            self.events = self.route.shape.events(withhold=self._withhold)
        elif status >= 400:
            self._held_back = looked_into(self.route, status)
        self._head, self._framing = head_of(
            status,
            headers,
            request_id=self._request_id,
            http11=self._http11,
            events=events,
            keep_alive=self._keep_alive,
            extra=(self.reservation.head_lines if self.reservation is not None else b"") + self.answered_by,
        )
        self.must_close = not self._keep_alive or self._framing is CLOSE

    def advance(self) -> None:
        """Pass on what the last read brought."""
        upstream = self.upstream
        if upstream is None or not self.status:
            return
        if self._refused:
            self._fail(End.STATUS)
            return
        self._settle()
        parts = upstream.parts
        body = parts[0] if len(parts) == 1 else b"".join(parts)
        parts.clear()
        last = upstream.complete
        now = self._reactor.now
        events = self.events
        if events is not None:
            counted = events.events
            out = events.feed(body) if body else b""
            if last:
                out += events.finish()
            if events.events > counted:
                self._count_gap(now)
            if out:  # bytes that complete no event are silence, however many
                self.heard_at = now
            if events.loose and not self._bearable(body):
                return
            if self.mask is not None:
                out = self.mask.feed(out, last=last)
        else:
            self.heard_at = now
            if self.mask is not None:
                body = self.mask.feed(body, last=last)
            out = body
            if not self._measure(body) or (self._held_back and not self.started and self._keeps_back(last)):
                return
            if self._held_back and not self.started:
                out = self._tail  # all of it: a longer one would have been kept back
            if self._comments is not None and self._comments.opened and not self.started:
                if not last:
                    return
                body = self._tail if self._body_bytes <= USAGE_TAIL_BYTES else b""
                out = document_as_events(self.status, body, self.route.shape)
        if out or last:
            self._give(out, last)

    def _keeps_back(self, last: bool) -> bool:
        """Whether an error of the engine's is not for the client yet, or, the stream then having ended, not at all."""
        short = self._body_bytes <= USAGE_TAIL_BYTES
        if short and not last:
            return True
        self.refusal = engine_refusal(self.route, self.status, self._tail if short else b"")
        if self.refusal is None:
            return False
        if self.status == 429:
            self.refusal.retry_after_s = retry_after_s(self.retry_after)
        if last and self.upstream is not None:
            self.upstream.release()
            self.upstream = None
        self._fail(End.STATUS)
        return True

    def express(self) -> Callable[[int], None] | None:
        """A quicker handler for the engine's connection, which stands between two chunks; none if this is no time."""
        events, upstream = self.events, self.upstream
        if events is None or upstream is None or not events.between or self._framing is not CHUNKED:
            return None
        if self.mask is not None:  # it must see every byte
            return None
        if not self.started or not self.first_at or self.pending or self._closing:
            return None
        if self._express is None:
            self._express, self._settle = express(upstream, self, events, self._reactor)
        return self._express

    def settle(self) -> None:
        """Have `events`, `heard_at` and `token_at` say what passed so far, for whoever looks before the end."""
        self._settle()

    def _count_gap(self, now: float) -> None:
        """A read brought tokens: the first of the answer, or some after a gap."""
        if self.first_at:
            gap = now - self.token_at
            self.gaps[bisect_left(INTER_TOKEN_S, gap)] += 1
            self.gaps[-1] += gap
        else:
            self.first_at = now
        self.token_at = now

    def _measure(self, body: bytes) -> bool:
        """Keep the end of an unstreamed body for its usage; whether it is still of a bearable size."""
        if not self._bearable(body):
            return False
        if len(body) >= USAGE_TAIL_BYTES:
            self._tail = body[-USAGE_TAIL_BYTES:]
        else:
            self._tail = (self._tail + body)[-USAGE_TAIL_BYTES:]
        if not self.first_at and body:
            self.first_at = self.heard_at
        return True

    def _bearable(self, body: bytes) -> bool:
        """Whether what has no end yet, a body or events passed on in pieces, is still short enough to be honest."""
        self._body_bytes += len(body)
        if self._body_bytes > MAX_ENGINE_BODY_BYTES:
            self._lose("engine_answer_too_long", "The engine's answer is too long.")
            return False
        return True

    def _give(self, out: bytes, last: bool) -> None:
        """Hand bytes to the client in one send, framed, the head before the first."""
        head = b"" if self.started else self._begin()
        if self._framing is CHUNKED:
            if out:
                out = b"%x\r\n%b\r\n0\r\n\r\n" % (len(out), out) if last else b"%x\r\n%b\r\n" % (len(out), out)
            elif last:
                out = b"0\r\n\r\n"
        if head:
            out = head + out
        if last:
            self._closing = True
            if self.end is None and self.upstream is not None:
                self.upstream.release()
                self.upstream = None
        self._send(out, last)

    def _begin(self) -> bytes:
        """An answer begins: its head, unless comments had to have one before it."""
        self.started = True
        if self._on_answer is not None:
            self._on_answer(self._reactor.now)
        comments, head = self._comments, self._head
        if comments is not None and comments.opened:
            self._framing, self.must_close, head = comments.framing, comments.must_close, comments.late_words()
        return head

    def _send(self, out: bytes, last: bool) -> None:
        """One send; what the client does not take waits, and the engine with it."""
        if self.pending:
            self.pending += out
            return
        try:
            sent = self.client.send(out)
        except BlockingIOError:
            sent = 0
        except OSError:
            self.client_left()
            return
        if sent == len(out):
            if last:
                self._finish(COMPLETE)
            return
        self.hold(out[sent:])

    def hold(self, rest: bytes) -> None:
        """The client did not take all: the engine waits until it did."""
        self.pending = rest
        self._progress = self._reactor.now
        if self.upstream is not None:
            self.upstream.pause()
        self.flush()

    def flush(self) -> None:
        """The client may take more of what is pending."""
        while self.pending:
            try:
                sent = self.client.send(self.pending)
            except BlockingIOError:
                return
            except OSError:
                self.client_left()
                return
            self.pending = self.pending[sent:]
            self._progress = self._reactor.now
        if self._closing:
            self._finish(COMPLETE)
        elif self.upstream is not None:
            # The wait was the client's.
            self.heard_at = self.token_at = self._reactor.now
            self.upstream.resume()

    def on_eof(self) -> None:
        """The engine's connection ended: properly, if only that could end the answer and nothing is missing."""
        upstream = self.upstream
        ended_by_close = upstream is not None and self.status and upstream.until_close and not upstream.complete
        # A stream says by itself where its end is; anything else may have been cut when TLS ended without a goodbye.
        whole = self.events.done if self.events is not None else upstream is not None and not upstream.broken
        if upstream is not None and ended_by_close and whole:
            upstream.complete = True
            self.advance()
            return
        self._lost_or_fail(End.CLOSED, "The engine's connection was lost before the answer was complete.")

    def on_garbage(self) -> None:
        """The engine's bytes make no sense from here on."""
        self._lost_or_fail(End.GARBAGE, "The engine's answer broke off: what followed was not HTTP.")

    def client_left(self) -> None:
        """The client's connection is gone: the engine need not go on."""
        self._drop_upstream()
        self.must_close = True
        self._finish(End.LEFT)

    def tick(self, now: float) -> None:
        """Look at the deadlines; `now` is monotonic seconds."""
        limits = self._timeouts
        self._settle()
        if self.pending:
            if now - self._progress > limits.client_stall:
                self._drop_upstream()
                self.must_close = True
                self.client.abort()
                self._finish(End.STALLED)
        elif now > self._total_at:
            self.expired = True
            self._lost_or_fail(End.SLOW, f"The answer took longer than {limits.total:g} s.")
        elif not self.started:
            if now - self.begun_at > self._first_byte_s:
                self._fail(End.SLOW)
            else:
                self._comment(now)
        elif now - self.heard_at > limits.inter_token:
            self.silent = True
            self._lose("engine_timeout", f"The engine sent nothing for {limits.inter_token:g} s.")
        else:
            self._comment(now)

    def _comment(self, now: float) -> None:
        """Break a long silence; within an answer only between two events."""
        comments = self._comments
        if comments is None or not comments.due(now, self.heard_at if self.started else 0.0):
            return
        events = self.events
        if self.started and (events is None or events.loose or events.done):
            return
        self._send(comments.say(now, headless=not self.started), last=False)

    def usage(self) -> Usage | None:
        """What the engine said it used, if it did."""
        if self.events is not None:
            return self.events.usage
        return usage_at_end(self._tail)

    @property
    def body_bytes(self) -> int:
        """Length so far of an answer that is no stream of events."""
        return self._body_bytes

    @property
    def says_error(self) -> bool:
        """Whether an answer that is well by its status is, or ends with, an error in the engine's words."""
        if self.events is not None:
            return self.events.says_error
        return self.status < 400 and self._body_bytes <= USAGE_TAIL_BYTES and says_error(self._tail)

    def _lost_or_fail(self, before: End, message: str) -> None:
        if self.started:
            self._lose("engine_timeout" if before is End.SLOW else "engine_lost", message)
        else:
            self._fail(before)

    def _fail(self, end: End) -> None:
        self._drop_upstream()
        self._finish(end)

    def _lose(self, code: str, message: str) -> None:
        """The answer breaks off after it began: say so in a way that no client takes for the end."""
        self._drop_upstream()
        events = self.events
        if not self.started:
            self._finish(End.GARBAGE)
            return
        self.end = End.LOST
        if events is None:
            self.must_close = True
            self.client.abort()
            self._finish(End.LOST)
            return
        tail = self.route.shape.broken(engine_failed(502, message, code), events)
        self._give(b"\n\n" + tail if events.loose else tail, last=True)

    def _drop_upstream(self) -> None:
        if self.upstream is not None:
            self.upstream.close()
            self.upstream = None

    def _finish(self, end: End) -> None:
        if self.client.stream is not self:
            return
        if self.end is None or end in (End.LEFT, End.STALLED):
            self.end = end
        self.pending = b""
        self._settle()
        self._express, self._settle = None, settled  # they know this stream: without the circle all are gone at once
        self.client.stream = None
        self._reactor.woken = True
        self.client.signal.set()
