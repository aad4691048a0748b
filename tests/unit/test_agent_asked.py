"""While somebody looks, the agent measures sooner: it always answers, and reads cards no oftener than it may."""

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import trio
import trio.testing

from agent.discovery.dcgm import Exporter
from agent.discovery.gpu import CardSample
from agent.sensors import SensorService
from agent.state import Outbox
from llmgw.wire.llmgw.v1 import AgentMessage
from tests.unit.test_agent_telling import CountingMeter, SlowReader, a_card, still

__all__ = ["still"]

pytestmark = [pytest.mark.trio, pytest.mark.usefixtures("still")]

LONG_S = 3600.0
"""Nothing comes by itself."""


class Same(SlowReader):
    """A reader whose card always says the same."""

    sample_every_s = LONG_S
    asked_every_s = 0.0

    def sample(self) -> tuple[CardSample, ...]:
        """One card."""
        super().sample()
        return (CardSample(uuid="GPU-a", memory_used_bytes=5),)


class Rig:
    """A service and what it told."""

    def __init__(
        self, service: SensorService, meter: CountingMeter, inbox: trio.MemoryReceiveChannel[AgentMessage]
    ) -> None:
        self.service, self.meter, self._inbox = service, meter, inbox

    async def told(self) -> None:
        """The next sample."""
        with trio.fail_after(60):
            while (await self._inbox.receive()).sensors is None:
                pass


@contextlib.asynccontextmanager
async def measuring(tmp_path: Path, reader: SlowReader) -> AsyncIterator[Rig]:
    """A service that has told its first sample, and tells no second by itself."""
    send, inbox = trio.open_memory_channel[AgentMessage](100)
    outbox, meter = Outbox(send), CountingMeter(tmp_path)
    service = SensorService(
        meter,
        outbox,
        reader=lambda: reader,
        cards=lambda: (a_card("GPU-a"),),
        exporter=Exporter("off"),
        limiter=trio.CapacityLimiter(1),
    )
    async with trio.open_nursery() as nursery:
        await nursery.start(outbox.run)
        await nursery.start(service.run)
        rig = Rig(service, meter, inbox)
        await rig.told()
        yield rig
        nursery.cancel_scope.cancel()


@pytest.fixture(autouse=True)
def paced(monkeypatch: pytest.MonkeyPatch) -> None:
    """A long period, and a short pace for who asks."""
    monkeypatch.setattr("agent.sensors.SAMPLE_EVERY_S", LONG_S)
    monkeypatch.setattr("agent.sensors.ASKED_EVERY_S", 0.01)
    monkeypatch.setattr("agent.sensors.DEAR_TIMES", 0.0)


async def test_who_asks_is_answered_though_nothing_changed(tmp_path: Path) -> None:
    reader = Same()
    async with measuring(tmp_path, reader) as rig:
        for asked in range(2, 6):
            rig.service.sample_soon()
            await rig.told()
            assert (rig.meter.taken, reader.asked) == (asked, asked)


async def test_a_tool_that_is_dear_is_not_run_for_it(tmp_path: Path) -> None:
    reader = Same()
    reader.asked_every_s = LONG_S
    async with measuring(tmp_path, reader) as rig:
        for _ in range(4):
            rig.service.sample_soon()
            await rig.told()
        assert (rig.meter.taken, reader.asked) == (5, 1), "the machine's own figures are fresh all the same"


async def test_cards_that_take_long_to_read_rest_longer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agent.sensors.DEAR_TIMES", 1e9)
    reader = Same()
    async with measuring(tmp_path, reader) as rig:
        for _ in range(4):
            rig.service.sample_soon()
            await rig.told()
        assert reader.asked == 1


async def test_cards_that_take_long_are_read_in_their_usual_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agent.sensors.DEAR_TIMES", 1e9)
    reader = Same()
    reader.sample_every_s = 0.0
    async with measuring(tmp_path, reader) as rig:
        rig.service.sample_soon()
        await rig.told()
        assert reader.asked == 2


async def test_more_orders_than_the_pace_allows_are_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agent.sensors.ASKED_EVERY_S", LONG_S)
    async with measuring(tmp_path, Same()) as rig:
        for _ in range(20):
            rig.service.sample_soon()
            await trio.testing.wait_all_tasks_blocked()
        assert rig.meter.taken == 1
