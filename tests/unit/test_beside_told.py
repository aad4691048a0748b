"""Memory beside cards on its way: to a node and back from it, to operators, and into how long a start may take."""

import io

from llmgw.agents import order_messages, replicas_told
from llmgw.api.types import Explanation
from llmgw.cli.groups.explain import explain_table
from llmgw.cli.output import Output
from llmgw.control.inventory import Inventory
from llmgw.control.views import node_info
from llmgw.core.reconcile import reconcile
from llmgw.wire.llmgw import v1 as wire
from tests.support.builders import GB, a_card, a_model, a_node, a_profile, a_replica, a_snapshot, an_entry, changed


def test_a_node_is_told_and_hands_it_back_to_the_next_leader() -> None:
    entry = an_entry()
    replica = a_replica(entry, host_bytes=48 * GB, cards=("GPU-n1-0",))
    order = order_messages.start_shard(replica, entry, entry.model.profiles[0], engine_key="k").start_shard
    assert order is not None
    assert order.spec is not None
    assert order.spec.host_bytes == 48 * GB
    spec = wire.ShardSpec.parse(bytes(order.spec))
    status = wire.ShardStatus(shard_id="r1/0", state=wire.ShardState.READY, spec=spec)
    assert replicas_told.replica_from_status(status, node="n1").host_bytes == 48 * GB


def test_two_replicas_planned_at_once_are_not_promised_the_same_memory() -> None:
    profile = a_profile(gpu_class="h100-80g", min_memory_gb=40)
    entries = tuple(an_entry(a_model(name, profiles=(profile,))) for name in ("a", "b"))
    node = a_node(memory=64 * GB, cards=(a_card(0), a_card(1)))
    plan = reconcile(a_snapshot(entries=entries, nodes=(node,)))
    assert [(start.model, start.placement.host_bytes) for start in plan.starts] == [("a", 40 * GB)]
    assert plan.unplaced[0].message.endswith("needs 40 GB of memory beside the card, has 23.5 GB free, 16.5 GB missing")


def test_a_node_shows_it_as_reserved() -> None:
    replicas = (
        a_replica(id="card", cards=("GPU-n1-0",), memory_bytes=20 * GB, host_bytes=48 * GB),
        a_replica(id="cpu", cards=(), memory_bytes=3 * GB),
    )
    node = a_node(memory=64 * GB, cards=(a_card(),))
    shown = node_info(node, replicas, 1.0, Inventory(lambda: 1.0, lambda: None))
    assert shown.memory_reserved_bytes == 51 * GB


def test_explain_says_both_parts() -> None:
    def said(answer: Explanation) -> str:
        out = io.StringIO()
        explain_table(Output(json=False, out=out, err=io.StringIO()), answer)
        return out.getvalue()

    answer = Explanation(
        model="m",
        dry_run=True,
        message="",
        need_bytes=6 * GB,
        need_host_bytes=48 * GB,
        need_detail="weights 52 GB",
    )
    assert "6 GB on cards and 48 GB of memory beside them: weights 52 GB" in said(answer)
    assert "beside" not in said(changed(answer, need_host_bytes=0))
