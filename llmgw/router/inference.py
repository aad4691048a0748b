"""One inference request: authenticated, checked, relayed from the replica that takes it, and counted once.

Whatever happens, the counts of open requests are what is open, and a request that got as far as a model leaves exactly
one usage row.
"""

import itertools
import logging
import os
import time
from dataclasses import dataclass, field

import trio

from llmgw.core.routing import KeyRecord, RoutedModel, RoutedReplica, Timeouts, UsageRow
from llmgw.router.big_bodies import BigBodies
from llmgw.router.catalog import allowed_model
from llmgw.router.charge import usage_of
from llmgw.router.choose import Chooser
from llmgw.router.credentials import api_key_of
from llmgw.router.errors import engine_failed, invalid_key, not_ready, unsupported
from llmgw.router.front import ClientConnection, Gone
from llmgw.router.heads import RequestHead
from llmgw.router.limits import MAX_ATTEMPTS, MAX_BODY_BYTES
from llmgw.router.pool import Pool, Pools
from llmgw.router.ports import Refusal, RouterState
from llmgw.router.reactor import Reactor
from llmgw.router.relay import ENGINE_REFUSES_ROUTER, End, Stream
from llmgw.router.requests import (
    Fields,
    Route,
    asks_usage,
    check_max_output,
    read_fields,
    with_model,
    with_usage,
)
from llmgw.router.upstream import Upstream

log = logging.getLogger(__name__)

CLIENT_LEFT = 499
"""Status in a usage row when nobody was there to take the answer."""

_numbers = itertools.count(1)
_process = os.urandom(9).hex()


def new_request_id() -> str:
    """An id no other request has, in this process or another."""
    return f"req-{_process}{next(_numbers):x}"


async def key_record(state: RouterState, head: RequestHead, client: str) -> KeyRecord:
    """Whose request this is; raises Refusal (401, 429, 503)."""
    key = api_key_of(head)
    record = state.authenticate_cached(key) if key is not None else None
    if record is None:
        record = await state.authenticate(key, client)
    if record.revoked:
        raise invalid_key()
    return record


@dataclass(slots=True)
class _Request:
    """A checked request and what became of it."""

    id: str
    route: Route
    key: KeyRecord
    model: RoutedModel
    fields: Fields
    body: bytes
    withhold: bool
    began_at: float
    attempts: int = 0
    replica: str = ""
    stream: Stream | None = None
    tried: set[str] = field(default_factory=set)


class Inference:
    """Serves the inference routes."""

    def __init__(self, reactor: Reactor, state: RouterState) -> None:
        self._reactor = reactor
        self._state = state
        self._pools = Pools(reactor)
        self._chooser = Chooser()
        self._bodies = BigBodies()

    def close(self) -> None:
        """Close idle engine connections."""
        self._pools.close()

    async def serve(self, conn: ClientConnection, head: RequestHead, route: Route, request_id: str) -> bool:
        """Answer one request; whether the connection may carry another. Raises Refusal or Gone."""
        state = self._state
        state.open_requests += 1
        try:
            key = await key_record(state, head, conn.address)
            body = await conn.read_body(head, MAX_BODY_BYTES)
            began_at = time.monotonic()
            fields = await self._bodies.call(body, read_fields, body, route)
            model = allowed_model(state.routes, key, fields.model or "")
            check_max_output(fields, model)
            withhold = route.streams and fields.streamed and not asks_usage(fields)
            request = _Request(request_id, route, key, model, fields, body, withhold, began_at)
            return await self._answer(conn, head, request)
        finally:
            state.open_requests -= 1
            state.requests += 1

    async def _answer(self, conn: ClientConnection, head: RequestHead, request: _Request) -> bool:
        """Relay and count."""
        try:
            await self._relay(conn, head, request)
        except Refusal as refusal:
            self._record(request, refusal.status, failed=refusal.status >= 500)
            raise
        except Gone:
            self._record(request, CLIENT_LEFT)
            raise
        except trio.Cancelled:
            self._record(request, CLIENT_LEFT, failed=True)  # the deadline of a drain
            raise
        stream = request.stream
        if stream is None:
            raise Gone
        left = stream.end in (End.LEFT, End.STALLED)
        self._record(request, CLIENT_LEFT if left else stream.status, failed=stream.end is End.LOST)
        return not stream.must_close

    async def _relay(self, conn: ClientConnection, head: RequestHead, request: _Request) -> None:
        """Try replicas until one's first byte reached the client; raises Refusal or Gone."""
        timeouts = self._state.routes.timeouts
        conn.stall_s = timeouts.client_stall
        total_at = request.began_at + timeouts.total
        while True:
            if conn.gone:
                raise Gone
            replica = self._choose(request)
            request.attempts += 1
            request.replica = replica.id
            failure, may_repeat = await self._attempt(conn, head, request, replica, timeouts, total_at)
            if failure is None:
                return
            request.tried.add(replica.id)
            others = any(r.id not in request.tried for r in self._state.routes.replicas(request.model.name))
            if request.attempts >= MAX_ATTEMPTS or time.monotonic() >= total_at or not (others or may_repeat):
                raise failure

    def _choose(self, request: _Request) -> RoutedReplica:
        name = request.model.name
        replicas = self._state.routes.replicas(name)
        now = self._reactor.now
        replica = (
            self._chooser.choose(replicas, self._state.in_flight, tried=request.tried, now=now) if replicas else None
        )
        if replica is None:
            self._state.want(name)
            raise not_ready(name)
        return replica

    async def _attempt(
        self,
        conn: ClientConnection,
        head: RequestHead,
        request: _Request,
        replica: RoutedReplica,
        timeouts: Timeouts,
        total_at: float,
    ) -> tuple[Refusal | None, bool]:
        """One try: how it failed before its first byte, and whether the same replica may be asked again."""
        in_flight = self._state.in_flight
        in_flight[replica.id] = in_flight.get(replica.id, 0) + 1
        try:
            pool = self._pool(replica)
            data = await self._bodies.call(request.body, self._engine_request, pool, replica, request)
            upstream = None if conn.gone else pool.take()
            if upstream is not None:
                stream = await self._run(self._stream(conn, head, request, timeouts, total_at), upstream, data)
                if stream.end is not End.CLOSED or stream.status:
                    return self._judge(stream, replica)
                # The engine had closed the idle connection: not this request's doing.
            upstream = None if conn.gone else await pool.connect(timeouts.connect)
            if upstream is None or conn.gone:
                if upstream is not None:
                    upstream.close()
                raise Gone
            stream = await self._run(self._stream(conn, head, request, timeouts, total_at), upstream, data)
            return self._judge(stream, replica)
        except OSError as error:
            self._chooser.failed(replica.id, time.monotonic())
            log.warning("replica %s cannot be reached: %s", replica.id, error)
            return engine_failed(502, "The model's engine could not be reached.", "engine_unreachable"), True
        finally:
            left = in_flight[replica.id] - 1
            if left > 0:
                in_flight[replica.id] = left
            else:
                del in_flight[replica.id]

    async def _run(self, stream: Stream, upstream: Upstream, data: bytes) -> Stream:
        signal = stream.start(upstream, data)
        try:
            await signal.wait()
        finally:
            if stream.end is None:
                stream.client_left()
                signal.clear()
        return stream

    def _pool(self, replica: RoutedReplica) -> Pool:
        """The replica's pool; raises OSError for an endpoint that is none."""
        pool = self._pools.known(replica)
        if pool is None:
            try:
                pool = self._pools.of(replica, self._state.engine_key(replica.id))
            except ValueError as error:
                raise OSError(f"its endpoint is malformed ({error})") from None
        pool.used_at = self._reactor.now
        return pool

    def _stream(
        self, conn: ClientConnection, head: RequestHead, request: _Request, timeouts: Timeouts, total_at: float
    ) -> Stream:
        stream = request.stream = Stream(
            self._reactor,
            conn,
            timeouts,
            request_id=request.id.encode(),
            http11=head.http11,
            keep_alive=head.keep_alive and not conn.retiring,
            withhold=request.withhold,
            total_at=total_at,
        )
        return stream

    def _engine_request(self, pool: Pool, replica: RoutedReplica, request: _Request) -> bytes:
        """The request as the engine reads it: the client's body, spliced where it must be."""
        body, fields = request.body, request.fields
        name = replica.upstream_model or request.model.name
        if fields.model != name:
            body = with_model(body, name)
        if request.withhold:
            body = with_usage(body, fields)
        accept = b"text/event-stream" if fields.streamed and request.route.streams else b"application/json"
        return b"POST %b%b%b%b\r\nx-request-id: %b\r\ncontent-length: %d\r\n\r\n%b" % (
            pool.prefix,
            request.route.path.encode(),
            pool.constant_headers,
            accept,
            request.id.encode(),
            len(body),
            body,
        )

    def _judge(self, stream: Stream, replica: RoutedReplica) -> tuple[Refusal | None, bool]:
        """What a finished attempt means for the replica and the request."""
        end = stream.end
        if end is None or not end.before_start:
            if stream.started:
                self._chooser.succeeded(replica.id)
            return None, False
        if end is End.STATUS:
            status = stream.status
            if status == 501:
                return unsupported(), False
            if status == 503 or status in ENGINE_REFUSES_ROUTER:
                self._chooser.failed(replica.id, self._reactor.now)
            answer = status if status in (503, 504) else 502
            return engine_failed(answer, f"The model's engine answered {status}.", "engine_error"), status >= 500
        self._chooser.failed(replica.id, self._reactor.now)
        if end is End.SLOW:
            return engine_failed(504, "The model's engine gave no answer in time.", "engine_timeout"), False
        return engine_failed(502, f"No answer from the model: {end.value}.", "engine_lost"), True

    def _record(self, request: _Request, status: int, *, failed: bool = False) -> None:
        """Leave the usage row."""
        stream = request.stream
        now = time.monotonic()
        usage, estimated = usage_of(stream, request.body, request.model)
        first_at = stream.first_at if stream is not None else 0.0
        self._state.record(
            UsageRow(
                id=request.id,
                at=time.time(),
                key_id=request.key.id,
                model=request.model.name,
                replica=request.replica,
                status=status,
                failed=failed,
                stream=request.fields.streamed and request.route.streams,
                input_tokens=usage.input_tokens,
                cached_tokens=usage.cached_tokens,
                output_tokens=usage.output_tokens,
                estimated=estimated,
                first_token_ms=(first_at - request.began_at) * 1000 if first_at else None,
                duration_ms=(now - request.began_at) * 1000,
                attempts=request.attempts,
            )
        )
