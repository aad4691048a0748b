"""The attempts at one model: a replica is chosen, asked, and another after it, until a first byte reached the client.

Nothing of an answer is ever sent twice: an attempt may be repeated only while its stream has not started. Whatever
becomes of an attempt, what it proved is said of its replica, and its place there is free again.
"""

import errno
import time
from collections.abc import Sequence
from pathlib import Path

from llmgw.core.routing import RoutedReplica
from llmgw.router.admission import Gate
from llmgw.router.big_bodies import BigBodies, is_big
from llmgw.router.choose import Chooser
from llmgw.router.ends import End
from llmgw.router.entry import between_streams, wait_for_place
from llmgw.router.errors import ROUTER_BUSY, UNSUPPORTED, engine_failed, none_answers, not_ready
from llmgw.router.exchange import Exchange, InferenceRequest
from llmgw.router.front import Gone
from llmgw.router.health import HealthBook, Trial
from llmgw.router.hints import Hints
from llmgw.router.limits import STALE_S
from llmgw.router.masking import Mask
from llmgw.router.pool import Pool, Pools
from llmgw.router.ports import Refusal, RouterState
from llmgw.router.provider_keys import NoKeys, Resting
from llmgw.router.providers import judged, keyless
from llmgw.router.reactor import Reactor
from llmgw.router.relay import Stream
from llmgw.router.requests import with_model, with_usage
from llmgw.router.routes import Route
from llmgw.router.shapes import ANTHROPIC
from llmgw.router.upstream import Upstream
from llmgw.router.verdicts import NOTHING_PROVED, Verdict, unreachable, verdict

_OUR_OWN = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM, errno.EADDRNOTAVAIL})
"""Connecting fails with these for want of something here; no replica is to blame."""
_NO_OUTAGE = frozenset({UNSUPPORTED, ROUTER_BUSY})
"""Codes of refusals that say nothing of the model's health: another one is not asked for their sake."""


class Attempts:
    """Sends requests to replicas."""

    def __init__(self, reactor: Reactor, state: RouterState, bodies: BigBodies, private: Sequence[Path] = ()) -> None:
        """No provider's keys are read from files in `private`."""
        self._reactor = reactor
        self._state = state
        self._health = HealthBook(state.breakers, state.breaker_failures, on_open=self._count_opening)
        self._pools = Pools(reactor, private, self._health.pardon)
        self._chooser = Chooser(self._health, state.loads)
        self._bodies = bodies
        self.gate = Gate(state)
        """Who is let in, and who waits."""
        reactor.ticking.add(self._health)
        reactor.ticking.add(self.gate)

    def close(self) -> None:
        """Close idle engine connections."""
        self._pools.close()

    def _count_opening(self, model: str) -> None:
        self._state.meters.of(model).breaker_openings += 1

    async def ask(self, exchange: Exchange, *, others: bool = False) -> Refusal | None:
        """Ask the request's model until a first byte reached the client; else why this model cannot answer.

        This is the one place where it is decided that a model cannot: with `others`, another may then be asked. Raises
        what no other model would change: Refusal for what the client asked, Gone for a client that left.
        """
        request, gate = exchange.request, self.gate
        exchange.others, exchange.tries = others, 0
        name, band = request.model.name, request.key.band
        # Whoever comes from another model began long ago.
        if not gate.lets_in(name, band, time.monotonic() if request.asked else request.began_at):
            refusal = await wait_for_place(self._reactor, self._state, gate, self._bodies, exchange)
            if refusal is not None:
                return refusal
        use = gate.begin(name, band)
        try:
            return await self._try(exchange)
        finally:
            if use is not None:
                use.end()
            if gate.room.count:
                gate.pump(name)

    async def _try(self, exchange: Exchange) -> Refusal | None:
        """Ask replicas of the request's model, which let it in. See `ask`."""
        request = exchange.request
        found = NOTHING_PROVED
        while True:
            if exchange.conn.gone:
                raise Gone
            try:
                replica = self._choose(exchange, found)
            except Refusal as refusal:
                return _or_final(refusal)
            exchange.tries += 1
            request.attempts += 1
            request.replica = replica.id
            found = await self._attempt(exchange, replica)
            if found.refusal is None:
                return None
            request.tried.add(replica.id)
            if found.final:
                raise found.refusal
            if not exchange.may_try:
                return _or_final(found.refusal)

    def may_answer(self, model: str) -> bool:
        """Whether some replica of the model could be asked right now."""
        return self._chooser.has_any(self._state.routes.replicas(model), time.monotonic())

    def _choose(self, exchange: Exchange, before: Verdict) -> RoutedReplica:
        """The replica to ask next; raises Refusal, the one of the attempt before if there was any."""
        request, routes = exchange.request, self._state.routes
        name = request.model.name
        self._chooser.follow(routes)
        replicas = exchange.replicas = routes.replicas(name)
        if not replicas:
            self._state.want(name)
            raise before.refusal or not_ready(name)
        now = time.monotonic()
        hints = None
        if len(replicas) > 1:
            hints = Hints(exchange.head.headers, request.key, request.fields, request.route)
        chosen = self._chooser.choose(
            replicas, self._state.in_flight, tried=request.tried, now=now, again=before.may_repeat, hints=hints
        )
        if chosen is None:
            raise before.refusal or none_answers(name, self._health.next_probe_s(replicas, now))
        replica, request.chosen_by = chosen
        self._state.meters.of(name).chosen[request.chosen_by] += 1
        return replica

    async def _attempt(self, exchange: Exchange, replica: RoutedReplica) -> Verdict:
        """One try, counted while it lasts, and what it proved of the replica."""
        in_flight = self._state.in_flight
        in_flight[replica.id] = now_open = in_flight.get(replica.id, 0) + 1
        if now_open > self.gate.peaks.get(replica.id, 0):
            self.gate.peaks[replica.id] = now_open
        request, began_at = exchange.request, time.monotonic()
        trial = self._health.begin(replica, streamed=request.streamed, now=began_at)
        attempt = request.trail.begin(replica, request.chosen_by, began_at)
        try:
            found = await self._ask(exchange, replica, trial)
            now = time.monotonic()
            attempt.ended(found, now)
            if found.failure is not None:
                trial.failed(found.failure, now)
            elif found.well:
                trial.succeeded()
            return found
        finally:
            trial.close(time.monotonic())
            left = in_flight[replica.id] - 1
            if left > 0:
                in_flight[replica.id] = left
            else:
                del in_flight[replica.id]

    async def _ask(self, exchange: Exchange, replica: RoutedReplica, trial: Trial) -> Verdict:
        """Send the request and relay what comes; raises Gone."""
        conn, request = exchange.conn, exchange.request
        try:
            pool = self._pool(replica)
            key = "" if pool.keys is None else pool.keys.take(time.monotonic())
            if is_big(request.body):
                data = await self._bodies.call(request.body, self._engine_request, pool, replica, request, key)
            else:
                data = self._engine_request(pool, replica, request, key)
            rest = request.form.parts(_name_for(replica, request)) if request.form is not None else ()
            upstream = None if conn.gone else pool.take()
            if upstream is not None:
                stream = await self._run(self._stream(exchange, replica, trial, pool, key), upstream, data, rest)
                closed = stream.end is End.CLOSED and not stream.status
                if not closed or time.monotonic() - stream.begun_at > STALE_S:
                    return self._verdict(stream, pool, key)
                # The engine had closed the idle connection: not this request's doing.
            upstream = await self._connect(exchange, pool)
            stream = await self._run(self._stream(exchange, replica, trial, pool, key), upstream, data, rest)
            return self._verdict(stream, pool, key)
        except (NoKeys, Resting) as error:
            return keyless(error)
        except OSError as error:
            if error.errno in _OUR_OWN:
                return Verdict(engine_failed(503, "The router cannot open more connections.", ROUTER_BUSY))
            return unreachable(error)

    def _verdict(self, stream: Stream, pool: Pool, key: str) -> Verdict:
        found = verdict(stream, external=pool.keys is not None)
        return found if pool.keys is None else judged(found, stream, pool.keys, key, time.monotonic())

    async def _connect(self, exchange: Exchange, pool: Pool) -> Upstream:
        """A new connection; raises OSError, and Gone as soon as the client is."""
        conn = exchange.conn
        upstream: Upstream | None = None
        if not conn.gone:
            with between_streams(self._reactor, exchange):
                left_s = max(0.0, exchange.total_at - time.monotonic())
                upstream = await pool.connect(min(exchange.timeouts.connect, left_s))
        if upstream is None or conn.gone:
            if upstream is not None:
                upstream.close()
            raise Gone
        return upstream

    async def _run(self, stream: Stream, upstream: Upstream, data: bytes, rest: Sequence[memoryview]) -> Stream:
        signal = stream.start(upstream, data, rest)
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

    def _stream(self, exchange: Exchange, replica: RoutedReplica, trial: Trial, pool: Pool, key: str) -> Stream:
        conn, request, timeouts = exchange.conn, exchange.request, exchange.timeouts
        first_byte_s = timeouts.first_byte
        other = exchange.others or self._chooser.has_other(exchange.replicas, replica, request.tried)
        if trial.probing and other:
            # Whoever has to find out whether a replica healed shall not pay for it with the whole timeout.
            first_byte_s = min(first_byte_s, self._health.patience_s(request.model.name, streamed=request.streamed))
        stream = request.stream = Stream(
            self._reactor,
            conn,
            timeouts,
            request_id=request.id.encode(),
            http11=exchange.head.http11,
            keep_alive=exchange.head.keep_alive and not conn.retiring,
            withhold=request.withhold,
            total_at=exchange.total_at,
            gaps=self._state.meters.of(request.model.name).gaps,
            first_byte_s=first_byte_s,
            comments=request.comments,
            shares_429=not self._may_go_on(exchange, replica, pool, key),
            on_answer=trial.answered,
            route=request.route,
        )
        stream.reservation = request.reservation
        stream.answered_by = request.answered_by
        stream.mask = Mask(key) if key else None
        return stream

    def _may_go_on(self, exchange: Exchange, replica: RoutedReplica, pool: Pool, key: str) -> bool:
        """Whether, should `replica` fail it, the request may be tried with another, or there with another key."""
        request = exchange.request
        if exchange.others:
            return True
        if exchange.tries_left <= 0:
            return False
        if pool.keys is not None and pool.keys.has_other(key, time.monotonic()):
            return True
        return len(exchange.replicas) > 1 and self._chooser.has_other(exchange.replicas, replica, request.tried)

    def _engine_request(self, pool: Pool, replica: RoutedReplica, request: InferenceRequest, key: str) -> bytes:
        """The request as the engine reads it: the client's body, spliced where it must be."""
        body, fields, form = request.body, request.fields, request.form
        name = _name_for(replica, request)
        if form is None and fields.model != name:
            body = with_model(body, name)
        if request.withhold:
            body = with_usage(body, fields)
        return b"POST %b%b%b\r\n%b%bx-request-id: %b\r\ncontent-length: %d\r\n\r\n%b" % (
            pool.path_of(request.route.path),
            pool.constant_headers if form is None else pool.own_headers + form.content_type + b"\r\naccept: ",
            b"text/event-stream" if request.streamed else request.route.accept,
            _key_lines(request.route, key) if key else b"",
            request.passed + request.trail.engine_lines(),
            request.id.encode(),
            len(body) if form is None else form.length_with(name),
            body,
        )


def _or_final(refusal: Refusal) -> Refusal:
    """The refusal; raises it where it is no outage: a model whose engine has no such route is not down."""
    if refusal.code in _NO_OUTAGE:
        raise refusal
    return refusal


def _name_for(replica: RoutedReplica, request: InferenceRequest) -> str:
    """What the replica calls the model."""
    return replica.upstream_model or request.model.name


def _key_lines(route: Route, key: str) -> bytes:
    """How a provider is shown the gateway's key: Anthropic's API has a header of its own for it."""
    shown = key.encode("ascii")
    lines = b"authorization: Bearer %b\r\n" % shown
    return lines + b"x-api-key: %b\r\n" % shown if route.shape is ANTHROPIC else lines
