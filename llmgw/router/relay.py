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
from llmgw.router.engine_errors import cut_refusal, engine_refusal, is_json, says_error
from llmgw.router.errors import engine_failed
from llmgw.router.events import BOM, COMMENTS_ONLY, DONE_EVENT, EVENT_FIELDS, EventStream
from llmgw.router.express import express, settled
from llmgw.router.limits import AFTER_LAST_S, LEADING_BYTES, MAX_ENGINE_BODY_BYTES, STALE_S, USAGE_TAIL_BYTES
from llmgw.router.masking import Mask
from llmgw.router.meters import Cells, new_cells
from llmgw.router.ports import Refusal, Reservation
from llmgw.router.provider_keys import UNPAID
from llmgw.router.reactor import Reactor, Signal
from llmgw.router.responses import CHUNKED, CLOSE, Framing, head_of, is_encoded, is_event_stream
from llmgw.router.retry_after import retry_after_s, whole_seconds
from llmgw.router.routes import Route
from llmgw.router.shapes import MEDIA
from llmgw.router.token_usage import Usage, usage_at_end, usage_at_start
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
        "_had_all",
        "_head",
        "_held_back",
        "_http11",
        "_keep_alive",
        "_kept",
        "_lead",
        "_leading",
        "_on_answer",
        "_progress",
        "_reactor",
        "_refused",
        "_request_id",
        "_settle",
        "_shares_429",
        "_stale",
        "_tail",
        "_timeouts",
        "_total_at",
        "_unnamed",
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
        self._stale = False
        """What answered was the end of a kept connection."""
        self._held_back = False
        """The engine's answer is an error, of which it depends on the whole whether it is for the client."""
        self._kept = b""
        """What of it came so far."""
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
        self._had_all = False
        """Whether the stream's last event had gone by before what is being passed on."""
        self._unnamed: list[Header] | None = None
        """The head of an answer that says of no stream, while its first bytes may yet show that it is one."""
        self._body_bytes = 0
        self._tail = self._lead = b""
        self._leading = b""
        """Comments before the first event, which are no answer yet."""

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
        if status == 429 or engines_own(status) or (status == UNPAID and self.mask is not None):
            self.retry_after = next((value for name, value in headers if name == b"retry-after"), b"")
            self._refused = status != 429 or not self._shares_429
            if self._refused:
                return
            headers = [(name, value) for name, value in headers if name != b"retry-after"]
            headers.append((b"retry-after", whole_seconds(self.retry_after)))
        elif status == 408 and self._had_ended(headers):
            self.status, self._stale = 0, True
            return
        if self.mask is not None:
            mask = self.mask
            headers = [(name, value) for name, value in headers if not mask.hides(value)]
        events = status < 300 and is_event_stream(headers)
        if status >= 400:
            self._held_back = True
        elif not events and self._comments is not None and not is_encoded(headers):
            self._unnamed = headers
        self._frame(headers, events=events)

    def _had_ended(self, headers: list[Header]) -> bool:
        """Whether an engine's 408 is about a kept connection, which it had left idle for too long, and no request."""
        if self.upstream is None or not self.upstream.reused or self._reactor.now - self.begun_at > STALE_S:
            return False
        return any(name == b"connection" and value.lower() == b"close" for name, value in headers)

    def _frame(self, headers: list[Header], *, events: bool) -> None:
        """Make the head for the client, and what reads `events`."""
        if events:
            self.events = self.route.shape.events(withhold=self._withhold)
        self._head, self._framing = head_of(
            self.status,
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
        if self._stale:
            self._fail(End.CLOSED)
            return
        if upstream is None or not self.status:
            return
        if self._refused:
            self._fail(End.STATUS)
            return
        self._settle()
        if self._unnamed is not None and not self._tell_apart(upstream):
            return
        parts = upstream.parts
        body = parts[0] if len(parts) == 1 else b"".join(parts)
        parts.clear()
        last, events = upstream.complete, self.events
        out = self._of_document(body, last) if events is None else self._of_events(events, body, last)
        if out is not None and (out or last):
            self._give(out, last)

    def _of_events(self, events: EventStream, body: bytes, last: bool) -> bytes | None:
        """What of a stream goes to the client now; none if the attempt ended, or only comments came so far."""
        counted, now = events.events, self._reactor.now
        self._had_all = events.done
        out = events.feed(body) if body else b""
        if last:
            rest = events.finish()
            said = self.started or events.usage or rest.removeprefix(DONE_EVENT)
            if not said and COMMENTS_ONLY.fullmatch(out) is not None:
                self._fail(End.EMPTY)
                return None
            out += rest if events.done or not self.route.shape.one_end else self._unfinished(rest, events)
        if events.events > counted:
            self._count_gap(now)
        if out:  # bytes that complete no event are silence, however many
            self.heard_at = now
        if events.loose and not self._bearable(body):
            return None
        if out and not self.started:
            out, self._leading = self._leading + out, b""
            if not last and len(out) < LEADING_BYTES and COMMENTS_ONLY.fullmatch(out) is not None:
                self._leading = out
                return None
        return out if self.mask is None else self.mask.feed(out, last=last)

    def _of_document(self, body: bytes, last: bool) -> bytes | None:
        """What of an answer that is no stream goes to the client now; none if the attempt ended, or it must wait."""
        self.heard_at = self._reactor.now
        if self.mask is not None:
            body = self.mask.feed(body, last=last)
        if last and not (body or self._body_bytes) and self.status < 300 and self.route.shape is not MEDIA:
            self._fail(End.EMPTY)  # there is no JSON of no bytes, though a sound may be that short
            return None
        if not self._measure(body):
            return None
        if self._held_back and not self.started:
            body = self._kept + body
            self._kept = body if self._body_bytes <= USAGE_TAIL_BYTES else b""
            if self._keeps_back(last):
                return None
        if self._comments is None or not self._comments.opened or self.started:
            return body
        if not last:
            return None
        return document_as_events(
            self.status, self._tail if self._body_bytes <= USAGE_TAIL_BYTES else b"", self.route.shape
        )

    def _tell_apart(self, upstream: Upstream) -> bool:
        """Whether enough arrived to see if an answer to who wants events is one, whatever its head says of it."""
        came = b"".join(upstream.parts)
        begins = came.removeprefix(BOM).lstrip(b"\r\n")
        may_wait = not upstream.complete and len(came) <= LEADING_BYTES
        if may_wait and any(field.startswith(begins) for field in EVENT_FIELDS):
            return False
        headers, self._unnamed = self._unnamed or [], None
        if begins.startswith(EVENT_FIELDS):
            named = [(name, value) for name, value in headers if name != b"content-type"]
            self._frame([*named, (b"content-type", b"text/event-stream")], events=True)
        return True

    def _unfinished(self, rest: bytes, events: EventStream) -> bytes:
        """The `rest` of events that the engine ended before the last one came, and an error that says so."""
        self._drop_upstream()
        self.end = End.LOST
        refusal = engine_failed(502, "The engine ended its answer before the last event.", "engine_lost")
        return rest + self.route.shape.broken(refusal, events)

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
        if self._body_bytes - len(body) <= USAGE_TAIL_BYTES < self._body_bytes:
            self._lead = (self._tail + body)[:USAGE_TAIL_BYTES]
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
            if not self._had_all:
                self.pending = out
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
        if self._has_all:
            self._end_whole()
            return
        upstream = self.upstream
        ended_by_close = upstream is not None and self.status and upstream.until_close and not upstream.complete
        if upstream is not None and ended_by_close and self._looks_whole(upstream):
            upstream.complete = True
            self.advance()
            return
        self._lost_or_fail(End.CLOSED, "The engine's connection was lost before the answer was complete.")

    def _looks_whole(self, upstream: Upstream) -> bool:
        """Whether an answer that only its connection's end ends may be all there."""
        if self.events is not None:
            return self.events.done
        if upstream.broken:  # TLS ended without a goodbye
            return False
        if not (self._lead or self._tail).lstrip().startswith(b"{"):
            return True
        return self._tail.rstrip().endswith(b"}") if self._lead else is_json(self._tail)

    def on_garbage(self) -> None:
        """The engine's bytes make no sense from here on."""
        if self._has_all:
            self._end_whole()
            return
        self._lost_or_fail(End.GARBAGE, "The engine's answer broke off: what followed was not HTTP.")

    @property
    def _has_all(self) -> bool:
        """Whether the stream's one last event went by: whatever becomes of the engine, the client has its answer."""
        return self.events is not None and self.events.done and self.started and self.route.shape.one_end

    def _end_whole(self) -> None:
        """End a stream whose last event went by, and whose body the engine did not end."""
        self._drop_upstream()
        self._had_all = True
        rest = self.events.finish() if self.events is not None else b""
        if self.mask is not None:
            rest = self.mask.feed(rest, last=True)
        self._give(rest, last=True)

    def client_left(self) -> None:
        """The client's connection is gone: the engine need not go on."""
        self._drop_upstream()
        self.must_close = True
        # Many leave as soon as they read the last event, with an answer that is whole.
        self._finish(COMPLETE if self._has_all and not self.pending else End.LEFT)

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
        elif now - self.heard_at > AFTER_LAST_S and self._has_all:
            self._end_whole()
        elif now > self._total_at:
            self.expired = True
            self._lost_or_fail(End.SLOW, f"The answer took longer than {limits.total:g} s.")
        elif not self.started:
            if now - (self.heard_at if self._leading else self.begun_at) > self._first_byte_s:
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
        return usage_at_end(self._tail) or usage_at_start(self._lead)

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
        if self._held_back and end is not End.STATUS:
            # What the engine meant stands in its status, though its words are not all there.
            self.refusal = cut_refusal(self.route, self.status, self._tail)
            if self.status == 429:
                self.refusal.retry_after_s = retry_after_s(self.retry_after) or 1.0
            end = End.STATUS
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
