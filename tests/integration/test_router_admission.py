"""Clients before engines that take no more: who waits, who is refused and how, and what a waiting client sees."""

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import pytest
import trio

from llmgw.core.admission import Admission, Band
from llmgw.core.routing import KeyRecord, ReplicaLoad, Timeouts
from llmgw.router import comments as comments_module
from llmgw.router.comments import COMMENT
from tests.support.router_plane import DEADLINE_S, KEY, MODEL, OTHER, Answer, Plane, chat, post, running, settled
from tests.support.scripted_engine import DONE, LAST_CHUNK, SSE_HEAD, Exchange, chunk, json_answer, streaming, token

GOLD_KEY, BRONZE_KEY = b"sk-gold-0123456789", b"sk-bronze-0123456789"
BANDS = (Band(name="gold", priority=10), Band(name="bronze", priority=-10, queue_ttl=60.0))
TAKES = 5
"""What an engine with one slot is sent: one to work on, and a queue of four."""


@dataclass
class Desk:
    """An engine that answers only when it is told to, the oldest request first."""

    order: list[str] = field(default_factory=list)
    """What it was asked, as it came."""
    _open: list[trio.Event] = field(default_factory=list)

    async def behave(self, exchange: Exchange) -> None:
        """Hold the request until it is let go."""
        document = exchange.request.json
        self.order.append(str(document["user"]))
        go = trio.Event()
        self._open.append(go)
        await go.wait()
        if document["stream"]:
            await exchange.send(SSE_HEAD + chunk(token("ok")) + chunk(DONE) + LAST_CHUNK)
        else:
            await exchange.send(json_answer({"id": "c1", "choices": [], "usage": {"prompt_tokens": 1}}))

    async def asked(self, count: int) -> None:
        """Until it was asked that often."""
        with trio.fail_after(DEADLINE_S):
            while len(self.order) < count:  # noqa: ASYNC110 - a plain list
                await trio.sleep(0.005)

    def answer(self, count: int = 1) -> None:
        """Answer the oldest."""
        for _ in range(count):
            self._open.pop(0).set()


@dataclass
class Site:
    """A data plane before one such engine."""

    plane: Plane
    desk: Desk
    answers: dict[str, Answer] = field(default_factory=dict)

    def ask(self, name: str, *, key: bytes = KEY, stream: bool = False) -> None:
        """A client of its own asks; its answer is kept."""

        async def run() -> None:
            self.answers[name] = await self.plane.ask(post(chat(stream, user=name), key=key))

        self.plane.nursery.start_soon(run)

    async def full(self) -> None:
        """Fill the engine."""
        for number in range(TAKES):
            self.ask(f"first-{number}")
        await self.desk.asked(TAKES)

    async def waiting(self, count: int) -> None:
        """Until so many wait."""
        with trio.fail_after(DEADLINE_S):
            while self.queue() != count:  # noqa: ASYNC110 - plain counters
                await trio.sleep(0.005)

    def queue(self) -> int:
        """How many wait."""
        queues = self.plane.state.meters.report(usage_dropped=0, usage_waiting=0).queues
        return sum(sum(queue.waiting.values()) for queue in queues.values())

    async def answered(self, name: str) -> Answer:
        """That client's answer, once it is there."""
        with trio.fail_after(DEADLINE_S):
            while name not in self.answers:  # noqa: ASYNC110 - a plain dict
                await trio.sleep(0.005)
        return self.answers[name]

    def says(self, running_: int, waiting: int) -> None:
        """The engine says how it is."""
        load = ReplicaLoad(running=running_, waiting=waiting, slots=1, at=time.time())
        self.plane.state.loads["r0"] = load
        self.plane.state.on_loads()


@asynccontextmanager
async def site(
    rules: Admission | None = None, *, queue_s: float = 60.0, requests: Path | None = None
) -> AsyncIterator[Site]:
    """A plane under these rules, whose engine has one slot and nothing to do."""
    desk = Desk()
    async with running(desk.behave, timeouts=Timeouts(queue=queue_s), requests=requests) as plane:
        state = plane.state
        routing = state.routes.routing
        assert routing is not None
        state.apply(msgspec.structs.replace(routing, admission=rules or Admission()))
        state.others = {
            GOLD_KEY: KeyRecord(id="k-gold", name="gold", band="gold"),
            BRONZE_KEY: KeyRecord(id="k-bronze", name="bronze", band="bronze"),
        }
        here = Site(plane, desk)
        here.says(0, 0)
        yield here


@pytest.mark.trio
async def test_what_an_engine_does_not_take_waits_and_is_answered_in_turn() -> None:
    async with site() as here:
        await here.full()
        for number in range(3):
            here.ask(f"then-{number}")
            await here.waiting(number + 1)
        assert len(here.desk.order) == TAKES
        for number in range(3):
            here.desk.answer()
            await here.desk.asked(TAKES + number + 1)
            assert here.desk.order[-1] == f"then-{number}"
            assert here.queue() == 2 - number
        here.desk.answer(TAKES)
        for number in range(3):
            assert (await here.answered(f"then-{number}")).status == 200
        await settled(here.plane)
        rows = here.plane.state.rows
        assert sorted(row.band for row in rows) == [""] * TAKES + ["default"] * 3
        assert all((row.waited_ms > 0) == (row.band == "default") for row in rows)
        meters = here.plane.state.meters.of("m").snapshot()
        assert sum(meters.waited.counts) == 3
        assert meters.requests == {"ok": TAKES + 3}


@pytest.mark.trio
async def test_the_higher_band_goes_first_and_keys_take_turns() -> None:
    async with site(Admission(bands=BANDS)) as here:
        here.plane.state.others[b"sk-other-0123456789"] = KeyRecord(id="k-other", name="other", band="bronze")
        await here.full()
        clients = [
            ("b1", BRONZE_KEY),
            ("b2", BRONZE_KEY),
            ("o1", b"sk-other-0123456789"),
            ("d1", KEY),
            ("g1", GOLD_KEY),
        ]
        for count, (name, key) in enumerate(clients, start=1):
            here.ask(name, key=key)
            await here.waiting(count)
        here.desk.answer()
        await here.desk.asked(TAKES + 1)
        # Lower ones are not let into the engine's own queue while a higher one used the model lately.
        here.desk.answer(TAKES)
        for count in (2, 3, 4, 5):
            await here.desk.asked(TAKES + count)
            here.desk.answer()
        for name, _ in clients:
            assert (await here.answered(name)).status == 200
        assert here.desk.order[TAKES:] == ["g1", "d1", "b1", "o1", "b2"]


@pytest.mark.trio
async def test_a_wait_that_ends_is_answered_504_and_a_band_for_bulk_waits_longer() -> None:
    async with site(Admission(bands=BANDS), queue_s=0.3) as here:
        await here.full()
        here.ask("bulk", key=BRONZE_KEY)
        here.ask("soon")
        answer = await here.answered("soon")
        assert answer.status == 504
        assert answer.error["code"] == "queue_timeout"
        assert "'default'" in str(answer.error["message"])
        assert int(answer.headers["retry-after"]) >= 1
        await here.waiting(1)
        here.desk.answer(TAKES)
        await here.desk.asked(TAKES + 1)
        here.desk.answer()
        assert (await here.answered("bulk")).status == 200
        await settled(here.plane)
        (row,) = [row for row in here.plane.state.rows if row.status == 504]
        assert (row.band, row.attempts, row.replica) == ("default", 0, "")
        assert row.waited_ms >= 300
        meters = here.plane.state.meters.of("m").snapshot()
        assert meters.turned_away == {"default/timeout": 1}
        assert meters.requests["unavailable"] == 1


@pytest.mark.trio
async def test_what_finds_no_place_is_refused_at_once_and_leaves_no_row() -> None:
    async with site(Admission(max_waiting=1)) as here:
        await here.full()
        here.ask("waits")
        await here.waiting(1)
        answer = await here.plane.ask(post(chat(user="late")))
        assert answer.status == 429
        assert answer.error["code"] == "queue_full"
        assert "1 of 1 places of band 'default' are taken" in str(answer.error["message"])
        assert int(answer.headers["retry-after"]) >= 1
        assert not here.plane.state.rows
        meters = here.plane.state.meters.of("m").snapshot()
        assert meters.requests == {"refused": 1}
        assert meters.turned_away == {"default/full": 1}
        here.desk.answer()
        await here.desk.asked(TAKES + 1)
        assert "late" not in here.desk.order


@pytest.mark.trio
async def test_a_body_too_many_is_refused_and_a_small_one_waits() -> None:
    async with site(Admission(max_waiting_bytes=1000)) as here:
        await here.full()
        answer = await here.plane.ask(post(chat(user="x" * 1000)))
        assert (answer.status, answer.error["code"]) == (429, "queue_full")
        assert "of 1 kB" in str(answer.error["message"])
        here.ask("small")
        await here.waiting(1)


@pytest.mark.trio
async def test_where_the_head_tells_no_body_is_asked_for() -> None:
    async with site(Admission(max_waiting=1)) as here:
        here.plane.state.key = KeyRecord(id="k-test", name="test", models=("m",))
        await here.full()
        here.ask("waits")
        await here.waiting(1)
        client = await here.plane.connect()
        whole = post(chat(user="unread"), headers=b"Expect: 100-continue\r\n")
        head, _, _ = whole.partition(b"\r\n\r\n")
        await client.send(head + b"\r\n\r\n")
        answer = await client.answer()
        assert answer.status == 429
        assert "Every model that this key may use is at its limit" in str(answer.error["message"])
        assert here.plane.state.meters.of("").snapshot().turned_away == {"default/full": 1}


@pytest.mark.trio
async def test_a_client_that_leaves_frees_its_place() -> None:
    async with site(Admission(max_waiting=1)) as here:
        await here.full()
        client = await here.plane.connect()
        await client.send(post(chat(user="leaves")))
        await here.waiting(1)
        await client.stream.aclose()
        await here.waiting(0)
        here.ask("stays")
        await here.waiting(1)
        here.desk.answer()
        await here.desk.asked(TAKES + 1)
        assert here.desk.order[-1] == "stays"
        (left,) = [row for row in here.plane.state.rows if row.status == 499]
        assert (left.band, left.attempts) == ("default", 0)


@pytest.mark.trio
async def test_new_figures_of_an_engine_let_in_who_waits() -> None:
    async with site() as here:
        here.says(1, 9)
        for number in range(2):
            here.ask(f"client-{number}")
        await here.waiting(2)
        assert not here.desk.order
        here.says(1, 2)
        await here.desk.asked(1 + 1)
        here.desk.answer(2)
        assert (await here.answered("client-0")).status == 200


@pytest.mark.trio
async def test_who_waits_for_a_stream_is_kept_company(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(comments_module, "KEEP_ALIVE_S", 0.3)
    async with site() as here:
        await here.full()
        client = await here.plane.connect()
        await client.send(post(chat(True, user="streams")))
        await client.until(COMMENT)
        assert here.queue() == 1
        here.desk.answer()
        await here.desk.asked(TAKES + 1)
        here.desk.answer(TAKES)
        answer = await client.answer()
        assert answer.status == 200
        assert answer.whole
        assert answer.body.replace(COMMENT, b"") == token("ok") + DONE


@pytest.mark.trio
async def test_a_stream_that_waited_in_vain_ends_with_an_error_event(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(comments_module, "KEEP_ALIVE_S", 0.3)
    async with site(queue_s=1.5) as here:
        await here.full()
        answer = await here.plane.ask(post(chat(True, user="streams")))
        assert answer.status == 200
        assert answer.body.endswith(DONE)
        assert b'"code":"queue_timeout"' in answer.body
        assert COMMENT in answer.body


@pytest.mark.trio
async def test_a_drain_finishes_who_waits() -> None:
    async with site() as here:
        await here.full()
        here.ask("waits")
        await here.waiting(1)
        here.plane.drain.set()
        here.desk.answer(TAKES)
        await here.desk.asked(TAKES + 1)
        here.desk.answer()
        assert (await here.answered("waits")).status == 200
        with trio.fail_after(DEADLINE_S):
            await here.plane.returned.wait()


@pytest.mark.trio
async def test_a_drain_that_runs_out_of_time_leaves_a_row_of_who_waited() -> None:
    async with site() as here:
        await here.full()
        here.ask("waits")
        await here.waiting(1)
        state = here.plane.state
        here.plane.nursery.cancel_scope.cancel()
    (row,) = [row for row in state.rows if row.band]
    assert (row.status, row.failed, row.attempts) == (499, True, 0)
    assert not state.in_flight


@pytest.mark.trio
async def test_a_model_with_a_stand_in_hands_on_what_finds_no_place() -> None:
    desk = Desk()
    async with running(desk.behave, streaming(["other"])) as plane:
        routing = plane.state.routes.routing
        assert routing is not None
        model = msgspec.structs.replace(MODEL, fallbacks=("other",))
        first, second = routing.replicas
        plane.state.apply(
            msgspec.structs.replace(
                routing,
                models=(model, OTHER),
                replicas=(first, msgspec.structs.replace(second, model="other")),
                admission=Admission(max_waiting=0),
            )
        )
        here = Site(plane, desk)
        here.says(0, 0)
        await here.full()
        answer = await plane.ask(post(chat(True, user="handed on")))
        assert answer.status == 200
        assert answer.headers["x-llmgw-model"] == "other"
        assert plane.state.meters.of("m").snapshot().turned_away == {"default/full": 1}
        assert "handed on" not in desk.order
