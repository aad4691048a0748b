"""An engine that uses less of its cards than it was asked to, where an operator looks."""

import msgspec
import pytest

from console.places import Place, Subject
from console.state.attention import problems
from llmgw.api.actions import Target
from llmgw.api.rows import NodeRow, ReplicaRow
from llmgw.api.shard_types import ShardInfo
from llmgw.core.compute import Compute, ComputeDevice
from tests.console.harness import console_with, fed, screen_lines, screen_text, shown, tell, until
from tests.support.fleet_rows import NOW, delta, small_fleet, small_rows, snapshot

LINE = "warning: no usable GPU found, --gpu-layers option will be ignored"
FALLEN = Compute(cpu_only=True, less_than_asked=True, line=LINE)
PLACED = Compute(layers_on_cards=33, layers=33, devices=(ComputeDevice(name="CUDA0", held_bytes=4_910_000_000),))


def holder() -> tuple[ReplicaRow, NodeRow]:
    """A replica of the small fleet that is ready and holds a card, and its node."""
    rows = small_rows()
    nodes = {row.name: row for row in rows["nodes"].values() if isinstance(row, NodeRow)}
    for row in rows["replicas"].values():
        if isinstance(row, ReplicaRow) and row.state == "ready":
            card = next((card for card in nodes[row.node].cards if card.replica == row.id), None)
            if card is not None:
                return msgspec.structs.replace(row, cards=(card.uuid,), message=""), nodes[row.node]
    raise AssertionError("no replica of the small fleet is ready on a card")


def index_of(row: ReplicaRow, node: NodeRow) -> int:
    """The index of its card."""
    return next(card.index for card in node.cards if card.uuid == row.cards[0])


@pytest.mark.asyncio
async def test_its_page_says_where_it_computes_and_that_it_is_less_than_asked() -> None:
    row, _ = holder()
    console = console_with(small_fleet(), start="replicas")
    async with shown(console, size=(200, 60)) as pilot:
        await tell(console, pilot, delta({"replicas": {row.id: msgspec.structs.replace(row, compute=PLACED)}}))
        console.go(Place(view="replica", subject=Subject(target=Target.REPLICA, key=row.id)))
        await until(lambda: "33 of 33 layers on cards (CUDA0 4.91 GB)" in screen_text(console))
        assert "less than asked" not in screen_text(console)
        hostile = msgspec.structs.replace(FALLEN, line="[@click=app.quit]no\x1b[31m GPU")
        await tell(console, pilot, delta({"replicas": {row.id: msgspec.structs.replace(row, compute=hostile)}}))
        await until(lambda: "less than asked" in screen_text(console))
        facts = [" ".join(line.split()) for line in screen_lines(console)]
        wanted = "computes on the CPU less than asked; its log: [@click=app.quit]no␛[31m GPU"
        assert any(wanted in line for line in facts), facts


@pytest.mark.asyncio
async def test_the_overview_says_it_among_what_needs_attention() -> None:
    row, node = holder()
    console = console_with(small_fleet(), start="overview")
    async with shown(console, size=(200, 60)) as pilot:
        await tell(console, pilot, delta({"replicas": {row.id: msgspec.structs.replace(row, compute=FALLEN)}}))
        sentence = f"on {node.name}: the engine runs it on the CPU although it has card {index_of(row, node)}"
        await until(lambda: sentence in screen_text(console))


def test_the_problem_has_its_card_its_node_and_its_log_and_goes_when_it_is_right() -> None:
    row, node = holder()
    rows = small_rows()

    def told(compute: Compute | None) -> list[str]:
        changed = {**rows["replicas"], row.id: msgspec.structs.replace(row, compute=compute)}
        state = fed([snapshot({**rows, "replicas": changed})]).state
        return [problem.sentence for problem in problems(state, NOW) if problem.key == row.id]

    sentence = f"the engine runs it on the CPU although it has card {index_of(row, node)} (its log: {LINE})"
    assert told(FALLEN) == [f"on {node.name}: {sentence}"]
    assert told(PLACED) == []
    assert told(None) == []
    assert told(msgspec.structs.replace(FALLEN, less_than_asked=False)) == []


def test_each_part_of_a_replica_on_several_nodes_is_judged_by_itself() -> None:
    row, node = holder()
    rows = small_rows()
    other = next(name for name in rows["nodes"] if name != node.name)
    shards = (
        ShardInfo(role="head", node=node.name, state="ready", cards=row.cards, compute=PLACED),
        ShardInfo(role="worker", node=other, state="ready", cards=("GPU-gone",), compute=FALLEN),
    )
    changed = {**rows["replicas"], row.id: msgspec.structs.replace(row, shards=shards)}
    state = fed([snapshot({**rows, "replicas": changed})]).state
    (found,) = [problem for problem in problems(state, NOW) if problem.key == row.id]
    wanted = "the engine runs it on the CPU although it has cards of its own"
    assert found.sentence == f"on {other}: {wanted} (its log: {LINE})"
    assert (found.target, found.command) == (Target.REPLICA, "logs")
