"""What a hostile node may say, and what of it enters the cluster's state."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llmgw.agents import translate
from llmgw.core.catalog import Model, Profile
from llmgw.core.cluster import Replica, ShardState
from llmgw.core.errors import InvalidInput
from llmgw.core.snapshot import CatalogEntry
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
    node = translate.node_from_hello(said, node="n1", peer_address="10.0.0.1")
    assert (node.name, node.address, node.cpus, node.agent_pid) == ("n1", "gpu-1.lan", 8, 42)
    assert node.memory_available_bytes == 2**36
    assert node.cards[0].gpu_class == "h100-80g"
    assert node.engines[0].usable
    assert translate.problems(said.inventory) == ("nvidia-smi: not found",)


def test_the_address_of_the_connection_stands_in() -> None:
    assert translate.node_from_hello(wire.Hello(), node="n1", peer_address="10.0.0.1").address == "10.0.0.1"


def test_the_name_is_the_certificates() -> None:
    assert translate.node_from_hello(wire.Hello(node="other"), node="n1", peer_address="::1").name == "n1"


@pytest.mark.parametrize(
    ("inventory", "why"),
    [
        ({"cards": [wire.Card(uuid=f"G{i}") for i in range(65)]}, "65 entries are over the limit of 64"),
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
        translate.node_from_hello(hello(**inventory), node="n1", peer_address="10.0.0.1")


def test_impossible_figures_count_as_not_said() -> None:
    card = wire.Card(uuid="G", memory_total_bytes=2**63, index=2**31)
    node = translate.node_from_hello(
        hello(cpus=2**31, memory_total_bytes=2**60, cards=[card]), node="n1", peer_address="10.0.0.1"
    )
    assert (node.cpus, node.memory_total_bytes) == (0, 0)
    assert node.cards[0].memory_total_bytes is None
    assert node.cards[0].index == 0


def test_texts_are_harmless() -> None:
    evil = "\x1b]0;owned\x07" + "x" * 5000 + "\u202e"
    card = wire.Card(uuid="G", name=evil, problem=evil)
    node = translate.node_from_hello(hello(cards=[card], problems=[evil] * 99), node="n1", peer_address="::1")
    assert "\x1b" not in node.cards[0].name
    assert len(node.cards[0].problem) <= translate.TEXT_CHARS
    assert len(translate.problems(wire.Inventory(problems=[evil] * 99))) == translate.MAX_PROBLEMS


def test_a_shard_with_its_spec() -> None:
    spec = wire.ShardSpec(
        shard_id="m-1/0", replica_id="m-1", model="org/m", profile="cpu", engine="sim", card_uuids=["MIG-GPU-1/2/0"]
    )
    replica = translate.replica_from_status(status(endpoint="http://10.0.0.1:18000", pid=9, spec=spec), node="n1")
    assert (replica.id, replica.model, replica.node) == ("m-1", "org/m", "n1")
    assert replica.state is ShardState.READY
    assert replica.cards == ("MIG-GPU-1/2/0",)
    assert replica.endpoint == "http://10.0.0.1:18000"


def test_a_shard_without_its_spec_names_no_model() -> None:
    assert translate.replica_from_status(status(), node="n1").model == ""


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
        translate.replica_from_status(status(endpoint=endpoint), node="n1")


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
        translate.replica_from_status(status(**fields), node="n1")


def test_hello_with_too_many_or_repeated_shards() -> None:
    with pytest.raises(InvalidInput, match="257 entries"):
        translate.replicas_from_hello(wire.Hello(shards=[status(shard_id=f"m-{i}/0") for i in range(257)]), node="n1")
    with pytest.raises(InvalidInput, match="twice"):
        translate.replicas_from_hello(wire.Hello(shards=[status(), status()]), node="n1")


def test_sensor_columns() -> None:
    sensors = wire.Sensors(uuids=["a", "b"], memory_used_bytes=[5.0, math.nan], power_w=[-1.0, 1e18], cpu_percent=3.0)
    figures, order = translate.figures_from(sensors, ())
    assert order == ("a", "b")
    assert figures.cpu_percent == 3.0
    assert figures.cards["a"].memory_used_bytes == 5
    assert figures.cards["b"].memory_used_bytes is None
    assert figures.cards["a"].power_w is None
    assert figures.cards["b"].power_w is None
    again, order = translate.figures_from(wire.Sensors(temperature_c=[40.0, math.inf]), order)
    assert again.cards["a"].temperature_c == 40.0
    assert again.cards["b"].temperature_c is None


def test_a_column_must_have_an_entry_a_card() -> None:
    with pytest.raises(InvalidInput, match="3 entries for 2 cards"):
        translate.figures_from(wire.Sensors(uuids=["a", "b"], power_w=[1.0, 2.0, 3.0]), ())
    with pytest.raises(InvalidInput, match="1 entries for 0 cards"):
        translate.figures_from(wire.Sensors(power_w=[1.0]), ())


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
        figures, _ = translate.figures_from(sensors, ())
    except InvalidInput:
        assert len(power) != len(used)
        return
    assert figures.disk_free_bytes is None or figures.disk_free_bytes <= translate.MAX_BYTES
    for card in figures.cards.values():
        assert card.power_w is None or 0 <= card.power_w <= 20_000
        assert card.memory_used_bytes is None or 0 <= card.memory_used_bytes <= translate.MAX_BYTES


def test_progress() -> None:
    message = wire.FetchProgress(phase="fetching", done_bytes=9, total_bytes=5, shard_ids=["m-1/0"])
    waiting, progress = translate.progress_from(message)
    assert waiting == ("m-1",)
    assert (progress.phase, progress.done_bytes, progress.total_bytes) == ("fetching", 5, 5)
    _, progress = translate.progress_from(wire.FetchProgress(phase="\x1b[31m", total_bytes=2**64 - 1))
    assert (progress.phase, progress.total_bytes) == ("", 0)


def test_log_lines() -> None:
    assert translate.log_lines_from(wire.LogLines(lines=["a\x1b[2Jb"])) == ("a␛[2Jb",)
    with pytest.raises(InvalidInput, match="1001"):
        translate.log_lines_from(wire.LogLines(lines=["x"] * 1001))


def test_orders() -> None:
    profile = Profile(name="cpu", engine="sim", args=("--slow",), env={"A": "b"}, slots=2)
    entry = CatalogEntry(model=Model(name="m", source="sim:", profiles=(profile,)))
    replica = Replica(id="m-1", model="m", profile="cpu", engine="sim", node="n1", spec_hash="h", slots=2)
    order = translate.start_shard(replica, entry, profile, engine_key="ek-1").start_shard
    assert order is not None
    assert order.spec is not None
    assert order.engine_key == "ek-1"
    assert (order.spec.shard_id, order.spec.source, order.spec.env) == ("m-1/0", "sim:", {"A": "b"})
    told = wire.ShardStatus(shard_id="m-1/0", state=wire.ShardState.PENDING, spec=order.spec)
    assert translate.replica_from_status(told, node="n1") == replica
    stop = translate.stop_shard("m-1", "why", 3.0).stop_shard
    assert stop is not None
    assert (stop.shard_id, stop.grace_s) == ("m-1/0", 3.0)
    drain = translate.drain_shard("m-1", "why", 4.0).drain_shard
    assert drain is not None
    assert drain.deadline_s == 4.0


@pytest.mark.parametrize(
    "address", ["127.0.0.1", "localhost", "LOCALHOST", "::1", "::", "0.0.0.0", "127.1", "::ffff:127.0.0.1"]
)
def test_a_node_elsewhere_cannot_claim_this_machines_addresses(address: str) -> None:
    with pytest.raises(InvalidInput, match=r"own address|neither a host name"):
        translate.node_from_hello(hello(address=address), node="n1", peer_address="10.0.0.7")
    if address in ("127.0.0.1", "localhost"):
        assert translate.node_from_hello(hello(address=address), node="n1", peer_address="127.0.0.1").address == address


def test_a_replica_answers_at_its_nodes_address_only() -> None:
    replica = translate.replica_from_status(status(endpoint="http://10.0.0.9:8000"), node="n1")
    translate.check_endpoint(replica, "10.0.0.9")
    with pytest.raises(InvalidInput, match=r"answer at 10\.0\.0\.9"):
        translate.check_endpoint(replica, "10.0.0.1")
    translate.check_endpoint(translate.replica_from_status(status(), node="n1"), "10.0.0.1")
