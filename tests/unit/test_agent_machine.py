"""The machine's own sensors, its engines' processes and the kernel's log, read from made-up /sys and /proc."""

import math
import os
import subprocess
import sys
from pathlib import Path

import pytest

from agent.columns import MachineFigures, sensors_message, wear_message
from agent.discovery.gpu import CardSample
from agent.discovery.hwmon import CpuPower, temperatures
from agent.discovery.kernel_log import KernelLog, parse_record
from agent.discovery.process_tree import TreeMeter
from agent.sensors import Meter
from llmgw.core.cluster import Card
from llmgw.core.figures import ReplicaFigures
from llmgw.core.wear import CardWear
from tests.support.waiting import until_sync


def put(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(f"{text}\n")


def test_heat_of_cpu_and_inlet(tmp_path: Path) -> None:
    put(
        tmp_path / "sys/class/hwmon",
        {
            "hwmon0/name": "nvme",
            "hwmon0/temp1_input": "90000",
            "hwmon1/name": "coretemp",
            "hwmon1/temp1_label": "Package id 0",
            "hwmon1/temp1_input": "55000",
            "hwmon1/temp2_label": "Core 0",
            "hwmon1/temp2_input": "61000",
            "hwmon2/name": "coretemp",
            "hwmon2/temp1_label": "Package id 1",
            "hwmon2/temp1_input": "57500",
            "hwmon3/name": "ipmi",
            "hwmon3/temp1_label": "Inlet Temp",
            "hwmon3/temp1_input": "23000",
            "hwmon3/temp2_label": "Exhaust",
            "hwmon3/temp2_input": "nonsense",
        },
    )
    assert temperatures(root=tmp_path) == (57.5, 23.0)
    assert temperatures(root=tmp_path / "none") == (None, None)


def test_power_of_all_sockets_between_two_calls(tmp_path: Path) -> None:
    zones = tmp_path / "sys/class/powercap"
    for zone, name, energy in (
        ("intel-rapl:0", "package-0", 1_000_000),
        ("intel-rapl:1", "package-1", 9_000_000),
        ("intel-rapl:0:0", "core", 5),
        ("intel-rapl:2", "psys", 7),
    ):
        put(zones, {f"{zone}/name": name, f"{zone}/energy_uj": str(energy), f"{zone}/max_energy_range_uj": "10000000"})
    now = [100.0]
    power = CpuPower(root=tmp_path, clock=lambda: now[0])
    assert power.watts() is None
    now[0] += 2
    put(zones, {"intel-rapl:0/energy_uj": "201000000", "intel-rapl:1/energy_uj": "1000000"})
    # 200 J of the first socket; the second's counter went past its range of 10 J: 2 J.
    assert power.watts() == pytest.approx(101.0)
    assert CpuPower(root=tmp_path / "none").watts() is None


def process(root: Path, pid: int, *, ticks: int, started: int, pages: int, children: str = "") -> None:
    fields = ["S", "1", *["0"] * 9, str(ticks), "0", *["0"] * 6, str(started), "0"]
    put(
        root / "proc" / str(pid),
        {
            "stat": f"{pid} (an (odd) name) {' '.join(fields)}",
            "statm": f"9 {pages} 0",
            f"task/{pid}/children": children,
        },
    )


def test_an_engine_is_counted_with_its_children(tmp_path: Path) -> None:
    ticks, page = os.sysconf("SC_CLK_TCK"), os.sysconf("SC_PAGE_SIZE")
    process(tmp_path, 10, ticks=100, started=5, pages=3, children="11 12")
    process(tmp_path, 11, ticks=50, started=6, pages=4, children="")
    process(tmp_path, 12, ticks=7, started=6, pages=5, children="10")
    now = [0.0]
    meter = TreeMeter(root=tmp_path, clock=lambda: now[0])
    first = meter.figures({"s": 10, "gone": 99})
    assert first == {"s": ReplicaFigures(cpu_percent=None, memory_bytes=12 * page)}
    now[0] = 2.0
    process(tmp_path, 10, ticks=100 + ticks, started=5, pages=3, children="11 13")
    process(tmp_path, 11, ticks=50 + ticks, started=6, pages=4)
    process(tmp_path, 13, ticks=2 * ticks, started=9, pages=1)
    second = meter.figures({"s": 10})
    # The child that ended took nothing with it; the one that began counts from its beginning.
    assert second["s"].cpu_percent == pytest.approx(200.0)
    assert second["s"].memory_bytes == 8 * page


def test_a_real_tree_of_processes() -> None:
    script = "import subprocess,sys; subprocess.run([sys.executable, '-c', 'while True: pass'])"
    parent = subprocess.Popen([sys.executable, "-c", script], start_new_session=True)
    try:
        meter = TreeMeter()
        meter.figures({"s": parent.pid})
        until_sync(lambda: (meter.figures({"s": parent.pid})["s"].cpu_percent or 0) > 20)
        assert (meter.figures({"s": parent.pid})["s"].memory_bytes or 0) > 10**6
    finally:
        os.killpg(parent.pid, 9)
        parent.wait()


XID = "3,1234,5140900000,-;NVRM: Xid (PCI:0000:0B:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."


def test_errors_in_the_kernels_log(tmp_path: Path) -> None:
    assert parse_record(XID) == ("0000:0b:00.0", 79, 5140.9)
    assert parse_record("6,1,2,-;usb 1-1: new device") is None
    log_file = tmp_path / "kmsg"
    log_file.write_text(f"6,1,2,-;hello\n{XID}\n{XID.replace(': 79', ': 31')}\n")
    log = KernelLog(log_file, wall=lambda: 1_000_000.0, clock=lambda: 5150.9)
    worn = {"GPU-a": CardWear(pcie_replays=1, xid_count=9), "GPU-b": CardWear(), "GPU-c": CardWear(xid_count=4)}
    found = log.added_to(worn, {"GPU-a": "0000:0a:00.0", "GPU-b": "0000:0b:00.0"})
    assert found["GPU-a"] == CardWear(pcie_replays=1, xid_count=0)
    assert (found["GPU-b"].xid_count, found["GPU-b"].xid_last, found["GPU-b"].xid_at) == (2, 31, 999_990.0)
    assert found["GPU-b"].problems() == ()
    assert found["GPU-c"].xid_count == 4
    assert log.added_to(worn, {"GPU-b": "0000:0b:00.0"})["GPU-b"].xid_count == 2
    log.close()
    closed = KernelLog(tmp_path / "none")
    assert not closed.readable
    assert closed.added_to(worn, {"GPU-a": "0000:0a:00.0"}) == worn


def test_columns_hold_what_is_reported_and_no_more() -> None:
    cards = [
        CardSample(uuid="GPU-a", power_w=70.6, throttle_reasons=5, sm_active_percent=0.04, profile_source="dcgm"),
        CardSample(uuid="GPU-b", ecc_uncorrected=0),
    ]
    engines = {"m-2/0": ReplicaFigures(memory_bytes=17 * 2**20), "m-1/0": ReplicaFigures(cpu_percent=99.6)}
    message = sensors_message(MachineFigures(cpu_power_w=99.5), cards, engines)
    assert (message.power_w[0], message.throttle_reasons, message.profile_source) == (71.0, [5, 0], [2, 0])
    assert (message.sm_active_percent[0], message.ecc_uncorrected[1]) == (0.0, 0.0)
    assert math.isnan(message.ecc_uncorrected[0])
    assert (message.sm_clock_mhz, message.memory_temperature_c, message.inlet_temperature_c) == ([], [], None)
    assert message.shard_ids == ["m-1/0", "m-2/0"]
    assert message.shard_memory_bytes[1] == 16 * 2**20
    wear = wear_message({"GPU-b": CardWear(remap_failed=False), "GPU-a": CardWear(xid_last=79)})
    assert (wear.uuids, wear.pcie_replays, wear.xid_last[0], wear.remap_failed[1]) == (["GPU-a", "GPU-b"], [], 79, 0)


def test_a_unified_chip_uses_what_the_node_has_not_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agent.sensors.memory_available", lambda: 40 * 10**9)
    monkeypatch.setattr("agent.sensors.memory_total", lambda: 128 * 10**9)
    card = Card(uuid="GPU-gb10", index=0, name="NVIDIA GB10", gpu_class="gb10", unified=True)
    message = Meter(tmp_path, cards=lambda: (card,)).message([CardSample(uuid="GPU-gb10", power_w=11.0)])
    assert message is not None
    assert message.memory_used_bytes == [88 * 10**9]
