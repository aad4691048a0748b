"""What goes through a machine's ports, from the kernel's counters to whoever looks: nothing is made up."""

import io
from argparse import Namespace
from pathlib import Path
from typing import cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.columns import MachineFigures, sensors_message
from agent.discovery.hardware_ports import network_ports
from agent.discovery.inventory import wire_part
from agent.discovery.parts import machine_parts
from agent.discovery.traffic import LEAST_S, Traffic, TrafficMeter
from agent.sensors import Meter
from llmgw.agents import nodes_told, readings
from llmgw.api.client import AdminClient
from llmgw.api.series import Of, Scope
from llmgw.api.types import NodeInfo
from llmgw.cli.context import Context
from llmgw.cli.groups.nodes import show
from llmgw.cli.output import Output
from llmgw.control.inventory import Inventory
from llmgw.control.live_rows import Moments, figures_row
from llmgw.control.views import node_info
from llmgw.core.cluster import MachinePart
from llmgw.core.figures import NodeFigures
from llmgw.wire.llmgw import v1 as wire
from tests.support.builders import GB, a_node
from tests.support.history import Rig

GIB = 2**30
STOPPED = 2**32 - 1


class Machine:
    """A made-up /sys, a clock, and the meter that reads both."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.now = 100.0
        self.meter = TrafficMeter(root / "ib", root=root, clock=lambda: self.now)

    def network(self, name: str, received: object, sent: object, *, speed: str = "100000", **files: object) -> None:
        """A network card's port; a counter that is none is not there."""
        port = f"sys/class/net/{name}"
        self.put(f"{port}/device/vendor", "0x15b3")
        self.put(f"{port}/speed", speed)
        self.put(f"{port}/statistics/rx_bytes", received)
        self.put(f"{port}/statistics/tx_bytes", sent)
        for file, value in files.items():
            self.put(f"{port}/{file}", value)

    def infiniband(self, name: str, received: object, sent: object, **files: object) -> None:
        """An InfiniBand port."""
        port = f"ib/{name}/ports/1"
        self.put(f"{port}/rate", "400 Gb/sec (4X NDR)")
        self.put(f"{port}/counters/port_rcv_data", received)
        self.put(f"{port}/counters/port_xmit_data", sent)
        for file, value in files.items():
            self.put(f"{port}/counters/{file}", value)

    def put(self, name: str, value: object) -> None:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if value is None:
            path.unlink(missing_ok=True)
        else:
            path.write_text(f"{value}\n")

    def after(self, seconds: float) -> Traffic:
        """What the meter says so much later."""
        self.now += seconds
        return self.meter.rates()


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_rates_are_of_all_ports_that_are_hardware(machine: Machine) -> None:
    machine.network("eth0", 1_000, 5_000)
    machine.network("eth1", 0, 0)
    machine.infiniband("mlx5_0", 10, 0)
    machine.put("sys/class/net/docker0/statistics/rx_bytes", 0)
    assert machine.meter.rates() == Traffic()
    machine.network("eth0", 1_000 + 5 * GIB, 5_000)
    machine.network("eth1", 5 * 100, 50)
    machine.infiniband("mlx5_0", 10 + 5 * GIB // 4, 0)
    machine.put("sys/class/net/docker0/statistics/rx_bytes", 10**12)
    told = machine.after(5.0)
    assert told == Traffic(network_in=GIB + 100.0, network_out=10.0, infiniband_in=GIB, infiniband_out=0.0)


def test_packets_over_infiniband_are_counted_once(machine: Machine) -> None:
    for moment in range(2):
        machine.network("ib0", moment * 5_000, 0, type="32")
        machine.infiniband("mlx5_0", moment * 1_250, 0)
        told = machine.after(5.0)
    assert told == Traffic(infiniband_in=1_000.0, infiniband_out=0.0)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (9_000, 100),  # the driver was loaded anew
        (2**32 - 10, 40),  # a counter of 32 bits began anew: how often, nobody knows
        (0, 2**60),  # faster than any port
        (0, 5 * 100 * 10**9),  # eight times what this port can
        (None, 100),  # it was not there
        (100, None),
        (100, "many"),
        (100, -5),
    ],
)
def test_a_port_whose_counter_does_not_tell_is_absent_and_costs_only_itself(
    machine: Machine, before: object, after: object
) -> None:
    machine.network("eth0", before, 0)
    machine.network("eth1", 0, 0)
    machine.after(0.0)
    machine.network("eth0", after, 500)
    machine.network("eth1", 1_000, 0)
    assert machine.after(5.0) == Traffic(network_in=200.0, network_out=100.0)
    # Alone it leaves nothing to tell, which is not zero.
    machine.put("sys/class/net/eth1/statistics/rx_bytes", None)
    machine.network("eth0", None, 500)
    assert machine.after(5.0) == Traffic(network_in=None, network_out=0.0)


def test_a_counter_that_stopped_at_its_end_is_not_taken_for_a_quiet_port(machine: Machine) -> None:
    for _ in range(2):
        machine.infiniband("mlx5_0", STOPPED, 0)
        told = machine.after(5.0)
    assert told == Traffic(infiniband_in=None, infiniband_out=0.0)


def test_the_next_sample_after_a_reset_is_a_rate_again(machine: Machine) -> None:
    for received, expected in ((9_000, None), (100, None), (600, 100.0)):
        machine.network("eth0", received, 0)
        assert machine.after(5.0).network_in == expected


def test_a_port_that_comes_later_and_one_that_goes_change_nothing_of_the_others(machine: Machine) -> None:
    machine.network("eth0", 0, 0)
    machine.after(0.0)
    machine.network("eth0", 500, 0)
    machine.network("eth1", 10**12, 10**12)
    assert machine.after(5.0).network_in == 100.0
    machine.network("eth1", 10**12 + 500, 10**12)
    (machine.root / "sys/class/net/eth0/statistics/rx_bytes").unlink()
    assert machine.after(5.0).network_in == 100.0


def test_asked_twice_at_once_it_says_the_same(machine: Machine) -> None:
    machine.network("eth0", 0, 0)
    machine.after(0.0)
    machine.network("eth0", 500, 0)
    told = machine.after(5.0)
    machine.network("eth0", 10**9, 0)
    assert machine.after(LEAST_S / 100) == told


def test_a_machine_without_any_says_nothing(machine: Machine) -> None:
    for _ in range(2):
        assert machine.after(5.0) == Traffic()


@given(
    st.lists(st.one_of(st.integers(0, 2**64 - 1).map(str), st.text(max_size=8)), min_size=2, max_size=6),
    st.floats(0, 100),
)
@settings(max_examples=100, deadline=None)
def test_no_counter_makes_a_figure_that_cannot_be(
    tmp_path_factory: pytest.TempPathFactory, counters: list[str], passed_s: float
) -> None:
    machine = Machine(tmp_path_factory.mktemp("sys"))
    for received in counters:
        machine.network("eth0", received.encode(errors="replace").decode(), 0)
        told = machine.after(passed_s).network_in
        assert told is None or 0 <= 8 * told <= 2 * 100e9


def test_errors_and_links_that_went_down_stand_with_their_port(machine: Machine) -> None:
    machine.network("eth0", 0, 0, carrier_down_count=3)
    machine.put("sys/class/net/eth0/statistics/rx_errors", 2)
    machine.put("sys/class/net/eth0/statistics/tx_errors", 5)
    machine.network("eth1", 0, 0)
    machine.infiniband("mlx5_0", 0, 0, port_rcv_errors=1, symbol_error=0, link_downed=7)
    eth0, eth1, mlx5 = machine_parts(machine.root / "ib", root=machine.root)
    assert (eth0.errors, eth0.link_downs) == (7, 3)
    assert (eth1.errors, eth1.link_downs) == (None, None)
    assert (mlx5.name, mlx5.errors, mlx5.link_downs) == ("mlx5_0/1", 1, 7)
    assert [port.name for port in network_ports(machine.root)] == ["eth0", "eth1"]
    described = wire.Inventory.parse(
        bytes(wire.Inventory(address="10.0.0.1", parts=[wire_part(eth0), wire_part(eth1)]))
    )
    assert nodes_told.node_from_inventory(described, node="n", peer_address="10.0.0.1").parts == (eth0, eth1)


class TestOnTheWay:
    """From the agent's message to whoever looks."""

    TRAFFIC = Traffic(network_in=1.23456e9, network_out=40_000.0, infiniband_in=None, infiniband_out=3e10)

    def told(self, traffic: Traffic) -> NodeFigures:
        message = sensors_message(MachineFigures(traffic=traffic), (), {})
        return readings.figures_from(wire.Sensors.parse(bytes(message)), ())[0]

    def test_rates_are_rounded_so_that_the_agents_own_words_are_no_news(self, tmp_path: Path) -> None:
        figures = self.told(self.TRAFFIC)
        assert (figures.network_in_bytes_per_s, figures.network_out_bytes_per_s) == (1_234_600_000.0, 0.0)
        assert (figures.infiniband_in_bytes_per_s, figures.infiniband_out_bytes_per_s) == (None, 3e10)

    @pytest.mark.parametrize("rate", [-1.0, float("nan"), float("inf"), 1e14])
    def test_what_cannot_be_counts_as_not_said(self, rate: float) -> None:
        message = wire.Sensors(network_in_bytes_per_s=rate, infiniband_in_bytes_per_s=5.0)
        figures, _ = readings.figures_from(message, ())
        assert (figures.network_in_bytes_per_s, figures.infiniband_in_bytes_per_s) == (None, 5.0)

    def test_it_has_no_last_word_and_stands_where_the_nodes_load_does(self) -> None:
        inventory = Inventory(lambda: 100.0, lambda: None)
        inventory.connected(a_node("n1"), [])
        inventory.sensed("n1", self.told(self.TRAFFIC))
        node = inventory.node("n1")
        assert node is not None
        row = figures_row(node, inventory.figures, Moments(lambda: 100.0, lambda: 0.0))
        info = node_info(node, (), 100.0, inventory)
        for told in (node, row, info):
            assert told.network_in_bytes_per_s == 1_234_600_000.0
            assert told.infiniband_in_bytes_per_s is None
            assert told.infiniband_out_bytes_per_s == 3e10
        inventory.sensed("n1", NodeFigures())
        node = inventory.node("n1")
        assert node is not None
        assert node.network_in_bytes_per_s is None

    def test_the_agents_meter_tells_it_and_starts_no_process(
        self, machine: Machine, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def no_process(*_: object, **__: object) -> None:
            raise AssertionError("a process was started for a sample")

        monkeypatch.setattr("subprocess.Popen", no_process)
        meter = Meter(machine.root, cards=tuple, traffic=machine.meter)
        machine.network("eth0", 0, 0)
        first = meter.message(())
        machine.now += 5.0
        machine.network("eth0", 5 * 10**9, 0)
        second = meter.message(())
        assert first is not None
        assert first.network_in_bytes_per_s is None
        assert second is not None
        assert second.network_in_bytes_per_s == 10**9


@pytest.mark.trio
async def test_it_is_kept_over_time_and_what_is_not_said_is_null() -> None:
    rig = Rig()
    for figures in (
        NodeFigures(network_in_bytes_per_s=1.2344e9, network_out_bytes_per_s=0.0, infiniband_out_bytes_per_s=3.5e11),
        NodeFigures(network_in_bytes_per_s=1.2e9),
    ):
        rig.now += 5.0
        rig.inventory.sensed("n1", figures)
        await rig.recorder.sample()
    names = ("network_in", "network_out", "infiniband_in", "infiniband_out")
    answer = await rig.series.answer(names, (Of(Scope.NODE, "n1"),), rig.now - 5.0, None, 5.0)
    assert {each.unit for each in answer.series} == {"MB/s"}
    assert [each.points for each in answer.series] == [(1234.0, 1200.0), (0.0, None), (None, None), (350_000.0, None)]


def test_one_node_in_full_has_its_traffic_and_its_ports() -> None:
    node = NodeInfo(
        name="n1",
        state="connected",
        memory_total_bytes=GB,
        network_in_bytes_per_s=1.2e9,
        network_out_bytes_per_s=0.0,
        infiniband_out_bytes_per_s=3e10,
        parts=(
            MachinePart(kind="disk", name="nvme0n1"),
            MachinePart(
                kind="infiniband", name="mlx5_0/1", state="active", rate_bps=400 * 10**9, errors=12, link_downs=1
            ),
            MachinePart(kind="network", name="eth0"),
        ),
    )

    class Client:
        """Knows one node."""

        def node(self, name: str) -> NodeInfo:
            """It."""
            assert name == "n1"
            return node

    out = io.StringIO()
    show(Context(args=Namespace(node="n1"), out=Output(json=False, out=out), _client=cast("AdminClient", Client())))
    lines = [" ".join(line.split()) for line in out.getvalue().splitlines()]
    assert "network in 1.2 GB/s, out 0 B/s" in lines
    assert "infiniband out 30 GB/s" in lines
    assert "mlx5_0/1 infiniband active 400 Gb/s 12 1×" in lines
    assert "eth0 network - - - -" in lines
    assert not any("nvme0n1" in line for line in lines)


def test_a_part_of_an_older_agent_has_no_counts() -> None:
    described = wire.Inventory(address="10.0.0.1", parts=[wire.MachinePart(kind="network", name="eth0", state="up")])
    (part,) = nodes_told.node_from_inventory(described, node="n", peer_address="10.0.0.1").parts
    assert part == MachinePart(kind="network", name="eth0", state="up")
