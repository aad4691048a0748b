"""The agent's desk for checks: one engine at a time, a bounded line, and no adapter's fault ends the agent."""

import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio
import trio.testing

from agent.config import AgentConfig
from agent.engine_checks import MAX_REQUESTS, CheckDesk
from agent.engines import known_engines
from agent.engines.base import Engine
from llmgw.core.engine_checks import EngineCheck
from llmgw.wire.llmgw.v1 import AgentMessage, CheckEngines, EngineChecked
from tests.support.waiting import DEADLINE_S

pytestmark = pytest.mark.trio

Inbox = trio.MemoryReceiveChannel[AgentMessage]


@asynccontextmanager
async def desk_of(*names: str) -> AsyncIterator[tuple[CheckDesk, Inbox]]:
    """A desk for these engines, and what it says."""
    send, inbox = trio.open_memory_channel[AgentMessage](100)
    known = known_engines(AgentConfig(data="/x"))
    desk = CheckDesk({name: known[name] for name in names}, send)
    async with trio.open_nursery() as nursery:
        await nursery.start(desk.run)
        yield desk, inbox
        nursery.cancel_scope.cancel()


async def said(inbox: Inbox) -> EngineChecked:
    """The next answer."""
    with trio.fail_after(DEADLINE_S):
        message = (await inbox.receive()).engine_checked
    assert message is not None
    return message


async def test_every_engine_is_answered_for_in_its_order(monkeypatch: pytest.MonkeyPatch) -> None:
    def check(engine: Engine) -> EngineCheck:
        if engine.name == "vllm":
            raise ValueError("an adapter's fault")
        return EngineCheck(engine=engine.name, version="1", written=6, allowed=16, unknown_allowed=("--rate",))

    monkeypatch.setattr("agent.engine_checks.check", check)
    async with desk_of("sim", "vllm", "comfyui") as (desk, inbox):
        desk.request(CheckEngines(request_id="q"))
        first, second, third = [await said(inbox) for _ in range(3)]
        assert (first.engine, first.written, first.allowed, first.unknown_allowed) == ("sim", 6, 16, ["--rate"])
        assert (second.engine, second.failed) == ("vllm", "ValueError: an adapter's fault")
        assert [message.end for message in (first, second, third)] == [False, False, True]
        assert {message.request_id for message in (first, second, third)} == {"q"}
        desk.request(CheckEngines(request_id="r", engine="nope"))
        refused = await said(inbox)
        assert (refused.engine, refused.end) == ("", True)
        assert refused.failed == "'nope' is not one of sim, vllm, comfyui"


async def test_a_help_that_nobody_waits_for_any_more_keeps_the_next_one_waiting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    free, running = threading.Event(), threading.Semaphore(0)
    at_once: list[str] = []

    def check(engine: Engine) -> EngineCheck:
        at_once.append(engine.name)
        running.release()
        free.wait(DEADLINE_S)
        return EngineCheck(engine=engine.name)

    monkeypatch.setattr("agent.engine_checks.check", check)
    try:
        async with desk_of("sim", "vllm") as (desk, inbox):
            for _ in range(MAX_REQUESTS):
                desk.request(CheckEngines(request_id="before", engine="sim"))
            await trio.to_thread.run_sync(running.acquire)
            desk.cancel_all()
            desk.request(CheckEngines(request_id="after", engine="vllm"))
            await trio.testing.wait_all_tasks_blocked()
            assert at_once == ["sim"]
            free.set()
            answer = await said(inbox)
            assert (answer.request_id, answer.engine, answer.failed) == ("after", "vllm", "")
    finally:
        free.set()


async def test_one_help_runs_at_a_time_and_a_new_connection_ends_all_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    free, running = threading.Event(), threading.Semaphore(0)
    at_once: list[str] = []

    def check(engine: Engine) -> EngineCheck:
        at_once.append(engine.name)
        running.release()
        free.wait(DEADLINE_S)
        return EngineCheck(engine=engine.name)

    monkeypatch.setattr("agent.engine_checks.check", check)
    try:
        async with desk_of("sim") as (desk, inbox):
            for number in range(MAX_REQUESTS):
                desk.request(CheckEngines(request_id=f"q{number}"))
            await trio.to_thread.run_sync(running.acquire)
            desk.request(CheckEngines(request_id="late"))
            refused = await said(inbox)
            assert (refused.request_id, refused.failed) == ("late", f"{MAX_REQUESTS} checks are under way already")
            assert at_once == ["sim"]
            desk.cancel_all()
            await trio.testing.wait_all_tasks_blocked()
            free.set()
            desk.request(CheckEngines(request_id="again"))
            assert (await said(inbox)).request_id == "again"
            assert inbox.statistics().current_buffer_used == 0, "whoever asked before is on another connection"
    finally:
        free.set()
