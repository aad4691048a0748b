"""When engines are asked how busy they are and when it is told, on a clock of the test's own."""

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest
import trio
from trio.testing import MockClock as Clock

from agent.engines.loads import LLAMACPP
from agent.loads import ASK_TIMEOUT_S, LONGEST_PAUSE_S, PAGE_MAX_BYTES, LoadService, Serving
from agent.readiness import Answer, NoAnswer, Target
from agent.state import Outbox
from llmgw.core.figures import LOAD_HOLDS_S, LOAD_TOLD_EVERY_S
from llmgw.wire.llmgw.v1 import AgentMessage, EngineLoads

pytestmark = pytest.mark.trio


def serving(number: int = 0, *, pid: int = 1) -> Serving:
    """Engine `number`, at a port of the same number."""
    target = Target(host="127.0.0.1", port=number, key="k")
    return Serving(shard_id=f"r{number}/0", pid=pid, target=target, metrics=LLAMACPP, slots=4)


def page(running: int, waiting: int = 0) -> bytes:
    return f"llamacpp:requests_processing {running}\nllamacpp:requests_deferred {waiting}\n".encode()


@dataclass
class Site:
    """Engines whose pages the test writes, and what was told of them when."""

    engines: list[Serving] = field(default_factory=list)
    pages: dict[int, Callable[[], bytes]] = field(default_factory=dict)
    asked: dict[int, list[float]] = field(default_factory=dict)
    told: list[tuple[float, EngineLoads]] = field(default_factory=list)

    async def get(self, target: Target, path: str, *, max_bytes: int, timeout_s: float) -> Answer:
        """In place of the engines' HTTP."""
        assert (path, max_bytes, timeout_s) == ("/metrics", PAGE_MAX_BYTES, ASK_TIMEOUT_S)
        self.asked.setdefault(target.port, []).append(trio.current_time())
        body = self.pages[target.port]()
        if not body:
            await trio.sleep(timeout_s)
            raise NoAnswer("did not answer")
        await trio.lowlevel.checkpoint()
        return Answer(status=200, body=body[:max_bytes], cut=len(body) > max_bytes)

    async def hear(self, inbox: trio.MemoryReceiveChannel[AgentMessage]) -> None:
        async for message in inbox:
            assert message.engine_loads is not None
            self.told.append((trio.current_time(), message.engine_loads))


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch) -> Site:
    """No engine yet."""
    site = Site()
    monkeypatch.setattr("agent.loads.get", site.get)
    return site


@asynccontextmanager
async def running(site: Site, pages: Mapping[int, Callable[[], bytes]]) -> AsyncIterator[LoadService]:
    """The service over engines with those pages."""
    site.engines = [serving(number) for number in pages]
    site.pages = dict(pages)
    send, inbox = trio.open_memory_channel[AgentMessage](100)
    outbox = Outbox(send)
    service = LoadService(lambda: site.engines, outbox)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(site.hear, inbox)
        await nursery.start(outbox.run)
        await nursery.start(service.run)
        yield service
        nursery.cancel_scope.cancel()


async def test_what_changes_is_told_within_a_second_and_what_does_not_every_five(
    site: Site, autojump_clock: Clock
) -> None:
    running_now = 0
    async with running(site, {0: lambda: page(running_now)}):
        await trio.sleep(12.5)
        assert [round(at) for at, _ in site.told] == [0, 5, 10]
        running_now = 3
        changed_at = trio.current_time()
        await trio.sleep(1.5)
        at, loads = site.told[-1]
        assert at - changed_at <= 1.0
        assert (loads.shard_ids, loads.running, loads.waiting, loads.slots) == (["r0/0"], [3], [0], [4])
        assert (loads.kv_used, loads.failures) == ([], []), "llama.cpp does not say, and did not fail"
        assert LOAD_TOLD_EVERY_S == 5.0


async def test_one_that_hangs_is_asked_one_question_at_a_time_and_delays_nobody(
    site: Site, autojump_clock: Clock
) -> None:
    turn = iter(range(10_000))
    async with running(site, {0: lambda: b"", 1: lambda: page(next(turn))}):
        await trio.sleep(10.5)
    assert len(site.asked[1]) == 11
    assert [round(loads.running[-1]) for _, loads in site.told] == list(range(11)), "every answer was told at once"
    pauses = [b - a for a, b in zip(site.asked[0], site.asked[0][1:], strict=False)]
    assert min(pauses) > ASK_TIMEOUT_S
    assert len(site.asked[0]) <= 4, "it is asked less and less often"
    failed, never = site.told[-1][1].failures
    assert len(site.asked[0]) - 1 <= failed <= len(site.asked[0]), "the last question may still be open"
    assert never == 0


async def test_the_last_word_of_one_that_does_not_answer_grows_old_and_then_is_none(
    site: Site, autojump_clock: Clock
) -> None:
    answers = True
    async with running(site, {0: lambda: page(4, 9) if answers else b""}):
        await trio.sleep(2.5)
        answers, fell_silent = False, trio.current_time()
        await trio.sleep(60)
        for at, loads in site.told:
            if at > fell_silent and loads.running:
                assert (loads.running, loads.waiting) == ([4], [9])
                assert 0 < loads.age_s[0] < LOAD_HOLDS_S
        last, told = site.told[-1]
        assert last > fell_silent + LOAD_HOLDS_S
        assert (told.running, told.waiting, told.slots) == ([], [], []), "slots alone are no load"
        assert told.failures[0] > 3
        gaps = [b - a for a, b in zip(site.asked[0][-3:], site.asked[0][-2:], strict=False)]
        assert max(gaps) <= LONGEST_PAUSE_S + ASK_TIMEOUT_S + 1.0
        answers = True
        await trio.sleep(LONGEST_PAUSE_S + 2.0)
        assert (site.told[-1][1].running, site.told[-1][1].age_s) == ([4], [0.0]), "it is believed again at once"


@pytest.mark.parametrize("body", [b"<html>", b"\xff\x00" * 9, b"x" * (PAGE_MAX_BYTES + 1), page(1) * 60_000])
async def test_a_page_that_says_nothing_or_too_much_is_counted_and_no_load(
    body: bytes, site: Site, autojump_clock: Clock
) -> None:
    async with running(site, {0: lambda: body}):
        await trio.sleep(1.0)
    [(_, loads), *_] = site.told
    assert (loads.shard_ids, loads.running, loads.failures) == (["r0/0"], [], [1])


async def test_an_engine_that_was_started_again_is_another(site: Site, autojump_clock: Clock) -> None:
    body = page(7)
    async with running(site, {0: lambda: body}):
        await trio.sleep(1.5)
        assert site.told[-1][1].running == [7]
        body = b""
        site.engines = [serving(pid=2)]
        await trio.sleep(1.5)
        assert site.told[-1][1].running == [], "what its predecessor worked on is not its own"
        site.engines = []
        count = len(site.told)
        await trio.sleep(20)
        assert len(site.told) == count, "no engine, no message"


async def test_a_new_connection_is_told_everything(site: Site, autojump_clock: Clock) -> None:
    async with running(site, {0: lambda: page(1)}) as service:
        await trio.sleep(1.5)
        assert len(site.told) == 1
        service.tell_again()
        await trio.sleep(1.0)
        assert len(site.told) == 2
