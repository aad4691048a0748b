"""What passes while no stream serves a client: it waits for a place or a connection, is kept company, and may leave."""

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager

import trio

from llmgw.router.admission import Gate
from llmgw.router.big_bodies import BigBodies
from llmgw.router.exchange import Exchange, Gap
from llmgw.router.front import Gone
from llmgw.router.ports import RouterState
from llmgw.router.reactor import Reactor
from llmgw.router.second_look import look_again
from llmgw.router.turned_away import TurnedAway
from llmgw.router.wait_reason import wait_reason
from llmgw.router.waiting import Standing


@contextmanager
def between_streams(reactor: Reactor, exchange: Exchange, until: float = math.inf) -> Iterator[None]:
    """Notice a client that leaves, which ends what is in the context, and keep one that waits company.

    What is in the context ends by `until`, in trio's time, in any case.
    """
    conn, comments = exchange.conn, exchange.request.comments
    with trio.CancelScope(deadline=until) as scope:
        gap = Gap(conn, comments, scope) if comments is not None else None
        conn.on_gone = scope.cancel
        if gap is not None:
            reactor.ticking.add(gap)
        try:
            yield
        finally:
            conn.on_gone = None
            if gap is not None:
                reactor.ticking.discard(gap)


async def wait_for_place(
    reactor: Reactor, state: RouterState, gate: Gate, bodies: BigBodies, exchange: Exchange
) -> TurnedAway | None:
    """Wait until the request is let in to its model; why it was not, if it was not.

    Raises Gone, and Refusal when its key was revoked meanwhile, or may no longer do what the request asks for.
    """
    request, meters = exchange.request, state.meters
    name, began = request.model.name, time.monotonic()
    if exchange.conn.gone:
        raise Gone
    try:
        waiter = gate.line_up(name, request.key, len(request.body))
    except TurnedAway as full:
        meters.turned_away(name, full.band, full.reason)
        return full
    request.band = waiter.band.name
    taken = False
    try:
        first = gate.room.nobody_before(waiter)
        request.trail.waited_for = wait_reason(state, name, gate.measured(name), first=first)
        patience_s = min(gate.ttl_s(waiter), exchange.total_at - began)
        with between_streams(reactor, exchange, trio.current_time() + patience_s):
            await waiter.signal.wait()
            while waiter.standing is Standing.WAITING:
                await look_again(state, bodies, exchange)
                await waiter.signal.wait()
        if waiter.standing is Standing.LET_IN and not exchange.conn.gone:
            with between_streams(reactor, exchange):
                await look_again(state, bodies, exchange)
        taken = not exchange.conn.gone
    finally:
        refusal = gate.step_out(waiter, taken=taken)
        waited_s = time.monotonic() - began
        request.waited_s += waited_s
    if not taken:
        raise Gone
    if refusal is None:
        meters.waited(name, waited_s)
    else:
        meters.turned_away(name, refusal.band, refusal.reason)
    return refusal
