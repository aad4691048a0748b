"""One inference request: authenticated, checked, relayed from the replica that takes it, and counted once.

Whatever happens, the counts of open requests are what is open, and a request that got as far as a model leaves exactly
one usage row.
"""

import itertools
import os
import time
from collections.abc import Sequence
from pathlib import Path

import trio

from llmgw.core.meters import NO_MODEL
from llmgw.core.routing import KeyRecord, UsageRow
from llmgw.router.attempts import Attempts
from llmgw.router.big_bodies import BigBodies, is_big
from llmgw.router.catalog import allowed_model
from llmgw.router.charge import cost_of, demand_of, usage_of
from llmgw.router.credentials import api_key_of
from llmgw.router.ends import End
from llmgw.router.errors import invalid_key
from llmgw.router.exchange import InferenceRequest
from llmgw.router.fields import Fields
from llmgw.router.forms import Form, FormReading, passed_headers
from llmgw.router.front import ClientConnection, Gone
from llmgw.router.heads import RequestHead
from llmgw.router.limits import MAX_BODY_BYTES
from llmgw.router.meters import CLIENT_LEFT
from llmgw.router.ports import Refusal, RouterState
from llmgw.router.reactor import Reactor
from llmgw.router.requests import asks_usage, check_max_output, read_fields
from llmgw.router.routes import Forms, Route
from llmgw.router.seen import RequestsSeen
from llmgw.router.shapes import ANTHROPIC
from llmgw.router.succession import Succession
from llmgw.router.turned_away import TurnedAway

_UNFOUND = {401: "unknown", 429: "throttled"}
"""What a look-up that failed with this status is counted as."""
_numbers = itertools.count(1)
_beginning = f"req-{os.urandom(9).hex()}"


def new_request_id() -> str:
    """An id no other request has, in this process or another."""
    return _beginning + hex(next(_numbers))[2:]


def known_key(state: RouterState, head: RequestHead) -> KeyRecord | None:
    """Whose request this is, if nobody needs to be asked for that; raises Refusal (401)."""
    key = api_key_of(head)
    record = state.authenticate_cached(key) if key is not None else None
    if record is not None:
        state.meters.key_lookups["hit"] += 1
        if record.revoked:
            raise invalid_key()
    return record


async def key_record(state: RouterState, head: RequestHead, client: str) -> KeyRecord:
    """Whose request this is; raises Refusal (401, 429, 503)."""
    record = known_key(state, head)
    if record is not None:
        return record
    lookups = state.meters.key_lookups
    try:
        record = await state.authenticate(api_key_of(head), client)
    except Refusal as refusal:
        lookups[_UNFOUND.get(refusal.status, "unavailable")] += 1
        raise
    lookups["miss"] += 1
    if record.revoked:
        raise invalid_key()
    return record


class Inference:
    """Serves the inference routes."""

    def __init__(self, reactor: Reactor, state: RouterState, seen: RequestsSeen, private: Sequence[Path] = ()) -> None:
        """No provider's keys are read from files in `private`."""
        self._state = state
        self._seen = seen
        self._bodies = BigBodies()
        self._forms = FormReading()
        self._attempts = Attempts(reactor, state, self._bodies, private)
        self._succession = Succession(self._attempts, state, self._bodies)

    def close(self) -> None:
        """Close idle engine connections."""
        self._attempts.close()

    async def serve(self, conn: ClientConnection, head: RequestHead, route: Route, request_id: str) -> bool:
        """Answer one request; whether the connection may carry another. Raises Refusal or Gone."""
        state = self._state
        state.open_requests += 1
        name, relayed, arrived_at = NO_MODEL, False, time.monotonic()
        key: KeyRecord | None = None
        fields: Fields | None = None
        request: InferenceRequest | None = None
        form: Form | None = None
        try:
            key = known_key(state, head)
            if key is None:
                key = await key_record(state, head, conn.address)
            self._attempts.gate.check_head(key)
            if route.forms is not Forms.NEVER and self._forms.wanted(head, route):
                form = await self._forms.read(conn, head)
                began_at, body, fields = time.monotonic(), b"", form.fields
            else:
                body = await conn.read_body(head, MAX_BODY_BYTES)
                began_at = time.monotonic()
                if is_big(body):
                    fields = await self._bodies.call(body, read_fields, body, route)
                else:
                    fields = read_fields(body, route)
            model = allowed_model(state.routes, key, fields.model or "")
            name = model.name
            check_max_output(fields, model, route)
            withhold = route.usage_option and fields.streamed and not asks_usage(fields)
            request = InferenceRequest(
                request_id, route, key, model, fields, body, withhold=withhold, began_at=began_at, form=form
            )
            request.trail.trace = self._seen.trace(head)
            if route.shape is ANTHROPIC:
                request.passed = passed_headers(head)
            scopes = state.scopes_of(key)
            if scopes is not None:
                budgeted = scopes.budgeted
                if is_big(body):
                    demand = await self._bodies.call(body, demand_of, fields, body, model, route, budgeted=budgeted)
                else:
                    demand = demand_of(fields, body, model, route, budgeted=budgeted)
                request.reservation = state.admit(scopes, demand)
            relayed = True
            return await self._answer(conn, head, request)
        except Refusal as refusal:
            if kept_out := _kept_out(refusal, request):
                state.meters.not_let_in(name)
            elif not relayed:
                state.meters.refused(name, refusal.status, refusal.hit)
            if kept_out or not relayed:
                self._seen.turned_away(
                    request_id, head, refusal, key=key, fields=fields, model=name, client=conn.address, since=arrived_at
                )
            raise
        except Gone:
            if not relayed:
                state.meters.left(name)
                self._seen.turned_away(
                    request_id, head, None, key=key, fields=fields, model=name, client=conn.address, since=arrived_at
                )
            raise
        finally:
            if request is not None and request.reservation is not None:
                request.reservation.release()  # of a request that was counted this does nothing
            if form is not None:
                form.close()
            state.open_requests -= 1
            state.requests += 1

    async def _answer(self, conn: ClientConnection, head: RequestHead, request: InferenceRequest) -> bool:
        """Relay and count."""
        try:
            await self._succession.run(conn, head, request)
        except Refusal as refusal:
            if request.reservation is not None:
                request.reservation.release()
            if not _kept_out(refusal, request):
                self._record(conn, request, refusal.status, failed=refusal.status >= 500, refusal=refusal)
            elif request.comments is not None and request.comments.opened:
                name, key, fields, since = request.model.name, request.key, request.fields, request.began_at
                self._state.meters.not_let_in(name)
                self._seen.turned_away(
                    request.id, head, refusal, key=key, fields=fields, model=name, client=conn.address, since=since
                )
            if request.comments is None or not request.comments.opened:
                raise
            await conn.write(request.comments.ending(refusal))
            return not request.comments.must_close
        except Gone:
            self._record(conn, request, CLIENT_LEFT)
            raise
        except trio.Cancelled:
            self._record(conn, request, CLIENT_LEFT, failed=True)  # the deadline of a drain
            raise
        stream = request.stream
        if stream is None:
            raise Gone
        left = stream.end in (End.LEFT, End.STALLED)
        failed = stream.end is End.LOST or (not left and stream.says_error)
        self._record(conn, request, CLIENT_LEFT if left else stream.status, failed=failed)
        return not stream.must_close

    def _record(
        self,
        conn: ClientConnection,
        request: InferenceRequest,
        status: int,
        *,
        failed: bool = False,
        refusal: Refusal | None = None,
    ) -> None:
        """Leave the usage row, and the line in the request log."""
        stream = request.stream
        now = time.monotonic()
        usage, estimated = usage_of(stream, request.body_bytes, request.model, request.route, request.fields)
        cost = cost_of(usage, request.model)
        if request.reservation is not None:
            request.reservation.settle(usage.input_tokens + usage.output_tokens, cost)
        first_at = stream.first_at if stream is not None else 0.0
        row = UsageRow(
            id=request.id,
            at=time.time(),
            key_id=request.key.id,
            team=request.key.team,
            model=request.model.name,
            replica=request.replica,
            status=status,
            failed=failed,
            stream=request.streamed,
            input_tokens=usage.input_tokens,
            cached_tokens=usage.cached_tokens,
            output_tokens=usage.output_tokens,
            estimated=estimated,
            cost_micros=cost,
            first_token_ms=(first_at - request.began_at) * 1000 if first_at else None,
            duration_ms=(now - request.began_at) * 1000,
            attempts=request.attempts,
            asked=request.asked,
            band=request.band,
            waited_ms=request.waited_s * 1000,
        )
        self._state.record(row)
        self._state.meters.answered(row)
        self._seen.ended(request, row, refusal, conn.address)


def _kept_out(refusal: Refusal, request: InferenceRequest | None) -> bool:
    """Whether it was turned away for want of a place to wait: a flood of those shall leave no flood of usage rows."""
    return isinstance(refusal, TurnedAway) and refusal.status == 429 and (request is None or not request.attempts)
