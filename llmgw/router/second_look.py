"""The key of a request that waited is looked at again: what was revoked or taken from it meanwhile is not served.

What a request was charged under limits that changed is given back, and charged under those that hold.
"""

from llmgw.router.big_bodies import BigBodies
from llmgw.router.catalog import may_use
from llmgw.router.charge import demand_of
from llmgw.router.credentials import api_key_of
from llmgw.router.errors import invalid_key, model_not_found
from llmgw.router.exchange import Exchange, InferenceRequest
from llmgw.router.ports import RouterState


async def look_again(state: RouterState, bodies: BigBodies, exchange: Exchange) -> None:
    """Raise Refusal (401, 404, 429, 503) if the request's key may not do what it asks for any more.

    Waits for nothing where the key is known and did not change.
    """
    request = exchange.request
    shown = api_key_of(exchange.head)
    record = state.authenticate_cached(shown) if shown is not None else None
    if record is None:
        record = await state.authenticate(shown, exchange.conn.address)
    before = request.key
    if record is before:
        return
    if record.revoked:
        raise invalid_key()
    if not may_use(record, request.model):
        raise model_not_found(request.fields.model or request.model.name)
    request.key = record
    if (record.limits, record.budgets, record.team) != (before.limits, before.budgets, before.team):
        await _charge_again(state, bodies, request)


async def _charge_again(state: RouterState, bodies: BigBodies, request: InferenceRequest) -> None:
    scopes, fields, body = state.scopes_of(request.key), request.fields, request.body
    demand = None
    if scopes is not None:
        demand = await bodies.call(
            body, demand_of, fields, body, request.model, request.route, budgeted=scopes.budgeted
        )
    if request.reservation is not None:  # at once before the next: nobody else gets its place in between
        request.reservation.release()
        request.charge(None)
    if scopes is not None and demand is not None:
        request.charge(state.admit(scopes, demand))
