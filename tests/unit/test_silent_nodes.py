"""A node that is not heard draws nothing that is known of: its last figures are in no sum and on no page."""

import io
from argparse import Namespace
from typing import cast

import msgspec
import pytest

from llmgw.api.card_uses import uses_of_node, uses_of_row
from llmgw.api.client import AdminClient
from llmgw.api.rows import CardRow, FiguresRow, NodeRow
from llmgw.api.series import CLUSTER, Of, Scope
from llmgw.api.types import CardInfo, ClusterStatus, ModelInfo, NodeInfo, ReplicaInfo, ServerInfo, ShardInfo
from llmgw.cli.card_lines import lines_of_node
from llmgw.cli.context import Context
from llmgw.cli.groups.nodes import node_table, show
from llmgw.cli.groups.replicas import replicas
from llmgw.cli.groups.top import screen
from llmgw.cli.output import Output
from llmgw.cli.top_rows import Feed, Top, top_of
from llmgw.control.inventory import Inventory
from llmgw.control.metrics import render
from llmgw.control.router_metrics import Totals
from llmgw.control.views import node_info
from llmgw.core.card_use import Use, by_model, efficiency
from llmgw.core.cluster import MachinePart, ShardState
from llmgw.core.figures import CardFigures, NodeFigures
from llmgw.core.wear import CardWear
from tests.support.builders import GB, a_card, a_model, a_node, a_replica
from tests.support.exposition import Family, parse
from tests.support.fleet_rows import small_rows, snapshot
from tests.support.history import Rig


def a_card_info(node: str, replica: str | None, **over: object) -> CardInfo:
    return CardInfo(
        uuid=f"GPU-{node}",
        index=0,
        name="A",
        gpu_class="a",
        memory_total_bytes=80 * GB,
        memory_used_bytes=20 * GB,
        utilization_percent=90.0,
        power_w=400.0,
        power_limit_w=500.0,
        temperature_c=60.0,
        throttled=False,
        wear=CardWear(pcie_replays=7),
        replica=replica,
        **over,  # type: ignore[arg-type]
    )


def a_machine(name: str, state: str, replica: str | None = None) -> NodeInfo:
    return NodeInfo(
        name=name,
        state=state,
        cpu_percent=5.0,
        load_1m=1.0,
        memory_total_bytes=100,
        memory_available_bytes=40,
        cpu_power_w=200.0,
        network_in_bytes_per_s=1e9,
        parts=(MachinePart(kind="network", name="eth0", state="up", errors=3),),
        cards=(a_card_info(name, replica),),
    )


def page(*nodes: NodeInfo) -> dict[str, Family]:
    status = ClusterStatus(
        version="1",
        cluster_id="c",
        leader="s",
        epoch=1,
        servers=(ServerInfo(id="s", pid=1, host="h", leader=True, version="1", epoch=1),),
        routers=(),
        nodes=nodes,
        models=(ModelInfo(name="m", state="ready", ready=1, wanted=1, source="s", spec=a_model()),),
        replicas=tuple(
            ReplicaInfo(
                id=f"m-{node.name}",
                model="m",
                profile="p",
                engine="sim",
                node=node.name,
                state="ready",
                since_s=1.0,
                cpu_percent=250.0,
                resident_bytes=GB,
            )
            for node in nodes
        ),
        database="",
    )
    return parse(render(status, Totals(), ()))


def named(found: dict[str, Family], node: str) -> set[str]:
    """Metrics that have a sample of the node."""
    return {name for name, family in found.items() if any(("node", node) in labels for _, labels in family.samples)}


@pytest.mark.parametrize("state", ["silent", "lost"])
def test_the_page_has_a_silent_nodes_facts_and_none_of_its_figures(state: str) -> None:
    found = page(a_machine("n1", "connected", "m-n1"), a_machine("n2", state, "m-n2"))
    gone = named(found, "n1") - named(found, "n2")
    assert named(found, "n2") == {
        "llmgw_node_connected",
        "llmgw_node_open",
        "llmgw_node_memory_bytes",
        "llmgw_node_port_errors",
        "llmgw_gpu_memory_total_bytes",
        "llmgw_gpu_healthy",
        "llmgw_gpu_pcie_replays",
        "llmgw_gpu_wear_problems",
        "llmgw_gpu_assigned",
    }
    assert {"llmgw_gpu_power_watts", "llmgw_node_load1", "llmgw_replica_cpu_percent", "llmgw_gpu_throttled"} <= gone
    assert "llmgw_node_network_receive_bytes_per_second" in gone
    # What the model draws is what is known of it, and over how many of its cards.
    assert found["llmgw_model_power_watts"].value(model="m") == 400.0
    assert found["llmgw_model_power_gpus"].value(model="m") == 1
    assert found["llmgw_model_idle_power_watts"].value(model="m") == 0
    assert found["llmgw_model_gpus"].value(model="m") == 2
    assert found["llmgw_model_power_load_percent"].value(model="m") == 80.0


def test_a_model_of_silent_nodes_alone_draws_nothing_that_is_known() -> None:
    found = page(a_machine("n2", "lost", "m-n2"))
    for name in ("power_watts", "idle_power_watts", "busy_percent", "work_percent", "power_load_percent"):
        assert f"llmgw_model_{name}" not in found
    assert found["llmgw_model_gpus"].value(model="m") == 1
    assert found["llmgw_model_power_gpus"].value(model="m") == 0


def test_rows_and_documents_agree_on_who_is_counted() -> None:
    card = CardRow(uuid="g", index=0, name="A", gpu_class="a", replica="r", power_limit_w=500.0)
    figures = FiguresRow(heard=0.0, power_w=(400.0,), utilization_percent=(90.0,), work_percent=(80.0,))
    for state, draw, cards in (("connected", 400.0, 1), ("cordoned", 400.0, 1), ("silent", None, 0), ("lost", None, 0)):
        by_row = uses_of_row(NodeRow(name="n", state=state, cards=(card,)), figures)
        by_node = uses_of_node(a_machine("n", state, "r"))
        for uses in (by_row, by_node):
            line = efficiency("m", by_model([("m", uses["r"])])["m"], 10.0)
            assert (line.draw_w, line.draw_cards, line.cards) == (draw, cards, 1)
            assert (line.busy is None, line.tokens_per_wh is None) == (draw is None, draw is None)


def test_an_idle_card_that_tells_no_draw_draws_nothing_that_is_known() -> None:
    use = Use()
    use.add(0, busy=0.0)
    assert (use.idle, use.idle_w) == ((0,), None)
    use.add(1, busy=0.0, power_w=70.0)
    assert (use.idle, use.idle_w) == ((0, 1), 70.0)


def test_nobody_says_for_how_long_a_card_rests_whose_node_is_not_heard() -> None:
    now = [100.0]
    inventory = Inventory(lambda: now[0], lambda: None)
    replica = a_replica(id="r", node="n1", cards=(a_card().uuid,))
    inventory.connected(a_node("n1", cards=(a_card(),)), [replica])
    inventory.sensed("n1", NodeFigures(cards={a_card().uuid: CardFigures(utilization_percent=0.0)}))
    now[0] += 60.0
    idle = []
    for _ in range(2):
        node = inventory.node("n1")
        assert node is not None
        idle.append(node_info(node, [replica], now[0], inventory).cards[0].idle_s)
        inventory.disconnected("n1")
    assert idle == [60.0, None]


@pytest.mark.trio
async def test_history_counts_as_free_what_takes_work() -> None:
    rig = Rig()
    cards = (a_card(0), a_card(1), a_card(2, memory_total_bytes=None), a_card(3, healthy=False), a_card(4))
    replica = a_replica(id="qwen-1", model="qwen", node="n1", state=ShardState.READY, cards=(cards[0].uuid,))
    rig.inventory.connected(a_node("n1", cards=cards), [replica])

    async def counted() -> list[float | None]:
        await rig.samples(1)
        answer = await rig.series.answer(("cards_free", "power"), (CLUSTER,), rig.now - 5.0, None, 5.0)
        return [each.points[-1] for each in answer.series]

    assert await counted() == [2.0, 420.0]
    rig.inventory.cordon("n1", True)
    assert await counted() == [0.0, 420.0]
    rig.inventory.cordon("n1", False)
    rig.inventory.disconnected("n1")
    assert await counted() == [0.0, None]


@pytest.mark.trio
async def test_a_draw_over_time_says_over_how_many_cards_it_is() -> None:
    rig = Rig()
    of = (CLUSTER, Of(Scope.MODEL, "qwen"), Of(Scope.NODE, "n1"), Of(Scope.NODE, "n2"))

    async def counted() -> list[float | None]:
        answer = await rig.series.answer(("power_cards",), of, rig.now - 5.0, None, 5.0)
        return [each.points[-1] for each in answer.series]

    await rig.samples(1)
    assert await counted() == [2.0, 1.0, 2.0, None]
    await rig.samples(1, power_w=None)
    assert await counted() == [1.0, None, 1.0, None]


def shown(state: str) -> Top:
    """The small fleet, of which `gpu01` (eight cards, all held) is in a state."""
    rows = small_rows()
    node = rows["nodes"]["gpu01"]
    rows["nodes"]["gpu01"] = msgspec.structs.replace(node, state=state)
    feed = Feed()
    feed.take(snapshot(rows))
    return top_of(feed, "power")


def test_top_leaves_out_what_a_silent_node_said_last() -> None:
    before, after = shown("connected"), shown("lost")
    node = {line.node: line for line in before.nodes}["gpu01"]
    assert (node.power_w or 0) > 0
    assert (node.power_gpus, node.gpus_whole) == (8, 8)
    gone = {line.node: line for line in after.nodes}["gpu01"]
    assert (gone.power_w, gone.work_percent, gone.cpu_percent, gone.memory_used_bytes) == (None, None, None, None)
    assert (gone.power_gpus, gone.gpus, gone.gpus_held, gone.gpus_idle) == (0, 8, 8, 0)
    assert (bool(node.gpu_memory_bytes), gone.gpu_memory_bytes) == (True, None)
    cards = [card for card in after.cards if card.node == "gpu01"]
    assert {(card.power_w, card.busy_percent, card.memory_used_bytes) for card in cards} == {(None, None, None)}
    assert {card.problems[0] for card in cards} == {"Its node is lost."}
    drawn = {line.model: line.power_w for line in before.models}
    for line in after.models:
        assert (line.power_w or 0.0) <= (drawn[line.model] or 0.0)
    assert sum(line.power_w or 0 for line in after.models) == pytest.approx(
        sum(line.power_w or 0 for line in before.models) - (node.power_w or 0)
    )


def test_top_says_over_how_many_cards_a_draw_is() -> None:
    found = shown("lost")
    partial = [line for line in found.models if line.power_w is not None and line.power_gpus < line.gpus]
    assert partial
    text = "\n".join(screen(found, "power", "here", 300, 100))
    for line in partial:
        assert f" W ({line.power_gpus}/{line.gpus})" in text
    assert " W (" not in "\n".join(screen(shown("connected"), "power", "here", 300, 100))


def test_a_line_a_card_says_that_its_node_is_not_heard() -> None:
    (line,) = lines_of_node(a_machine("n2", "silent"), {})
    assert (line.power_w, line.busy_percent, line.work_percent, line.memory_used_bytes) == (None, None, None, None)
    assert (line.memory_total_bytes, line.problems) == (80 * GB, ("Its node is silent.",))
    (line,) = lines_of_node(a_machine("n1", "cordoned"), {})
    assert (line.power_w, line.problems) == (400.0, ())


def told_of(machine: NodeInfo) -> str:
    """What `ctl node show` says of a machine."""

    class Client:
        def node(self, _: str) -> NodeInfo:
            return machine

    out = io.StringIO()
    show(Context(args=Namespace(node="n"), out=Output(json=False, out=out), _client=cast("AdminClient", Client())))
    return " ".join(out.getvalue().split())


def aged(state: str) -> NodeInfo:
    return msgspec.structs.replace(a_machine("n", state, "r"), heartbeat_age_s=730.0, disk_total_bytes=100)


@pytest.mark.parametrize("state", ["silent", "lost"])
def test_a_nodes_own_page_says_how_old_its_last_word_is(state: str) -> None:
    text = told_of(aged(state))
    for there in (
        f"state {state}, heard 12m ago",
        "load 1.00, 12m ago",
        "memory 40 B free of 100 B, 12m ago",
        "network in 1 GB/s, 12m ago",
        f"! figures of its cards are of 12m ago: the node is {state}",
    ):
        assert there in text
    assert "12m ago" not in told_of(aged("connected")).replace("heard 12m ago", "")


def test_what_a_node_does_not_tell_is_no_zero_on_its_page() -> None:
    cards = (msgspec.structs.replace(a_card_info("n", None), memory_used_bytes=None),)
    untold = msgspec.structs.replace(aged("connected"), load_1m=None, memory_available_bytes=0, cards=cards)
    text = told_of(untold)
    assert "memory 100 B, what is free is not told" in text
    assert "disk 100 B, what is free is not told" in text
    assert "-/80 GB" in text


def test_a_full_disk_is_one_that_is_told() -> None:
    assert "disk 0 B free of 100 B" in told_of(aged("connected"))
    assert "disk 0 B free of 100 B, 12m ago" in told_of(aged("lost"))
    assert "disk 0 B, what" in told_of(msgspec.structs.replace(aged("connected"), disk_total_bytes=0))


def test_a_line_a_node_leaves_out_what_a_silent_one_uses() -> None:
    out = io.StringIO()
    told = msgspec.structs.replace(aged("connected"), memory_total_bytes=100 * GB, memory_available_bytes=40 * GB)
    machines = [msgspec.structs.replace(told, name=state, state=state) for state in ("connected", "silent", "lost")]
    untold = msgspec.structs.replace(told, name="untold", memory_available_bytes=0)
    node_table(Output(json=False, out=out), [*machines, untold])
    used = {line.split()[0]: line.split()[4] for line in out.getvalue().splitlines()[1:]}
    assert used == {"connected": "60/100", "silent": "-/100", "lost": "-/100", "untold": "-/100"}


def a_ready(node: str, *shards: str, message: str = "") -> ReplicaInfo:
    """A replica on a node, or one of several."""
    parts = tuple(ShardInfo(node=each, role="head" if each == node else "worker", state="ready") for each in shards)
    return ReplicaInfo(
        id=f"m-{node}",
        model="m",
        profile="p",
        engine="sim",
        node=node,
        state="ready",
        since_s=9.0,
        shards=parts,
        message=message,
    )


def replicas_told(*found: ReplicaInfo, nodes: tuple[NodeInfo, ...], json: bool = False) -> str:
    """What `ctl replicas` says of them."""

    class Client:
        def replicas(self, _: str | None) -> list[ReplicaInfo]:
            return list(found)

        def nodes(self) -> list[NodeInfo]:
            return list(nodes)

    out = io.StringIO()
    context = Context(args=Namespace(model=None), out=Output(json=json, out=out), _client=cast("AdminClient", Client()))
    replicas(context)
    return out.getvalue()


@pytest.mark.parametrize("state", ["silent", "lost"])
def test_a_line_a_replica_says_that_its_node_is_not_heard(state: str) -> None:
    nodes = tuple(msgspec.structs.replace(aged(each), name=each) for each in ("connected", "cordoned", state))
    found = (a_ready("connected", message="well"), a_ready("cordoned"), a_ready(state, message="well"))
    well, cordoned, unheard = replicas_told(*found, nodes=nodes).splitlines()[1:]
    assert "heard" not in well + cordoned
    assert unheard.rstrip().endswith(f"{state} is {state}, heard 12m ago; well")
    assert "heard" not in replicas_told(*found, nodes=nodes, json=True)
    never = msgspec.structs.replace(nodes[-1], heartbeat_age_s=None)
    assert replicas_told(found[-1], nodes=(never,)).rstrip().endswith(f"{state} is {state}; well")


def test_a_replica_of_several_nodes_says_which_of_them_is_not_heard() -> None:
    nodes = (msgspec.structs.replace(aged("connected"), name="n1"), msgspec.structs.replace(aged("lost"), name="n2"))
    whole, head, worker = replicas_told(a_ready("n1", "n1", "n2"), nodes=nodes).splitlines()[1:]
    assert whole.rstrip().endswith("n2 is lost, heard 12m ago")
    assert "heard" not in head
    assert worker.rstrip().endswith("n2 is lost, heard 12m ago")
