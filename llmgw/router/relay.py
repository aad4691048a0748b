"""One answer on its way from an engine to a client: one read there, one write here, and nothing in between waits.

Until `started` not a byte has reached the client, and a failure leaves the request free to be tried elsewhere. From
then on every end is visible to the client: the proper end, an error event and `[DONE]`, or a body short of its length.
A stream ends exactly once: `end` is set, the engine's connection is released or closed, and the signal fires.
"""

import json
import time
from enum import Enum
from typing import Protocol

from llmgw.core.routing import Timeouts
from llmgw.router.errors import engine_failed, error_event
from llmgw.router.events import EventStream, Usage, usage_from
from llmgw.router.limits import MAX_ENGINE_BODY_BYTES, USAGE_TAIL_BYTES
from llmgw.router.reactor import Reactor, Signal
from llmgw.router.responses import Framing, head_of, is_event_stream
from llmgw.router.upstream import Header, Upstream

ENGINE_REFUSES_ROUTER = frozenset({401, 403, 407})
"""Answers about the key the router showed, never the client's: another engine took the port, or it has another key."""


def engines_own(status: int) -> bool:
    """Whether an answer of this status is the engine's trouble and nothing a client should read."""
    return 300 <= status < 400 or status >= 500 or status in ENGINE_REFUSES_ROUTER


class End(Enum):
    """How a stream ended. The first group happened before a byte reached the client."""

    CLOSED = "the engine closed the connection before answering"
    GARBAGE = "the engine's answer is not HTTP"
    SLOW = "the engine gave no first byte in time"
    STATUS = "the engine answered with an error of its own"

    COMPLETE = "complete"
    LOST = "the engine was lost midway"
    LEFT = "the client left"
    STALLED = "the client stopped reading"

    @property
    def before_start(self) -> bool:
        """Whether the request may be tried again."""
        return self in (End.CLOSED, End.GARBAGE, End.SLOW, End.STATUS)


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
        "_client_send",
        "_closing",
        "_direct",
        "_framing",
        "_head",
        "_http11",
        "_keep_alive",
        "_last",
        "_progress",
        "_reactor",
        "_request_id",
        "_tail",
        "_timeouts",
        "_total_at",
        "_withhold",
        "begun_at",
        "client",
        "end",
        "events",
        "first_at",
        "must_close",
        "pending",
        "started",
        "status",
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
    ) -> None:
        self._reactor = reactor
        self.client = client
        self._client_send = client.send
        self._direct: EventStream | None = None
        """The events, once whole chunks of them may go to the client as they are."""
        self._timeouts = timeouts
        self._request_id = request_id
        self._http11 = http11
        self._keep_alive = keep_alive
        self._withhold = withhold
        self._total_at = total_at
        self.upstream: Upstream | None = None
        self.end: End | None = None
        self.status = 0
        """The engine's status, once its head is there."""
        self.events: EventStream | None = None
        """Set when the engine streams events."""
        self.started = False
        """Whether a byte was given to the client."""
        self.must_close = False
        """Whether the client's connection ends with this answer."""
        self.pending = b""
        """What the client did not take yet."""
        self.begun_at = self.first_at = self._last = self._progress = 0.0
        self._head = b""
        self._framing = Framing.CLOSE
        self._closing = False
        self._body_bytes = 0
        self._tail = b""

    def start(self, upstream: Upstream, request: bytes) -> Signal:
        """Send the request and relay what comes; the signal fires once, when `end` is set."""
        self.begun_at = self._last = time.monotonic()
        self.upstream = upstream
        self.client.stream = self
        upstream.begin(self, request)
        return self.client.signal

    def on_head(self, status: int, headers: list[Header]) -> None:
        """The engine's head. It waits for the first byte of the body, so that both leave in one segment."""
        self.status = status
        if engines_own(status):
            return
        events = status == 200 and is_event_stream(headers)
        if events:
            self.events = EventStream(withhold=self._withhold)
        self._head, self._framing = head_of(
            status,
            headers,
            request_id=self._request_id,
            http11=self._http11,
            events=events,
            keep_alive=self._keep_alive,
        )
        self.must_close = not self._keep_alive or self._framing is Framing.CLOSE

    def advance(self) -> None:
        """Pass on what the last read brought."""
        upstream, status = self.upstream, self.status
        if upstream is None or not status:
            return
        if engines_own(status):
            self._fail(End.STATUS)
            return
        parts = upstream.parts
        body = parts[0] if len(parts) == 1 else b"".join(parts)
        parts.clear()
        last = upstream.complete
        self._last = self._reactor.now
        events = self.events
        if events is not None:
            out = events.feed(body) if body else b""
            if last:
                out += events.finish()
            if not self.first_at and events.events:
                self.first_at = self._last
        else:
            out = body
            if not self._measure(body):
                return
        if out or last:
            self._give(out, last)

    def pass_chunk(self, chunk: bytes) -> bool:
        """Pass on one whole chunk of ordinary events as it came, framing and all: what nearly every read is.

        Returns false, having done nothing, for anything else. The caller knows that the engine's parser stands between
        two chunks.
        """
        events = self._direct
        if events is None or not events.pass_chunk(chunk):
            return False
        self._last = self._reactor.now
        try:
            sent = self._client_send(chunk)
        except BlockingIOError:
            sent = 0
        except OSError:
            self.client_left()
            return True
        if sent != len(chunk):
            self._hold(chunk[sent:])
        return True

    def _measure(self, body: bytes) -> bool:
        """Keep the end of an unstreamed body for its usage; whether it is still of a bearable size."""
        self._body_bytes += len(body)
        if self._body_bytes > MAX_ENGINE_BODY_BYTES:
            self._lose("engine_answer_too_long", "The engine's answer is too long.")
            return False
        if len(body) >= USAGE_TAIL_BYTES:
            self._tail = body[-USAGE_TAIL_BYTES:]
        else:
            self._tail = (self._tail + body)[-USAGE_TAIL_BYTES:]
        if not self.first_at and body:
            self.first_at = self._last
        return True

    def _give(self, out: bytes, last: bool) -> None:
        """Hand bytes to the client in one send, framed, the head before the first."""
        if self._framing is Framing.CHUNKED:
            if out:
                out = b"%x\r\n%b\r\n0\r\n\r\n" % (len(out), out) if last else b"%x\r\n%b\r\n" % (len(out), out)
            elif last:
                out = b"0\r\n\r\n"
        if not self.started:
            self.started = True
            out = self._head + out
            if self._framing is Framing.CHUNKED:
                self._direct = self.events
        if last:
            self._closing = True
            if self.end is None and self.upstream is not None:
                self.upstream.release()
                self.upstream = None
        self._send(out, last)

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
                self._finish(End.COMPLETE)
            return
        self._hold(out[sent:])

    def _hold(self, rest: bytes) -> None:
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
            self._finish(End.COMPLETE)
        elif self.upstream is not None:
            self._last = self._reactor.now
            self.upstream.resume()

    def on_eof(self) -> None:
        """The engine's connection ended: properly, if only that could end the answer and nothing is missing."""
        upstream = self.upstream
        ended_by_close = upstream is not None and self.status and upstream.until_close and not upstream.complete
        if upstream is not None and ended_by_close and (self.events is None or self.events.done):
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
        if self.pending:
            if now - self._progress > limits.client_stall:
                self._drop_upstream()
                self.must_close = True
                self.client.abort()
                self._finish(End.STALLED)
        elif now > self._total_at:
            self._lost_or_fail(End.SLOW, f"The answer took longer than {limits.total:g} s.")
        elif not self.started:
            if now - self.begun_at > limits.first_byte:
                self._fail(End.SLOW)
        elif now - self._last > limits.inter_token:
            self._lose("engine_timeout", f"The engine sent nothing for {limits.inter_token:g} s.")

    def usage(self) -> Usage | None:
        """What the engine said it used, if it did."""
        if self.events is not None:
            return self.events.usage
        at = self._tail.rfind(b'"usage"')
        if at < 0:
            return None
        text = self._tail[at + 7 :].decode("utf-8", "replace").lstrip(" \t\r\n").removeprefix(":").lstrip(" \t\r\n")
        try:
            document, _ = json.JSONDecoder().raw_decode(text)
        except (ValueError, RecursionError):
            return None
        return usage_from(document)

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
        tail = error_event(engine_failed(502, message, code))
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
        self.client.stream = None
        self._reactor.woken = True
        self.client.signal.set()
