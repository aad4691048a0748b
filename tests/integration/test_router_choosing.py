"""Routers choose alike for sessions, and send a conversation to the engine that has read it, on real sockets."""

import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Sequence

import pytest
import trio

from llmgw.core.routing import RoutedReplica, Routing, Scoring
from tests.support.router_plane import MODEL, Plane, chat, post, running, settled
from tests.support.scripted_engine import Behaviour, Exchange, json_answer
from tests.support.sim_engine import RunningEngine, running_engine

pytestmark = pytest.mark.trio

SYSTEM = "You answer briefly and kindly, and you never make anything up. " * 8
TALKS, TURNS = 12, 5
TURNS_ONLY = Scoring(load=False, sticky=False, prefix=False)


async def answers(exchange: Exchange) -> None:
    """An engine that is well."""
    await exchange.send(json_answer({"choices": [{"message": {"role": "assistant", "content": "yes"}}]}))


async def place(plane: Plane, session: str) -> str:
    """Id of the replica that answered a request of the session."""
    answer = await plane.ask(post(chat(), headers=b"x-session-id: %b\r\n" % session.encode()))
    assert answer.status == 200
    await settled(plane)
    return plane.state.rows[-1].replica


@contextlib.asynccontextmanager
async def two_routers(*behaviours: Behaviour) -> AsyncIterator[tuple[Plane, Plane]]:
    """Two routers before the same engines."""
    async with running(*behaviours) as one, running() as other:
        other.state.apply(one.state.routing)
        yield one, other


async def test_two_routers_agree_where_a_session_is() -> None:
    async with two_routers(answers, answers, answers) as routers:
        seen = Counter[str]()
        for number in range(24):
            first, second = [await place(router, f"s{number}") for router in routers]
            assert first == second
            seen[first] += 1
        assert set(seen) == {"r0", "r1", "r2"}
        for router in routers:
            assert router.state.meters.of("m").chosen["sticky"] == 24


async def test_sessions_of_a_replica_that_fails_move_and_come_back() -> None:
    fails = False

    async def falters(exchange: Exchange) -> None:
        if fails:
            await exchange.reset()
        else:
            await answers(exchange)

    async with running(falters, answers, answers) as plane:
        sessions = [f"s{number}" for number in range(24)]
        before = {name: await place(plane, name) for name in sessions}
        assert "r0" in before.values()
        fails = True
        during = {name: await place(plane, name) for name in sessions}
        assert all(during[name] == before[name] for name in sessions if before[name] != "r0")
        assert all(during[name] != "r0" for name in sessions)
        fails = False
        with trio.fail_after(60):
            while plane.state.breakers:
                await place(plane, "s0")
        assert {name: await place(plane, name) for name in sessions} == before


@contextlib.asynccontextmanager
async def sims(count: int) -> AsyncIterator[list[RunningEngine]]:
    """Engines that hold what prompts begin with."""
    async with contextlib.AsyncExitStack() as stack:
        yield [
            await stack.enter_async_context(running_engine(prefix_cache_kb=256, ctx_size=65536)) for _ in range(count)
        ]


async def talk(engines: Sequence[RunningEngine], scoring: Scoring, mark: str) -> int:
    """Tokens that engines did not compute again while conversations went on side by side."""
    replicas = tuple(RoutedReplica(id=f"r{i}", model="m", endpoint=e.url) for i, e in enumerate(engines))
    async with running() as plane:
        plane.state.apply(Routing(revision="1", models=(MODEL,), replicas=replicas, scoring=scoring))
        said = [[{"role": "system", "content": f"{mark} {n} {SYSTEM}"}] for n in range(TALKS)]
        before = sum(engine.engine.counters.cached_tokens for engine in engines)
        for turn in range(TURNS):
            # Another order each time, so that taking turns does not meet the same engine by itself.
            for number in sorted(range(TALKS), key=lambda n: (n * 7 + turn * 5) % TALKS + (n * turn) % 3 * TALKS):
                said[number] += [{"role": "user", "content": f"question {turn} " * 20}]
                answer = await plane.ask(post(chat(messages=said[number], max_tokens=4)))
                assert answer.status == 200, answer.body
                said[number] += [{"role": "assistant", "content": "an answer " * 10}]
        await settled(plane)
        cached = sum(engine.engine.counters.cached_tokens for engine in engines) - before
        assert sum(row.cached_tokens for row in plane.state.rows) == cached
        return cached


async def test_conversations_meet_the_engine_that_has_read_them() -> None:
    async with sims(4) as engines:
        by_turns = await talk(engines, TURNS_ONLY, "turns")
        by_prefix = await talk(engines, Scoring(), "prefix")
        assert by_prefix > 1.5 * by_turns
