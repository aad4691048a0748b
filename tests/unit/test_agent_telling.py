"""What the agent tells: the latest only, in columns, and only what is news."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import trio

from agent.discovery.dcgm import Exporter
from agent.discovery.gpu import CardReading, CardSample
from agent.sensors import Meter, SensorService
from agent.state import Outbox
from llmgw.core.cluster import Card
from llmgw.core.wear import CardWear
from llmgw.wire.llmgw.v1 import AgentMessage, Sensors, ShardState, ShardStatus
from tests.support.waiting import until


@pytest.fixture
def still(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine on which nothing changes."""
    still = {"memory_available": 10**10, "disk_free": 10**11, "load_1m": 0.5, "temperatures": (40.2, None)}
    for name, value in still.items():
        monkeypatch.setattr(f"agent.sensors.{name}", lambda *_, value=value: value)
    monkeypatch.setattr("agent.sensors.CpuMeter.percent", lambda _: 12.4)
    monkeypatch.setattr("agent.sensors.CpuPower.watts", lambda _: None)


def a_card(uuid: str, **facts: Any) -> Card:
    return Card(uuid=uuid, index=0, name="NVIDIA A40", gpu_class="a40-48g", **facts)


@pytest.mark.trio
async def test_the_last_word_on_each_subject_waits_and_no_more() -> None:
    send, inbox = trio.open_memory_channel[AgentMessage](0)
    outbox = Outbox(send)
    for number in range(1000):
        outbox.shard(ShardStatus(shard_id=f"r{number % 3}/0", restarts=number, state=ShardState.READY))
    got: list[int] = []
    async with trio.open_nursery() as nursery:
        await nursery.start(outbox.run)
        with trio.fail_after(60):
            for _ in range(3):
                message = await inbox.receive()
                assert message.shard_status is not None
                got.append(message.shard_status.restarts)
            outbox.shard(ShardStatus(shard_id="r0/0", restarts=5000))
            last = await inbox.receive()
        assert last.shard_status is not None
        assert last.shard_status.restarts == 5000
        nursery.cancel_scope.cancel()
    assert got == [997, 998, 999]


@pytest.mark.usefixtures("still")
def test_sensors_are_columns_and_told_once(tmp_path: Path) -> None:
    meter = Meter(tmp_path, cards=lambda: (a_card("GPU-a"), a_card("GPU-b")))
    cards = [
        CardSample(uuid="GPU-a", memory_used_bytes=5, utilization_percent=0.0, power_w=71.4),
        CardSample(uuid="GPU-hidden", memory_used_bytes=1),
        CardSample(uuid="GPU-b"),
    ]
    sensors = meter.message(cards)
    assert sensors is not None
    assert sensors.uuids == ["GPU-a", "GPU-b"]
    assert sensors.memory_used_bytes[0] == 5
    assert math.isnan(sensors.memory_used_bytes[1])
    assert sensors.utilization_percent[0] == 0.0
    assert sensors.temperature_c == []
    assert (sensors.cpu_percent, sensors.load_1m) == (12.0, 0.5)
    assert meter.message(cards) is None
    assert meter.message(cards[:1]) is not None
    meter.forget()
    assert meter.message(cards[:1]) is not None


class SlowReader:
    """A reader that counts how often it is asked."""

    name = "slow"
    sample_every_s = 10.0
    asked_every_s = 10.0

    def __init__(self) -> None:
        self.asked = 0

    def sample(self) -> tuple[CardSample, ...]:
        """One card."""
        self.asked += 1
        return (CardSample(uuid="GPU-a", memory_used_bytes=self.asked),)

    def open(self) -> None: ...

    def close(self) -> None: ...

    def cards(self) -> CardReading:
        """As if there were none."""
        return CardReading()

    def wear(self) -> Mapping[str, CardWear]:
        """Nothing that wears out."""
        return {}


class CountingMeter(Meter):
    """Counts how often figures were taken, and tells after the fifth."""

    def __init__(self, weights: Path) -> None:
        super().__init__(weights, cards=lambda: (a_card("GPU-a"),))
        self.taken = 0

    def message(self, cards: Sequence[CardSample]) -> Sensors | None:
        """As the meter's."""
        self.taken += 1
        return super().message(cards)


@pytest.mark.trio
@pytest.mark.usefixtures("still")
@pytest.mark.parametrize(("every_s", "asked"), [(1000.0, 1), (0.0, 5)])
async def test_a_costly_reader_is_not_asked_oftener_than_it_allows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, every_s: float, asked: int
) -> None:
    monkeypatch.setattr("agent.sensors.SAMPLE_EVERY_S", 0.01)
    send, _inbox = trio.open_memory_channel[AgentMessage](100)
    reader, meter = SlowReader(), CountingMeter(tmp_path)
    reader.sample_every_s = every_s
    service = SensorService(
        meter,
        Outbox(send),
        reader=lambda: reader,
        cards=lambda: (a_card("GPU-a"),),
        exporter=Exporter("off"),
        limiter=trio.CapacityLimiter(1),
    )
    async with trio.open_nursery() as nursery:
        await nursery.start(service.run)
        await until(lambda: meter.taken >= 5)
        nursery.cancel_scope.cancel()
    assert reader.asked == asked or (every_s == 0.0 and reader.asked >= asked)
