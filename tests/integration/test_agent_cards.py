"""The agent's look at its cards: tools that hang, drivers that come and go, and what a heartbeat costs."""

import subprocess
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import trio

from agent.config import AgentConfig
from agent.discovery import smi, surveyor
from agent.discovery.dcgm import Exporter
from agent.discovery.gpu import CardReading, CardSample, GpuReader, ReaderFailed
from agent.discovery.kernel_log import KernelLog
from agent.discovery.nvml import Nvml
from agent.discovery.smi_xml import SmiXml
from agent.discovery.surveyor import Surveyor
from agent.sensors import Meter, SensorService
from agent.state import Outbox
from llmgw.agents.nodes_told import node_from_inventory
from llmgw.agents.readings import wear_from
from llmgw.core.cluster import Card
from llmgw.core.layout import AgentLayout
from llmgw.core.wear import CardWear
from llmgw.wire.llmgw.v1 import AgentMessage
from tests.support.gpu_files import OWN
from tests.support.nvml_tape import TapeLibrary, load
from tests.support.waiting import until


def tool(path: Path, script: str) -> str:
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o700)
    return str(path)


def test_a_tool_that_hangs_is_ended_and_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(smi, "TIMEOUT_S", 0.3)
    pid = tmp_path / "pid"
    name = tool(tmp_path / "nvidia-smi", f"echo $$ > {pid}\nexec sleep 600")
    with pytest.raises(ReaderFailed, match=r"did not answer within 0\.3 s"):
        SmiXml(smi.Smi(name)).open()
    assert not Path(f"/proc/{pid.read_text().strip()}").exists()


def test_a_real_process_is_read(tmp_path: Path) -> None:
    reader = SmiXml(smi.Smi(tool(tmp_path / "nvidia-smi", f'[ "$1" = -q ] && cat {OWN / "two_cards.xml"}')))
    reader.open()
    assert [card.uuid for card in reader.cards().cards] == ["GPU-a", "GPU-b"]


@pytest.mark.trio
async def test_an_agent_takes_the_tool_on_its_path_when_the_library_is_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = f"""case "$*" in
"-q -x") cat {OWN / "mig.xml"} ;;
"-L") cat {OWN / "mig_list.txt"} ;;
"topo -m") printf '\tGPU0\tGPU1\tCPU Affinity\tNUMA Affinity\nGPU0\t X \tNV4\t0-3\t0\nGPU1\tNV4\t X \t0-3\t1\n' ;;
*) echo "no such option" >&2; exit 2 ;;
esac"""
    (tmp_path / "bin").mkdir()
    tool(tmp_path / "bin" / "nvidia-smi", script)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    config = AgentConfig(data=str(tmp_path), prefer_nvml=False, skip_gpus=("1001",))
    site = Surveyor(config, AgentLayout(data=tmp_path), address="10.0.0.1", engines={})
    await site.look()
    node = node_from_inventory(site.inventory(), node="n1", peer_address="10.0.0.1")
    assert [card.uuid for card in node.cards] == ["GPU-a", "MIG-a-second", "GPU-b"]
    parent, instance, whole = node.cards
    assert (parent.memory_total_bytes, instance.gpu_class) == (None, "h100-80g-mig-3g.40gb")
    assert (whole.nvlink_peers, whole.numa_node) == (("GPU-a",), 1)
    assert site.inventory().problems == []


class Scripted:
    """A reader that does what the test says."""

    name = "scripted"
    sample_every_s = asked_every_s = 0.0

    def __init__(self) -> None:
        self.fails = ""
        self.opened = 0
        self.hangs: threading.Event | None = None

    def open(self) -> None:
        """Counted."""
        self.opened += 1

    def cards(self) -> CardReading:
        """One card."""
        if self.hangs is not None:
            self.hangs.wait(30)
        if self.fails:
            raise ReaderFailed(self.fails)
        return CardReading(
            cards=(Card(uuid="GPU-a", index=0, name="NVIDIA A40", gpu_class="a40-48g", memory_total_bytes=10**9),)
        )

    def sample(self) -> tuple[CardSample, ...]:
        """No figures."""
        return ()

    def wear(self) -> Mapping[str, CardWear]:
        """No counts."""
        return {}

    def close(self) -> None:
        """Nothing is kept."""


def a_surveyor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *readers: GpuReader) -> Surveyor:
    monkeypatch.setattr(Surveyor, "_factories", lambda _: [lambda reader=reader: reader for reader in readers])
    return Surveyor(AgentConfig(data=str(tmp_path)), AgentLayout(data=tmp_path), address="127.0.0.1", engines={})


@pytest.mark.trio
async def test_a_reader_that_fails_leaves_the_last_state_and_says_that_it_is_old(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader = Scripted()
    site = a_surveyor(tmp_path, monkeypatch, reader)
    await site.look()
    assert [card.uuid for card in site.inventory().cards] == ["GPU-a"]
    assert site.inventory().problems == []
    reader.fails = "Failed to initialize NVML: Unknown Error"
    await site.look()
    told = site.inventory()
    assert [card.uuid for card in told.cards] == ["GPU-a"]
    assert "Unknown Error; what is listed is their last state" in told.problems[0]
    # The driver is loaded anew: the reader is opened again, and the sentence goes.
    reader.fails = ""
    await site.look()
    assert (reader.opened, site.inventory().problems) == (2, [])


@pytest.mark.trio
async def test_a_reader_that_hangs_is_told_and_not_asked_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(surveyor, "LOOK_TIMEOUT_S", 5.0)
    reader = Scripted()
    site = a_surveyor(tmp_path, monkeypatch, reader)
    await site.look()
    monkeypatch.setattr(surveyor, "LOOK_TIMEOUT_S", 0.2)
    reader.hangs = threading.Event()
    try:
        await site.look()
        assert "scripted has not come back" in site.inventory().problems[0]
        assert [card.uuid for card in site.inventory().cards] == ["GPU-a"]
        assert site.limiter.borrowed_tokens == 1
    finally:
        reader.hangs.set()
    await until(lambda: site.limiter.borrowed_tokens == 0)


@pytest.mark.trio
async def test_a_card_that_tells_nothing_any_more_has_the_kernels_last_word(tmp_path: Path) -> None:
    (tmp_path / "kmsg").write_text("3,1,5000000,-;NVRM: Xid (PCI:0000:0B:00): 79, GPU has fallen off the bus.\n")
    cards = tuple(
        Card(uuid=f"GPU-{name}", index=i, name="NVIDIA A40", gpu_class="a40-48g", bus_id=bus)
        for i, (name, bus) in enumerate({"a": "0000:0a:00.0", "b": "0000:0b:00.0", "c": ""}.items())
    )
    reader = Scripted()
    send, inbox = trio.open_memory_channel[AgentMessage](100)
    outbox = Outbox(send)
    service = SensorService(
        Meter(tmp_path, cards=lambda: cards),
        outbox,
        reader=lambda: reader,
        cards=lambda: cards,
        exporter=Exporter("off"),
        limiter=trio.CapacityLimiter(1),
        kernel_log=KernelLog(tmp_path / "kmsg"),
    )
    worn = None
    async with trio.open_nursery() as nursery:
        await nursery.start(outbox.run)
        await nursery.start(service.run)
        with trio.fail_after(20):
            while worn is None:
                worn = (await inbox.receive()).card_wear
        nursery.cancel_scope.cancel()
    told = wear_from(worn)
    assert {uuid: (wear.xid_count, wear.xid_last) for uuid, wear in told.items()} == {
        "GPU-a": (0, None),
        "GPU-b": (1, 79),
    }


@pytest.mark.trio
async def test_no_process_is_started_for_a_sample_through_nvml(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tape = TapeLibrary(load(OWN / "tape_8xh100.json"))
    site = a_surveyor(tmp_path, monkeypatch, Nvml(tape))
    await site.look()
    assert len(site.cards) == 8

    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("a process was started")

    monkeypatch.setattr(subprocess, "Popen", refuse)
    monkeypatch.setattr("agent.sensors.SAMPLE_EVERY_S", 0.01)
    monkeypatch.setattr("agent.discovery.nvml.Nvml.sample_every_s", 0.0)
    send, inbox = trio.open_memory_channel[AgentMessage](100)
    outbox = Outbox(send)
    service = SensorService(
        Meter(tmp_path, cards=lambda: site.cards),
        outbox,
        reader=lambda: site.reader,
        cards=lambda: site.cards,
        exporter=Exporter("off"),
        limiter=site.limiter,
    )
    worn, busiest = None, 0.0
    async with trio.open_nursery() as nursery:
        await nursery.start(outbox.run)
        await nursery.start(service.run)
        with trio.fail_after(20):
            while worn is None or busiest < 100:
                message = await inbox.receive()
                worn = worn or message.card_wear
                if message.sensors is not None and message.sensors.sm_active_percent:
                    busiest = max(busiest, *message.sensors.sm_active_percent)
                    assert set(message.sensors.profile_source) == {1}
                # A change has to be there for the next message: the power of the first card.
                tape.change("nvmlDeviceGetPowerUsage|g0", 300_000 + 1000 * tape.asked["nvmlDeviceGetPowerUsage"])
        nursery.cancel_scope.cancel()
    assert worn.uuids == sorted(card.uuid for card in site.cards)
    assert worn.nvlink_replay_errors == [9.0] * 8
    await site.look()
    assert len(site.inventory().cards) == 8
