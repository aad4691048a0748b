"""A replica over several nodes where an operator looks: in the list, on its page, and beside each of its nodes."""

import msgspec
import pytest

from console.places import Place, Subject
from console.screens.fit import verdict_lines
from console.state.cards import cards_of
from console.state.cluster import ClusterState
from console.state.index import ReplicaIndex
from console.state.monitored import values_of
from console.state.touched import touched_nodes
from llmgw.api.actions import Target
from llmgw.api.rows import NodeRow, ReplicaRow
from llmgw.api.series import Of, Scope
from llmgw.api.shard_types import ShardInfo
from llmgw.core.verdicts import NodeVerdict
from tests.console.harness import console_with, screen_lines, screen_text, shown, tell, until
from tests.support.fleet_rows import NOW, delta, small_fleet, small_rows


def spread() -> ReplicaRow:
    """A replica of the small fleet, spread over its first two nodes."""
    rows = small_rows()
    first, second = [row.name for row in rows["nodes"].values() if isinstance(row, NodeRow)][:2]
    row = next(row for row in rows["replicas"].values() if isinstance(row, ReplicaRow) and row.node == first)
    shards = (
        ShardInfo(role="head", node=first, state="ready", pid=4001, cards=("GPU-x", "GPU-y")),
        ShardInfo(role="worker", node=second, state="starting", cards=("GPU-z",), message="joining the head"),
    )
    return msgspec.structs.replace(row, shards=shards)


@pytest.mark.asyncio
async def test_its_page_has_a_line_for_each_of_its_parts() -> None:
    row = spread()
    console = console_with(small_fleet(), start="replicas")
    async with shown(console, size=(200, 60)) as pilot:
        await tell(console, pilot, delta({"replicas": {row.id: row}}))
        await until(lambda: f"{row.node} +1" in screen_text(console))
        console.go(Place(view="replica", subject=Subject(target=Target.REPLICA, key=row.id)))
        await until(lambda: "joining the head" in screen_text(console))
        facts = [" ".join(line.split()) for line in screen_lines(console)]
        head, worker = row.shards
        assert any(f"head {head.node} ready 2 cards pid 4001" in line for line in facts)
        assert any(f"worker {worker.node} starting 1 card joining the head" in line for line in facts)


def test_each_of_its_nodes_has_it() -> None:
    row = spread()
    index = ReplicaIndex({row.id: row})
    assert [index.on_node(shard.node) for shard in row.shards] == [(row,), (row,)]
    moved = msgspec.structs.replace(row, shards=row.shards[::-1])
    assert index.after({row.id: moved}, [row.id]).on_node(row.node) == (moved,)


def test_a_placement_on_several_nodes_marks_each_of_them() -> None:
    verdicts = [NodeVerdict(node=name, profile="p", fits=True, message="fits: 2 GB") for name in ("a", "b", "c")]
    said = ["".join(text for text, _ in line) for line in verdict_lines(verdicts, "a and c")]
    assert ["goes here" in line for line in said] == [True, False, True]


def test_what_moves_on_it_is_seen_on_all_of_its_nodes() -> None:
    row = spread()
    names = frozenset(shard.node for shard in row.shards)
    start, _ = ClusterState().apply(small_fleet(), at=NOW)
    before, _ = start.apply(delta({"replicas": {row.id: row}}), at=NOW)
    moved = msgspec.structs.replace(row, state="draining")
    after, diff = before.apply(delta({"replicas": {row.id: moved}}, rev=3), at=NOW)
    assert touched_nodes(before, after, diff) == names


def test_its_models_figures_are_of_the_cards_on_all_of_its_nodes() -> None:
    start, _ = ClusterState().apply(small_fleet(), at=NOW)
    row = spread()
    placed = [node for shard in row.shards if (node := start.nodes[shard.node])]
    shards = tuple(
        msgspec.structs.replace(shard, cards=tuple(card.uuid for card in node.cards))
        for shard, node in zip(row.shards, placed, strict=True)
    )
    cards = tuple(uuid for shard in shards for uuid in shard.cards)
    mine = start.replicas_of(row.model)
    whole = msgspec.structs.replace(row, shards=shards, cards=cards)
    gone = tuple(replica.id for replica in mine if replica.id != row.id)
    state, _ = start.apply(delta({"replicas": {row.id: whole}}, gone={"replicas": gone}), at=NOW)
    power = sum(on.power or 0.0 for node in placed for on in cards_of(state, node.name) if not on.stale)
    head = sum(on.power or 0.0 for on in cards_of(state, placed[0].name) if not on.stale)
    assert power > head
    assert values_of(state, Of(Scope.MODEL, row.model))["power"] == pytest.approx(power)
