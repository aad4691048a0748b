"""What a hostile node may say, and what of it enters the cluster's state."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.columns import MachineFigures, sensors_message, wear_message
from agent.discovery.gpu import CardSample
from agent.discovery.inventory import wire_card, wire_part
from llmgw.agents import nodes_told, order_messages, plausible, readings, replicas_told
from llmgw.core import throttle
from llmgw.core.catalog import Model, Profile
from llmgw.core.cluster import Card, MachinePart, Replica, ShardState
from llmgw.core.errors import InvalidInput
from llmgw.core.figures import CardFigures, ReplicaFigures
from llmgw.core.snapshot import CatalogEntry
from llmgw.core.wear import CardWear
from llmgw.wire.llmgw import v1 as wire


def hello(**inventory: object) -> wire.Hello:
    """A Hello with this inventory."""
    return wire.Hello(node="n1", inventory=wire.Inventory(**inventory))  # type: ignore[arg-type]


def status(**fields: object) -> wire.ShardStatus:
    """A status of m-1/0."""
    return wire.ShardStatus(**({"shard_id": "m-1/0", "state": wire.ShardState.READY} | fields))  # type: ignore[arg-type]


def test_an_honest_hello() -> None:
    said = hello(
        address="gpu-1.lan",
        cpus=8,
        memory_total_bytes=2**36,
        cards=[
            wire.Card(uuid="GPU-1", index=0, name="H100", gpu_class="h100-80g", memory_total_bytes=80, healthy=True)
        ],
        engines=[wire.Engine(name="sim", version="1", usable=True)],
        problems=["nvidia-smi: not found"],
    )
    said.pid = 42
    node = nodes_told.node_from_hello(said, node="n1", peer_address="10.0.0.1")
    assert (node.name, node.address, node.cpus, node.agent_pid) == ("n1", "gpu-1.lan", 8, 42)
    assert node.memory_available_bytes == 2**36
    assert node.cards[0].gpu_class == "h100-80g"
    assert node.engines[0].usable
    assert nodes_told.problems(said.inventory) == ("nvidia-smi: not found",)


def test_the_address_of_the_connection_stands_in() -> None:
    assert nodes_told.node_from_hello(wire.Hello(), node="n1", peer_address="10.0.0.1").address == "10.0.0.1"


def test_the_name_is_the_certificates() -> None:
    assert nodes_told.node_from_hello(wire.Hello(node="other"), node="n1", peer_address="::1").name == "n1"


@pytest.mark.parametrize(
    ("inventory", "why"),
    [
        ({"cards": [wire.Card(uuid=f"G{i}") for i in range(129)]}, "129 entries are over the limit of 128"),
        ({"cards": [wire.Card(uuid="G"), wire.Card(uuid="G")]}, "same uuid"),
        ({"cards": [wire.Card(uuid="../x")]}, "not an id"),
        ({"cards": [wire.Card(uuid="")]}, "not an id"),
        ({"engines": [wire.Engine(name=f"e{i}") for i in range(33)]}, "engines: 33"),
        ({"address": "evil/path"}, "neither a host name"),
        ({"address": "a b"}, "neither a host name"),
        ({"address": "x" * 300}, "neither a host name"),
    ],
)
def test_refused_inventories(inventory: dict[str, object], why: str) -> None:
    with pytest.raises(InvalidInput, match=why):
        nodes_told.node_from_hello(hello(**inventory), node="n1", peer_address="10.0.0.1")


def test_impossible_figures_count_as_not_said() -> None:
    card = wire.Card(uuid="G", memory_total_bytes=2**63, index=2**31)
    node = nodes_told.node_from_hello(
        hello(cpus=2**31, memory_total_bytes=2**60, cards=[card]), node="n1", peer_address="10.0.0.1"
    )
    assert (node.cpus, node.memory_total_bytes) == (0, 0)
    assert node.cards[0].memory_total_bytes is None
    assert node.cards[0].index == 0


def test_texts_are_harmless() -> None:
    evil = "\x1b]0;owned\x07" + "x" * 5000 + "\u202e"
    card = wire.Card(uuid="G", name=evil, problem=evil)
    node = nodes_told.node_from_hello(hello(cards=[card], problems=[evil] * 99), node="n1", peer_address="::1")
    assert "\x1b" not in node.cards[0].name
    assert len(node.cards[0].problem) <= plausible.TEXT_CHARS
    assert len(nodes_told.problems(wire.Inventory(problems=[evil] * 99))) == plausible.MAX_PROBLEMS


def test_a_shard_with_its_spec() -> None:
    spec = wire.ShardSpec(
        shard_id="m-1/0", replica_id="m-1", model="org/m", profile="cpu", engine="sim", card_uuids=["MIG-GPU-1/2/0"]
    )
    replica = replicas_told.replica_from_status(status(endpoint="http://10.0.0.1:18000", pid=9, spec=spec), node="n1")
    assert (replica.id, replica.model, replica.node) == ("m-1", "org/m", "n1")
    assert replica.state is ShardState.READY
    assert replica.cards == ("MIG-GPU-1/2/0",)
    assert replica.endpoint == "http://10.0.0.1:18000"


def test_a_shard_without_its_spec_names_no_model() -> None:
    assert replicas_told.replica_from_status(status(), node="n1").model == ""


@pytest.mark.parametrize(
    "endpoint",
    [
        "https://10.0.0.1:1",
        "http://10.0.0.1",
        "http://10.0.0.1:0",
        "http://10.0.0.1:99999",
        "http://u:p@10.0.0.1:80",
        "http://10.0.0.1:80/x",
        "http://169.254.169.254:80",
        "http://0.0.0.0:80",
        "http://[::]:80",
        "file:///etc/passwd",
        "http://10.0.0.1:80\r\nX: y",
        "http://" + "a" * 400 + ":80",
    ],
)
def test_endpoints_that_routers_must_never_call(endpoint: str) -> None:
    with pytest.raises(InvalidInput):
        replicas_told.replica_from_status(status(endpoint=endpoint), node="n1")


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"shard_id": ""}, "not an id"),
        ({"shard_id": "a\nb"}, "not an id"),
        ({"state": wire.ShardState.UNSPECIFIED}, "state"),
        ({"state": wire.ShardState(99)}, "state"),
        ({"spec": wire.ShardSpec(replica_id="other", model="m", profile="p", engine="e")}, "described as another's"),
        ({"spec": wire.ShardSpec(model="", profile="p", engine="e")}, "model"),
    ],
)
def test_refused_statuses(fields: dict[str, object], why: str) -> None:
    with pytest.raises(InvalidInput, match=why):
        replicas_told.replica_from_status(status(**fields), node="n1")


def test_hello_with_too_many_or_repeated_shards() -> None:
    with pytest.raises(InvalidInput, match="257 entries"):
        replicas_told.replicas_from_hello(
            wire.Hello(shards=[status(shard_id=f"m-{i}/0") for i in range(257)]), node="n1"
        )
    with pytest.raises(InvalidInput, match="twice"):
        replicas_told.replicas_from_hello(wire.Hello(shards=[status(), status()]), node="n1")


def test_sensor_columns() -> None:
    sensors = wire.Sensors(uuids=["a", "b"], memory_used_bytes=[5.0, math.nan], power_w=[-1.0, 1e18], cpu_percent=3.0)
    figures, order = readings.figures_from(sensors, ())
    assert order == ("a", "b")
    assert figures.cpu_percent == 3.0
    assert figures.cards["a"].memory_used_bytes == 5
    assert figures.cards["b"].memory_used_bytes is None
    assert figures.cards["a"].power_w is None
    assert figures.cards["b"].power_w is None
    again, order = readings.figures_from(wire.Sensors(temperature_c=[40.0, math.inf]), order)
    assert again.cards["a"].temperature_c == 40.0
    assert again.cards["b"].temperature_c is None


def test_every_column_of_a_card_arrives_and_absent_stays_absent() -> None:
    full = CardSample(
        uuid="a",
        memory_used_bytes=5,
        utilization_percent=0.0,
        temperature_c=40.0,
        power_w=300.0,
        sm_active_percent=0.0,
        power_limit_w=700.0,
        memory_temperature_c=50.0,
        memory_utilization_percent=37.0,
        sm_clock_mhz=1980.0,
        memory_clock_mhz=2619.0,
        throttle_reasons=throttle.READ | throttle.POWER_CAP,
        ecc_uncorrected=0,
        sm_occupancy_percent=12.5,
        tensor_active_percent=3.0,
        dram_active_percent=61.0,
        profile_source="gpm",
    )
    machine = MachineFigures(cpu_temperature_c=50.0, cpu_power_w=210.0, inlet_temperature_c=23.0)
    engines = {"m-1/0": ReplicaFigures(cpu_percent=250.0, memory_bytes=2**30), "m-2/0": ReplicaFigures()}
    message = wire.Sensors.parse(bytes(sensors_message(machine, [full, CardSample(uuid="b")], engines)))
    figures, _ = readings.figures_from(message, ())
    assert figures.cards["a"] == CardFigures(**{f: getattr(full, f) for f in CardFigures.__struct_fields__})
    assert figures.cards["b"] == CardFigures()
    assert (figures.cpu_temperature_c, figures.cpu_power_w, figures.inlet_temperature_c) == (50.0, 210.0, 23.0)
    assert figures.replicas == {
        "m-1": ReplicaFigures(cpu_percent=250.0, memory_bytes=2**30),
        "m-2": ReplicaFigures(),
    }


def test_reasons_that_nobody_read_are_none() -> None:
    figures, _ = readings.figures_from(
        wire.Sensors(uuids=["a", "b"], throttle_reasons=[4, 5], profile_source=[9, 2]), ()
    )
    assert [figures.cards[uuid].throttle_reasons for uuid in "ab"] == [0, 5]
    assert [figures.cards[uuid].profile_source for uuid in "ab"] == ["", "dcgm"]


def test_wear_travels_and_what_a_card_does_not_keep_is_absent() -> None:
    worn = {
        "a": CardWear(pcie_replays=7, remap_failed=False, xid_count=1, xid_last=79, xid_at=1.7e9),
        "b": CardWear(retired_pages_sbe=3, retirement_pending=True),
        "c": CardWear(),
    }
    message = wire.CardWear.parse(bytes(wear_message(worn)))
    assert readings.wear_from(message) == worn
    odd = wire.CardWear(uuids=["a"], pcie_replays=[-1.0], remapped_rows=[math.nan], remap_failed=[7.0], xid_last=[1e9])
    assert readings.wear_from(odd) == {"a": CardWear()}
    with pytest.raises(InvalidInput, match="2 entries for 1 cards"):
        readings.wear_from(wire.CardWear(uuids=["a"], pcie_replays=[1.0, 2.0]))
    with pytest.raises(InvalidInput, match="same uuid"):
        readings.wear_from(wire.CardWear(uuids=["a", "a"]))


def test_facts_of_a_card_and_a_machine() -> None:
    card = Card(
        uuid="MIG-a",
        index=1001,
        name="n",
        gpu_class="h100-80g-mig-1g.10gb",
        bus_id="0000:19:00.0",
        parent="GPU-a",
        mig_profile="1g.10gb",
        unified=True,
        pcie_generation=5,
        pcie_width=16,
        numa_node=0,
        nvlink_peers=(),
    )
    bare = Card(uuid="GPU-b", index=0, name="n", gpu_class="a40-48g")
    parts = (MachinePart(kind="disk", name="nvme0n1", size_bytes=10**12),)
    inventory = wire.Inventory(
        cards=[wire_card(card), wire_card(bare)],
        parts=[wire_part(part) for part in parts],
        numa_nodes=2,
        cuda_toolkits=["13.0", "12.8"],
    )
    node = nodes_told.node_from_inventory(wire.Inventory.parse(bytes(inventory)), node="n1", peer_address="10.0.0.1")
    assert node.cards == (card, bare)
    assert (node.parts, node.numa_nodes, node.cuda_toolkits) == (parts, 2, ("13.0", "12.8"))


def test_a_column_must_have_an_entry_a_card() -> None:
    with pytest.raises(InvalidInput, match="3 entries for 2 cards"):
        readings.figures_from(wire.Sensors(uuids=["a", "b"], power_w=[1.0, 2.0, 3.0]), ())
    with pytest.raises(InvalidInput, match="1 entries for 0 cards"):
        readings.figures_from(wire.Sensors(power_w=[1.0]), ())


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.floats(width=32), min_size=1, max_size=3),
    st.lists(st.floats(), min_size=1, max_size=3),
    st.integers(0, 2**64 - 1),
)
def test_no_figure_that_cannot_be_gets_in(power: list[float], used: list[float], free: int) -> None:
    uuids = [f"c{i}" for i in range(max(len(power), len(used)))]
    sensors = wire.Sensors(uuids=uuids, power_w=power, memory_used_bytes=used, disk_free_bytes=free)
    try:
        figures, _ = readings.figures_from(sensors, ())
    except InvalidInput:
        assert len(power) != len(used)
        return
    assert figures.disk_free_bytes is None or figures.disk_free_bytes <= plausible.MAX_BYTES
    for card in figures.cards.values():
        assert card.power_w is None or 0 <= card.power_w <= 20_000
        assert card.memory_used_bytes is None or 0 <= card.memory_used_bytes <= plausible.MAX_BYTES


def test_progress() -> None:
    message = wire.FetchProgress(phase="fetching", done_bytes=9, total_bytes=5, shard_ids=["m-1/0"])
    waiting, progress = replicas_told.progress_from(message)
    assert waiting == ("m-1",)
    assert (progress.phase, progress.done_bytes, progress.total_bytes) == ("fetching", 5, 5)
    _, progress = replicas_told.progress_from(wire.FetchProgress(phase="\x1b[31m", total_bytes=2**64 - 1))
    assert (progress.phase, progress.total_bytes) == ("", 0)


def test_log_lines() -> None:
    assert replicas_told.log_lines_from(wire.LogLines(lines=["a\x1b[2Jb"])) == ("a␛[2Jb",)
    with pytest.raises(InvalidInput, match="1001"):
        replicas_told.log_lines_from(wire.LogLines(lines=["x"] * 1001))


def test_orders() -> None:
    profile = Profile(name="cpu", engine="sim", args=("--slow",), env={"A": "b"}, slots=2)
    entry = CatalogEntry(model=Model(name="m", source="sim:", profiles=(profile,)))
    replica = Replica(id="m-1", model="m", profile="cpu", engine="sim", node="n1", spec_hash="h", slots=2)
    order = order_messages.start_shard(replica, entry, profile, engine_key="ek-1").start_shard
    assert order is not None
    assert order.spec is not None
    assert order.engine_key == "ek-1"
    assert (order.spec.shard_id, order.spec.source, order.spec.env) == ("m-1/0", "sim:", {"A": "b"})
    told = wire.ShardStatus(shard_id="m-1/0", state=wire.ShardState.PENDING, spec=order.spec)
    assert replicas_told.replica_from_status(told, node="n1") == replica
    stop = order_messages.stop_shard("m-1", "why", 3.0).stop_shard
    assert stop is not None
    assert (stop.shard_id, stop.grace_s) == ("m-1/0", 3.0)
    drain = order_messages.drain_shard("m-1", "why", 4.0).drain_shard
    assert drain is not None
    assert drain.deadline_s == 4.0


@pytest.mark.parametrize(
    "address", ["127.0.0.1", "localhost", "LOCALHOST", "::1", "::", "0.0.0.0", "127.1", "::ffff:127.0.0.1"]
)
def test_a_node_elsewhere_cannot_claim_this_machines_addresses(address: str) -> None:
    with pytest.raises(InvalidInput, match=r"own address|neither a host name"):
        nodes_told.node_from_hello(hello(address=address), node="n1", peer_address="10.0.0.7")
    if address in ("127.0.0.1", "localhost"):
        assert (
            nodes_told.node_from_hello(hello(address=address), node="n1", peer_address="127.0.0.1").address == address
        )


def test_a_replica_answers_at_its_nodes_address_only() -> None:
    replica = replicas_told.replica_from_status(status(endpoint="http://10.0.0.9:8000"), node="n1")
    replicas_told.check_endpoint(replica, "10.0.0.9")
    with pytest.raises(InvalidInput, match=r"answer at 10\.0\.0\.9"):
        replicas_told.check_endpoint(replica, "10.0.0.1")
    replicas_told.check_endpoint(replicas_told.replica_from_status(status(), node="n1"), "10.0.0.1")
