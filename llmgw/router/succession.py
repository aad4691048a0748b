"""Who answers a request: the model it names or, while that one cannot, the first model after it that can.

Another model never answers silently: the head of the answer, the usage row, a counter and the log say so. Once a byte
of an answer reached the client nobody else is asked, and what the client did wrong is for no other model to judge.
"""

import time

from llmgw.core.routing import RoutedModel
from llmgw.router.attempts import Attempts
from llmgw.router.big_bodies import BigBodies
from llmgw.router.catalog import may_use
from llmgw.router.charge import BYTES_PER_TOKEN, demand_of
from llmgw.router.comments import Comments
from llmgw.router.errors import UNSUPPORTED
from llmgw.router.exchange import Exchange, InferenceRequest
from llmgw.router.front import ClientConnection
from llmgw.router.heads import RequestHead
from llmgw.router.limits import MAX_CHAIN_ATTEMPTS
from llmgw.router.ports import Refusal, RouterState
from llmgw.router.requests import check_max_output
from llmgw.router.standins import Standins

_NOT_ALLOWED = "None of the models that would answer in its place may be used with this key."
_TOO_SMALL = "No model that would answer in its place and may be used with this key takes a request of this size."
_NOR_THEY = "The models that would answer in its place cannot either."


class Succession:
    """Has requests answered. One a router."""

    def __init__(self, attempts: Attempts, state: RouterState, bodies: BigBodies) -> None:
        self._attempts = attempts
        self._state = state
        self._bodies = bodies
        self._standins = Standins()

    async def run(self, conn: ClientConnection, head: RequestHead, request: InferenceRequest) -> None:
        """Ask models until a first byte reached the client; raises Refusal or Gone."""
        exchange = self._exchange(conn, head, request)
        asked = request.model
        if not asked.fallbacks:
            refusal = await self._attempts.ask(exchange)
            if refusal is not None:
                raise refusal
            return
        refusal = await self._attempts.ask(exchange, others=self._any_of(request, asked.fallbacks))
        if refusal is None:
            if _began(request):
                self._standins.own(asked.name, time.monotonic())
            return
        try:
            await self._go_down(exchange, asked, refusal)
        except Refusal as told:
            if request.asked:
                lines = (("x-llmgw-model", request.model.name), ("x-llmgw-fallback-from", asked.name))
                told.headers = (*told.headers, *lines)
            raise

    def _exchange(self, conn: ClientConnection, head: RequestHead, request: InferenceRequest) -> Exchange:
        timeouts = self._state.routes.timeouts
        conn.stall_s = timeouts.client_stall
        if request.streamed:
            request.comments = Comments(
                request_id=request.id.encode(),
                http11=head.http11,
                keep_alive=head.keep_alive and not conn.retiring,
                began_at=request.began_at,
                reservation=request.reservation,
                shape=request.route.shape,
            )
        return Exchange(conn, head, request, timeouts, request.began_at + timeouts.total)

    async def _go_down(self, exchange: Exchange, asked: RoutedModel, refusal: Refusal) -> None:
        """Ask the models after `asked`, which cannot answer for the reason in `refusal`; raises Refusal or Gone.

        A Refusal is the asked model's own, unless the request says by then that another one gave it.
        """
        request, names = exchange.request, asked.fallbacks
        replica = request.replica
        allowed = fitting = False
        for at, name in enumerate(names):
            if request.attempts >= MAX_CHAIN_ATTEMPTS or time.monotonic() >= exchange.total_at:
                break
            model = self._allowed(request, name)
            if model is None:
                continue
            allowed = True
            if not takes(request, model):
                continue
            fitting = True
            if not await self._turn_to(request, model, asked):
                continue
            if await self._answers(exchange, others=self._any_of(request, names[at + 1 :])):
                if _began(request):
                    self._standins.answered(asked.name, model.name, refusal, time.monotonic())
                return
        _turn_back(request, asked, replica)
        refusal.message += " " + (_NOR_THEY if fitting else _TOO_SMALL if allowed else _NOT_ALLOWED)
        raise refusal

    async def _answers(self, exchange: Exchange, *, others: bool) -> bool:
        """Whether the request's model answered; raises Refusal for what it says of the request itself."""
        try:
            return await self._attempts.ask(exchange, others=others) is None
        except Refusal as refusal:
            if refusal.code == UNSUPPORTED:  # of what was asked for the model in whose place it stands may know
                return False
            raise

    def _allowed(self, request: InferenceRequest, name: str) -> RoutedModel | None:
        """The model of that very name, if it is there and the key may use it."""
        model = self._state.routes.resolve(name)
        return model if model is not None and model.name == name and may_use(request.key, model) else None

    def _any_of(self, request: InferenceRequest, names: tuple[str, ...]) -> bool:
        """Whether one of these models could take the request at once, so that an answer may be kept from the client."""
        return any(
            takes(request, model) and self._attempts.may_answer(name)
            for name in names
            if (model := self._allowed(request, name)) is not None
        )

    async def _turn_to(self, request: InferenceRequest, model: RoutedModel, asked: RoutedModel) -> bool:
        """The request is `model`'s from now on; false when limits or budgets have no room for it there.

        What was reserved at the prices of the model before is given back, and what this one may cost is reserved.
        """
        scopes = self._state.scopes_of(request.key)
        if scopes is not None:
            fields, body = request.fields, request.body
            demand = await self._bodies.call(
                body, demand_of, fields, body, model, request.route, budgeted=scopes.budgeted
            )
            if request.reservation is not None:  # at once before the next: nobody else gets its place in between
                request.reservation.release()
                request.charge(None)
            try:
                request.charge(self._state.admit(scopes, demand))
            except Refusal:
                return False
        request.model, request.asked = model, asked.name
        request.tried.clear()
        request.answered_by = b"x-llmgw-model: %b\r\nx-llmgw-fallback-from: %b\r\n" % (
            model.name.encode("ascii"),
            asked.name.encode("ascii"),
        )
        if request.comments is not None:
            request.comments.answered_by = request.answered_by
        return True


def _began(request: InferenceRequest) -> bool:
    """Whether there is an answer; else its client left while the model was at it, which proves nothing of the model."""
    return request.stream is not None and request.stream.started


def _turn_back(request: InferenceRequest, asked: RoutedModel, replica: str) -> None:
    """Nobody answered: what is told and counted is about the model that was asked for, and `replica` of it."""
    request.model, request.asked, request.answered_by = asked, "", b""
    request.replica = replica
    if request.comments is not None:
        request.comments.answered_by = b""


def takes(request: InferenceRequest, model: RoutedModel) -> bool:
    """Whether a request of this size is within what the model may read and write, as far as that can be told."""
    fields = request.fields
    try:
        check_max_output(fields, model, request.route)
    except Refusal:
        return False
    if not model.context_length or request.form is not None:
        return True
    written = max(fields.max_completion_tokens or 0, fields.max_tokens or 0)
    return len(request.body) // BYTES_PER_TOKEN + written <= model.context_length
