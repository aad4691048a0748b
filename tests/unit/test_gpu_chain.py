"""From what a driver says to what a scraper reads: the whole way of a card's figures, and of what it does not say."""

from pathlib import Path

import pytest

from agent.columns import wear_message
from agent.discovery.completing import completed
from agent.discovery.host import HostFacts
from agent.discovery.inventory import build_inventory
from agent.discovery.nvml import Nvml
from agent.sensors import Meter
from llmgw.agents import nodes_told, readings
from llmgw.api.types import CardInfo, ClusterStatus
from llmgw.control.inventory import Inventory
from llmgw.control.live_rows import node_row, work_from, work_percent
from llmgw.control.metrics import render
from llmgw.control.router_metrics import Totals
from llmgw.control.views import node_info
from llmgw.wire.llmgw import v1 as wire
from tests.support.exposition import parse
from tests.support.gpu_files import MIB, OWN
from tests.support.nvml_tape import TapeLibrary, load

HOST = HostFacts(
    cpus=20, cpu_model="CPU", memory_total_bytes=128 * 10**9, disk_total_bytes=10**12, kernel="6.8", os="Debian"
)


@pytest.fixture
def inventory(tmp_path: Path) -> Inventory:
    """The leader's, after an agent with one card of each kind said hello, sensed twice and told its wear."""
    reader = Nvml(TapeLibrary(load(OWN / "tape_mixed.json")))
    reader.open()
    reading = completed(reader.cards(), memory_bytes=120 * 10**9, topology=dict)
    described = build_inventory(address="10.0.0.1", host=HOST, reserve_bytes=0, reading=reading, engines=())
    hello = wire.Hello.parse(bytes(wire.Hello(node="n1", inventory=described)))
    found = Inventory(lambda: 100.0, lambda: None)
    found.connected(nodes_told.node_from_hello(hello, node="n1", peer_address="10.0.0.1"), [])
    meter = Meter(tmp_path, cards=lambda: reading.cards)
    for _ in range(2):
        message = meter.message(reader.sample())
        assert message is not None
        figures, _ = readings.figures_from(wire.Sensors.parse(bytes(message)), ())
        found.sensed("n1", figures)
    found.worn("n1", readings.wear_from(wire.CardWear.parse(bytes(wear_message(reader.wear())))))
    return found


def cards_of(inventory: Inventory) -> dict[str, CardInfo]:
    node = inventory.node("n1")
    assert node is not None
    return {card.uuid: card for card in node_info(node, (), 100.0, inventory).cards}


def test_every_kind_of_card_arrives_as_it_is(inventory: Inventory) -> None:
    cards = cards_of(inventory)
    parent, instance = cards["GPU-a100"], cards["MIG-a100-9"]
    assert (parent.memory_total_bytes, parent.utilization_percent, parent.power_w) == (None, None, 67.0)
    assert (instance.memory_used_bytes, instance.temperature_c, instance.power_w) == (3000 * MIB, 27.0, None)
    assert (instance.throttled, instance.sm_active_percent, instance.wear) == (None, None, None)
    assert cards["GPU-v100"].throttle == ("slowed down by hardware", "warm: the driver lowers clocks")
    assert (cards["GPU-h200"].sm_active_percent, cards["GPU-h200"].profile_source) == (5.0, "gpm")
    assert cards["GPU-h200"].wear_problems[0].startswith("Xid 95:")
    unified = cards["GPU-gb10"]
    assert (unified.unified, unified.memory_total_bytes) == (True, 120 * 10**9)
    assert unified.memory_used_bytes is not None


def test_work_is_the_chip_where_it_is_counted_and_power_where_it_is_not(inventory: Inventory) -> None:
    work = {
        uuid: (work_percent(inventory.figures(uuid)), work_from(card)) for uuid, card in cards_of(inventory).items()
    }
    assert work["GPU-h200"] == (5.0, "sm")
    assert work["GPU-4090"] == (50.0, "power")
    assert work["GPU-gb10"] == work["MIG-a100-1"] == (None, "")


def test_the_page_has_what_was_said_and_nothing_else(inventory: Inventory) -> None:
    node = inventory.node("n1")
    assert node is not None
    info = node_info(node, (), 100.0, inventory)
    status = ClusterStatus(
        version="1", cluster_id="c", leader="s", epoch=1, servers=(), routers=(), nodes=(info,), models=(), replicas=()
    )
    found = parse(render(status, Totals(), ()))

    def gpus(name: str) -> set[str]:
        return {dict(labels)["gpu"] for _, labels in found[name].samples}

    assert gpus("llmgw_gpu_healthy") == {"0", "1001", "1009", "1", "2", "3", "5"}
    assert gpus("llmgw_gpu_utilization_percent") == {"1", "2", "3", "5"}
    assert gpus("llmgw_gpu_sm_active_percent") == {"5"}
    assert gpus("llmgw_gpu_memory_used_bytes") == {"1001", "1009", "1", "2", "3", "5"}
    assert gpus("llmgw_gpu_retired_pages") == {"1"}
    assert gpus("llmgw_gpu_remapped_rows") == {"0", "5"}
    assert "llmgw_gpu_assigned" not in found
    row = node_row(info)
    assert [card.uuid for card in row.cards if card.wear] == ["GPU-a100", "GPU-v100", "GPU-h200"]
    assert [card.parent for card in row.cards if card.mig_profile] == ["GPU-a100", "GPU-a100"]
