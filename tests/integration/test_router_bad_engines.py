"""Engines that hang, refuse, lie and drip, and what of it reaches clients: as little as can be, and the truth."""

import json
import socket
import time
from collections.abc import Callable

import pytest
import trio

from llmgw.core.routing import RoutedModel, RoutedReplica, Routing, Timeouts
from llmgw.router import health
from llmgw.router.ends import End
from llmgw.router.limits import (
    FAILURES_IN_A_ROW,
    MAX_ENGINE_BODY_BYTES,
    MAX_ENGINE_HEAD_BYTES,
    MAX_EVENT_BYTES,
    PAUSE_LAST_S,
    STALE_S,
    TICK_S,
)
from tests.support.relay_rig import body_of, rig
from tests.support.router_plane import DEADLINE_S, Plane, chat, post, routing_of, running, settled
from tests.support.scripted_engine import (
    DONE,
    SSE_HEAD,
    Behaviour,
    Exchange,
    answering,
    chunk,
    dropping,
    json_answer,
    never,
    streaming,
    token,
)

OK = token("ok") + token("", finish="stop") + DONE
AT_ONCE = 64
SOON_S = 0.3
"""In place of HUNG_AFTER_S where real time must pass."""
HANDFUL = 8
"""Requests that may meet a hung replica before it is known to be one, when a few come at once."""


async def until(condition: Callable[[], bool]) -> None:
    """Wait for a condition inside this process."""
    with trio.fail_after(DEADLINE_S):
        while not condition():  # noqa: ASYNC110 - plain counters
            await trio.sleep(0.005)


async def headers_only(exchange: Exchange) -> None:
    """Stall after the head."""
    await exchange.send(SSE_HEAD)
    await exchange.until_closed()


async def half_a_head(exchange: Exchange) -> None:
    """Stall within the head."""
    await exchange.send(SSE_HEAD[:30])
    await exchange.until_closed()


class Switched:
    """Behaves badly until it is healed."""

    def __init__(self, bad: Behaviour) -> None:
        self.bad = bad
        self.healed = False
        self.served = 0

    async def __call__(self, exchange: Exchange) -> None:
        """One or the other."""
        if self.healed:
            self.served += 1
        await (streaming(["ok"]) if self.healed else self.bad)(exchange)


async def several(plane: Plane, count: int, *, at_once: int) -> list[bytes]:
    """Bodies of `count` streamed answers."""
    bodies: list[bytes] = []
    limiter = trio.CapacityLimiter(at_once)

    async def ask() -> None:
        async with limiter:
            bodies.append((await plane.ask(post(chat(True)))).body)

    async with trio.open_nursery() as nursery:
        for _ in range(count):
            nursery.start_soon(ask)
    return bodies


@pytest.mark.trio
@pytest.mark.case("C7")
@pytest.mark.promise("A8")
@pytest.mark.parametrize("hung", [never, headers_only, half_a_head, None])
async def test_of_many_at_once_those_that_meet_a_hung_replica_are_retried_and_its_breaker_opens(
    hung: Behaviour | None,
) -> None:
    behaviour = never if hung is None else hung
    async with running(behaviour, streaming(["ok"]), timeouts=Timeouts(first_byte=1.0)) as plane:
        with socket.create_server(("127.0.0.1", 0), backlog=128) as door:
            if hung is None:  # the kernel accepts, and nobody reads
                plane.move_engine(0, door.getsockname()[1])
            order: list[int] = []

            async def ask() -> None:
                answer = await plane.ask(post(chat(True)))
                assert answer.body == OK
                await until(lambda: any(row.id == answer.headers["x-request-id"] for row in plane.state.rows))
                order.extend(r.attempts for r in plane.state.rows if r.id == answer.headers["x-request-id"])

            async with trio.open_nursery() as nursery:
                for _ in range(AT_ONCE):
                    nursery.start_soon(ask)
            assert len(order) == AT_ONCE
            assert set(order) == {1, 2}
            assert order == sorted(order), "nobody who met the healthy replica waited for one who met the hung one"
            assert plane.state.breakers.get("r0") in ("open", "half-open")
            assert "r1" not in plane.state.breakers
            assert {row.replica for row in plane.state.rows} == {"r1"}


@pytest.mark.trio
@pytest.mark.case("C7")
@pytest.mark.promise("A8")
async def test_with_default_timeouts_only_a_handful_ever_meet_a_hung_replica(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "HUNG_AFTER_S", SOON_S)
    async with running(never, streaming(["ok"])) as plane:
        hung = plane.engines[0]
        stuck: list[trio.CancelScope] = []
        served = [0]

        async def visit() -> None:
            with trio.CancelScope() as scope:
                stuck.append(scope)
                assert (await plane.ask(post(chat(True)))).body == OK
                served[0] += 1

        async with trio.open_nursery() as nursery:
            for _ in range(6):
                nursery.start_soon(visit)
            await until(lambda: plane.state.in_flight.get("r0", 0) + served[0] == 6)
            await until(lambda: len(hung.received) == plane.state.in_flight["r0"])
            met = len(hung.received)
            assert 0 < met <= HANDFUL
            seen_at = time.monotonic() + SOON_S + 3 * TICK_S
            await until(lambda: time.monotonic() > seen_at)  # so long it takes to be told from a slow one
            for _ in range(300):
                nursery.start_soon(visit)
            await until(lambda: served[0] + plane.state.in_flight.get("r0", 0) == 306)
            for _ in range(200):
                await plane.ask(post(chat(True)))
            assert len(hung.received) == met, "however many came meanwhile"
            for scope in stuck:
                scope.cancel()
        await settled(plane)
        before = len(hung.received)
        await several(plane, 100, at_once=4)
        assert len(hung.received) == before, "those who gave up waiting were a lesson too"


@pytest.mark.trio
@pytest.mark.promise("A8")
async def test_a_hung_replica_that_healed_is_back_within_its_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "HUNG_AFTER_S", SOON_S)
    engine = Switched(never)
    async with running(engine, streaming(["ok"]), timeouts=Timeouts(first_byte=0.5)) as plane:
        await several(plane, 16, at_once=16)
        assert "r0" in plane.state.breakers
        engine.healed = True
        with trio.fail_after(PAUSE_LAST_S):
            while "r0" in plane.state.breakers:
                assert (await plane.ask(post(chat(True)))).body == OK
        assert engine.served >= 1
        assert plane.state.breaker_failures == {}


@pytest.mark.trio
@pytest.mark.promise("A8")
async def test_a_broken_replica_gets_exactly_one_request_to_find_out() -> None:
    release = trio.Event()
    healed = [False]

    async def behave(exchange: Exchange) -> None:
        if not healed[0]:
            await exchange.send(json_answer({"error": "x"}, b"500 No"))
            return
        await release.wait()
        await streaming(["ok"])(exchange)

    async with running(behave, streaming(["ok"])) as plane:
        await until_open(plane)
        before = len(plane.engines[0].received)
        healed[0] = True
        await until(lambda: plane.state.breakers == {"r0": "half-open"})
        async with trio.open_nursery() as nursery:
            finished: list[bytes] = []

            async def ask() -> None:
                finished.append((await plane.ask(post(chat(True)))).body)

            for _ in range(20):
                nursery.start_soon(ask)
            await until(lambda: len(finished) == 19)
            assert len(plane.engines[0].received) == before + 1
            assert plane.state.breakers == {"r0": "half-open"}
            release.set()
        assert finished == [OK] * 20
        assert plane.state.breakers == {}


async def until_open(plane: Plane, replica: str = "r0") -> None:
    """Ask until the replica's breaker is open."""
    with trio.fail_after(DEADLINE_S):
        while replica not in plane.state.breakers:
            await plane.ask(post(chat(True)))


@pytest.mark.trio
@pytest.mark.promise("A8")
async def test_who_finds_out_that_it_still_hangs_does_not_pay_with_the_whole_timeout(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(health, "HUNG_AFTER_S", SOON_S)
    engine = Switched(answering(json_answer({"error": "x"}, b"500 No")))
    async with running(engine, streaming(["ok"]), timeouts=Timeouts(first_byte=600.0)) as plane:
        await until_open(plane)
        engine.bad = never
        await until(lambda: plane.state.breakers == {"r0": "half-open"})
        answer = await plane.ask(post(chat(True)))
        assert answer.body == OK
        (row,) = (row for row in plane.state.rows if row.id == answer.headers["x-request-id"])
        assert (row.attempts, row.replica) == (2, "r1")
        assert plane.state.breakers == {"r0": "open"}


@pytest.mark.trio
@pytest.mark.promise("A8")
async def test_a_probe_whose_client_leaves_frees_it_for_the_next() -> None:
    engine = Switched(answering(json_answer({"error": "x"}, b"500 No")))
    async with running(engine, streaming(["ok"])) as plane:
        await until_open(plane)
        engine.bad = never
        await until(lambda: plane.state.breakers == {"r0": "half-open"})
        before = len(plane.engines[0].received)
        client = await plane.connect()
        await client.send(post(chat(True)))
        await until(lambda: len(plane.engines[0].received) == before + 1)
        await client.stream.aclose()
        await settled(plane)
        engine.healed = True
        assert (await plane.ask(post(chat(True)))).body == OK
        assert engine.served == 1
        await until(lambda: plane.state.breakers == {})


@pytest.mark.trio
@pytest.mark.promise("A8")
async def test_when_every_replica_hangs_nobody_else_waits_to_find_out() -> None:
    async with running(never, never, timeouts=Timeouts(first_byte=0.5)) as plane:
        await several(plane, 2 * FAILURES_IN_A_ROW, at_once=2 * FAILURES_IN_A_ROW)
        assert set(plane.state.breakers) == {"r0", "r1"}
        with trio.fail_after(DEADLINE_S):
            while (answer := await plane.ask(post(chat(True)))).error["code"] != "model_unavailable":
                pass  # it was sent to find out, and waited
        assert answer.status == 503
        assert "'m'" in str(answer.error["message"])
        assert 1 <= int(answer.headers["retry-after"]) <= PAUSE_LAST_S
        row = next(row for row in plane.state.rows if row.id == answer.headers["x-request-id"])
        assert (row.attempts, row.failed, row.output_tokens) == (0, True, 0)


@pytest.mark.trio
@pytest.mark.case("C5")
@pytest.mark.parametrize("status", [b"400 Bad", b"404 No", b"413 Long", b"422 What"])
async def test_a_clients_own_errors_open_no_breaker_and_heal_one(status: bytes) -> None:
    engine = Switched(answering(json_answer({"error": "x"}, b"500 No")))
    async with running(engine, streaming(["ok"])) as plane:
        await until_open(plane)
        engine.bad = answering(json_answer({"error": "x"}, status))
        with trio.fail_after(DEADLINE_S):
            while plane.state.breakers:
                await plane.ask(post(chat(True)))
        before = len(plane.state.rows)
        for _ in range(20):
            assert (await plane.ask(post(chat(True)))).status in (200, int(status[:3]))
        assert plane.state.breakers == {}
        assert {row.attempts for row in plane.state.rows[before:]} == {1}


@pytest.mark.trio
async def test_a_busy_engines_429_is_tried_elsewhere_and_then_the_clients() -> None:
    busy = answering(json_answer({"error": {"message": "full"}}, b"429 Busy", b"Retry-After: 7\r\n"))
    async with running(busy, streaming(["ok"])) as plane:
        assert await several(plane, 8, at_once=1) == [OK] * 8
        attempts = {row.attempts for row in plane.state.rows}
        assert 2 in attempts  # who asks the busy one goes to the other
        assert attempts <= {1, 2}
        assert plane.state.breakers == {}
        plane.engines[1].behaviour = busy
        answer = await plane.ask(post(chat(True)))
        assert (answer.status, json.loads(answer.body)) == (429, {"error": {"message": "full"}})
        assert answer.headers["retry-after"] == "7"
        assert plane.state.breakers == {}


@pytest.mark.trio
@pytest.mark.parametrize(
    ("said", "told"),
    [(None, "1"), (b"0", "1"), (b"soon", "1"), (b"2.5", "3"), (b"Wed, 21 Oct 2093 07:28:00 GMT", "300")],
)
async def test_an_engines_429_says_when_to_come_back_in_whole_seconds(said: bytes | None, told: str) -> None:
    line = b"" if said is None else b"Retry-After: %b\r\n" % said
    async with running(answering(json_answer({"error": {"message": "full"}}, b"429 Busy", line))) as plane:
        answer = await plane.ask(post(chat()))
        assert (answer.status, answer.headers["retry-after"]) == (429, told)
        assert answer.raw.lower().count(b"retry-after") == 1


@pytest.mark.trio
async def test_a_503_that_names_a_time_is_believed() -> None:
    away = answering(json_answer({"error": "x"}, b"503 Later", b"Retry-After: 25\r\n"))
    async with running(away, streaming(["ok"])) as plane:
        assert await several(plane, 12, at_once=1) == [OK] * 12
        assert len(plane.engines[0].received) == 1
        assert plane.state.breakers == {"r0": "open"}
        plane.state.apply(routing_of(plane.engines[:1], Timeouts()))
        answer = await plane.ask(post(chat()))
        assert (answer.status, answer.error["code"]) == (503, "model_unavailable")
        assert 20 <= int(answer.headers["retry-after"]) <= 25


@pytest.mark.trio
async def test_an_endpoint_that_moved_begins_with_a_closed_breaker() -> None:
    async with running(answering(json_answer({"error": "x"}, b"500 No")), streaming(["ok"])) as plane:
        await until_open(plane)
        plane.engines[0].behaviour = streaming(["ok"])
        moved = RoutedReplica(id="r0", model="m", endpoint=plane.engines[0].endpoint.replace("127.0.0.1", "localhost"))
        stays = RoutedReplica(id="r1", model="m", endpoint=plane.engines[1].endpoint)
        plane.state.apply(Routing(revision="1/2", models=(RoutedModel(name="m"),), replicas=(moved, stays)))
        assert (await plane.ask(post(chat(True)))).body == OK
        assert plane.state.breakers == {}


@pytest.mark.trio
@pytest.mark.case("C3")
@pytest.mark.promise("A7")
async def test_a_replica_whose_answers_break_off_is_left_alone() -> None:
    async with running(dropping(["a"]), streaming(["ok"])) as plane:
        bodies = await several(plane, 40, at_once=1)
        broken = [body for body in bodies if body != OK]
        assert 1 <= len(broken) <= FAILURES_IN_A_ROW + 2  # and one each time its pause is over
        assert all(body.startswith(token("a")) and body.endswith(b"\n\n" + DONE) for body in broken)
        assert "r0" in plane.state.breakers
        assert plane.state.breaker_failures == {"r0": "its answers break off midway"}
        assert {row.attempts for row in plane.state.rows if row.replica == "r0"} == {1}


@pytest.mark.trio
@pytest.mark.promise("A6")
async def test_a_kept_connection_that_ends_after_a_while_is_an_attempt_like_any_other() -> None:
    turns = [0]

    async def behave(exchange: Exchange) -> None:
        turns[0] += 1
        if turns[0] == 2:  # it took the request, worked on it and died
            await trio.sleep(STALE_S + 0.2)
            await exchange.close()
        else:
            await streaming(["ok"])(exchange)

    async with running(behave) as plane:
        assert await several(plane, 2, at_once=1) == [OK] * 2
        assert sorted(row.attempts for row in plane.state.rows) == [1, 2]


@pytest.mark.trio
@pytest.mark.promise("A8")
async def test_a_head_that_drips_is_no_first_byte() -> None:
    async def drip(exchange: Exchange) -> None:
        for byte in SSE_HEAD * 100:
            await exchange.send(bytes([byte]))
            await trio.sleep(0.05)

    async with running(drip, timeouts=Timeouts(first_byte=0.6)) as plane:
        answer = await plane.ask(post(chat(True)))
        assert (answer.status, answer.error["code"]) == (504, "engine_timeout")
        await until(lambda: plane.engines[0].open_connections == 0)


@pytest.mark.trio
@pytest.mark.promise("A8")
async def test_a_body_that_drips_without_completing_an_event_is_cut() -> None:
    async def drip(exchange: Exchange) -> None:
        await exchange.send(SSE_HEAD + chunk(token("a")))
        while True:
            await exchange.send(chunk(b"x"))
            await trio.sleep(0.05)

    async with running(drip, timeouts=Timeouts(inter_token=0.6)) as plane:
        answer = await plane.ask(post(chat(True)))
        assert answer.whole
        assert answer.body.startswith(token("a") + b'data: {"error"')
        assert b"engine_timeout" in answer.body
        await until(lambda: plane.engines[0].open_connections == 0)


def test_events_without_end_are_cut_and_never_held() -> None:
    with rig() as r:
        r.say(SSE_HEAD + chunk(token("a")))
        seen = r.client.received()
        part = chunk(b"x" * 60_000)
        for _ in range(MAX_ENGINE_BODY_BYTES // 60_000 + 4):
            r.say(part)
            seen = (seen + r.client.received())[-4096:]
            assert r.stream.events is not None
            assert len(r.stream.events._held) <= MAX_EVENT_BYTES
        assert r.ended is End.LOST
        assert b"engine_answer_too_long" in seen
        assert seen.endswith(DONE + b"\r\n0\r\n\r\n")


@pytest.mark.parametrize(
    ("head", "endless"),
    [
        (SSE_HEAD + chunk(token("a")) + b"0\r\n", b"X-Trailer: " + b"y" * 100 + b"\r\n"),
        (SSE_HEAD + chunk(token("a")) + b"0\r\nX-Trailer: ", b"y" * 1000),
        (SSE_HEAD + chunk(token("a")) + b"5;", b"y" * 1000),
        (SSE_HEAD + chunk(token("a")) + b"5;a=", b"y" * 1000),
    ],
)
def test_trailers_and_chunk_extensions_without_end_are_cut(head: bytes, endless: bytes) -> None:
    with rig() as r:
        r.say(head)
        said = 0
        while r.ended is None and said <= 2 * MAX_ENGINE_HEAD_BYTES:
            r.say(endless)
            said += len(endless)
        assert r.ended is End.LOST
        body = body_of(r.client.received())
        assert body.startswith(token("a"))
        assert body.endswith(DONE)


def test_an_answer_longer_than_it_said_ends_where_it_said_and_the_connection_with_it() -> None:
    with rig() as r:
        r.say(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}{}{}")
        head, _, body = r.client.received().partition(b"\r\n\r\n")
        assert b"content-length: 2" in head
        assert body == b"{}"
        assert r.ended is End.COMPLETE
        assert r.upstream.closed


@pytest.mark.trio
@pytest.mark.promise("A8")
async def test_many_requests_through_many_bad_replicas_reach_the_good_one() -> None:
    """However many replicas are broken, a request spends one attempt at most on finding out."""
    bad = [
        answering(b"", close=True),
        answering(b"\x00\x01garbage", close=True),
        answering(json_answer({"error": "x"}, b"500 No")),
        answering(json_answer({"error": "x"}, b"503 No")),
        answering(b"HTTP/1.1 302 Found\r\nLocation: http://169.254.169.254/\r\nContent-Length: 0\r\n\r\n"),
    ]
    async with running(*bad, streaming(["ok"])) as plane:
        with trio.fail_after(DEADLINE_S):
            while len(plane.state.breakers) < len(bad):
                await plane.ask(post(chat(True)))
        await until(lambda: set(plane.state.breakers.values()) == {"half-open"})
        assert await several(plane, 30, at_once=3) == [OK] * 30
        assert all(row.attempts <= 3 for row in plane.state.rows)
