"""The state is a value: applying messages says exactly what differs, and everything derived follows from it."""

import math

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from console.state.attention import Severity, all_well, problems
from console.state.cluster import ClusterState
from console.state.diff import Diff
from console.state.history import MAX_MODELS, NODE_SAMPLE_S, SAMPLE_S, SAMPLES, History, Ring
from console.state.loads import node_load
from console.state.store import Link, Store
from llmgw.api.actions import Target
from llmgw.api.watch import Delta, Snapshot, Tick, TrafficRow
from llmgw.api.watch import History as Past
from tests.support.fleet_rows import (
    NOW,
    card_uuid,
    cluster_row,
    delta,
    empty_cluster,
    figures_row,
    large_rows,
    model_row,
    node_row,
    replica_row,
    small_fleet,
    small_rows,
    snapshot,
)


def heard(*messages: Snapshot | Delta | Tick) -> ClusterState:
    state = ClusterState()
    for message in messages:
        state, _ = state.apply(message, at=message.now)
    return state


def test_a_snapshot_is_taken_whole_and_the_same_one_again_changes_nothing() -> None:
    state, diff = ClusterState().apply(small_fleet(), at=NOW)
    assert state.heard
    assert diff.keys("models") == small_rows()["models"].keys()
    again, diff = state.apply(small_fleet(), at=NOW)
    assert not diff
    assert again.models is state.models
    assert again.replicas["r-gpu03-9"] is state.replicas["r-gpu03-9"]


def test_a_snapshot_after_a_break_says_what_went_and_what_came() -> None:
    rows = small_rows()
    state = heard(snapshot(rows))
    del rows["models"]["old-llama"]
    rows["models"]["new"] = model_row("new")
    _, diff = state.apply(snapshot(rows, epoch="run-2"), at=NOW)
    assert diff.changed["models"] == {"new"}
    assert diff.gone["models"] == {"old-llama"}
    assert not diff.touches("nodes")


def test_a_delta_touches_only_its_rows() -> None:
    state = heard(small_fleet())
    after, diff = state.apply(
        delta({"models": {"old-llama": model_row("old-llama", "stopped", ready=0)}}, {"replicas": ("r-gpu03-9",)}),
        at=NOW,
    )
    assert diff.changed == {"models": {"old-llama"}}
    assert diff.gone == {"replicas": {"r-gpu03-9"}}
    assert after.nodes is state.nodes
    assert "r-gpu03-9" not in {replica.id for replica in after.replicas_of("qwen2.5-7b")}
    assert "r-gpu03-9" in state.replicas, "a state is never changed"
    on = state.nodes_of_model("qwen2.5-7b")
    assert on == tuple(dict.fromkeys(replica.node for replica in state.replicas_of("qwen2.5-7b")))
    moved = msgspec.structs.replace(state.replicas_of("qwen2.5-7b")[0], node="elsewhere")
    after, _ = state.apply(delta({"replicas": {moved.id: moved}}), at=NOW)
    assert "elsewhere" in after.nodes_of_model("qwen2.5-7b")
    assert "elsewhere" not in on


def test_an_unknown_topic_and_an_unreadable_row_are_passed_over_and_counted() -> None:
    message = Delta(
        rev=2, now=NOW, rows={"models": {"x": msgspec.Raw(b'{"name": 7}')}, "teams": {"t": msgspec.Raw(b"{}")}}
    )
    state, diff = heard(small_fleet()).apply(message, at=NOW)
    assert not diff
    assert state.unreadable == 1


def test_ages_follow_the_servers_clock() -> None:
    state, _ = ClusterState().apply(small_fleet(), at=NOW - 3600)
    assert state.now(NOW - 3600) == NOW
    later, _ = state.apply(Tick(rev=1, now=NOW + 1), at=NOW - 3599.2)
    assert later.offset_s == state.offset_s, "a late message moves no age"


keys = st.sampled_from("abcd")
changes = st.tuples(st.dictionaries(keys, st.integers(0, 2), max_size=4), st.lists(keys, max_size=3, unique=True))


@settings(max_examples=60)
@given(st.lists(changes, min_size=1, max_size=6))
def test_merged_diffs_tell_the_same_as_the_difference_of_the_ends(
    steps: list[tuple[dict[str, int], list[str]]],
) -> None:
    start = state = heard(snapshot({"models": {"a": model_row("a"), "b": model_row("b")}}))
    merged = Diff()
    for changed, gone in steps:
        rows = {key: model_row(key, wanted=wanted) for key, wanted in changed.items()}
        state, diff = state.apply(delta({"models": rows}, {"models": tuple(gone)}), at=NOW)
        merged = merged.then(diff)
    for key in "abcd":
        if start.models.get(key) != state.models.get(key):
            assert key in merged.keys("models")
        if key in merged.changed.get("models", ()):
            assert key in state.models
        if key in merged.gone.get("models", ()):
            assert key not in state.models


def test_cards_are_counted_as_working_idle_free_and_worn() -> None:
    node = node_row("n", 5, held={0: "r", 1: "r", 2: "r"}, worn=(2, 3))
    load = node_load(node, figures_row(node, (80.0, 0.0, 40.0, 0.0, 0.0)))
    assert (load.working, load.idle, load.free, load.worn) == (2, 1, 1, 2)
    assert load.held == 3
    assert load.mean_work_percent == 24.0
    silent = node_load(node, None)
    assert (silent.working, silent.idle, silent.mean_work_percent) == (3, 0, None)


@pytest.mark.parametrize("state_", ["cordoned", "silent", "lost"])
def test_no_card_of_a_node_that_takes_no_work_is_free(state_: str) -> None:
    node = node_row("n", 2, held={0: "r"}, state=state_)
    load = node_load(node, figures_row(node, (80.0, 0.0)))
    assert (load.cards, load.working, load.free) == (2, 1, 0)


def test_a_nodes_load_is_counted_again_only_when_it_changes() -> None:
    state = heard(snapshot(large_rows(50, 8, 0)))
    row = state.nodes["node0007"]
    after, _ = state.apply(delta({"figures": {"node0007": figures_row(row, (50.0,) * 8)}}), at=NOW)
    same = [name for name in state.nodes if after.loads[name] is state.loads[name]]
    assert len(same) == 49
    assert after.load.cards == 400
    assert after.load.mean_work_percent != state.load.mean_work_percent


def test_attention_is_worst_first_and_names_the_next_step() -> None:
    found = problems(heard(small_fleet()), NOW)
    assert [problem.name for problem in found] == ["glm-5.2-air", "gpu04:1", "gpu07:2", "qwen2.5-7b", "glm-5.2"]
    assert [problem.severity for problem in found] == sorted(problem.severity for problem in found)
    first, failed, coming = found[0], found[3], found[4]
    assert (first.command, first.target, first.key) == ("explain", Target.MODEL, "glm-5.2-air")
    assert "14.2 GB short" in first.sentence
    assert (failed.command, failed.target, failed.key) == ("logs", Target.REPLICA, "r-gpu03-9")
    assert failed.sentence == "failed on gpu03 4 min ago: the engine ended with signal 9 while loading"
    assert coming.sentence == "fetching 61% of 188 GB on gpu02"
    assert coming.severity is Severity.COMING


@pytest.mark.parametrize(
    ("state_", "sentence"),
    [
        ("silent", "silent: nothing heard for 43 s; its 1 replica is left alone until 60 s"),
        ("lost", "lost: nothing heard for 43 s; its 1 replica counts as gone"),
    ],
)
def test_a_node_nobody_hears_is_a_problem_with_its_age(state_: str, sentence: str) -> None:
    node = node_row("n", 1, state=state_)
    rows: dict[str, dict[str, msgspec.Struct]] = {
        "nodes": {"n": node},
        "figures": {"n": figures_row(node, (0.0,), heard_s=43)},
        "replicas": {"r": replica_row("r", "m", "n", cards=(card_uuid("n", 0),))},
    }
    (problem,) = problems(heard(snapshot(rows)), NOW)
    assert problem.sentence == sentence


@pytest.mark.parametrize(
    ("state_", "sentence"),
    [
        ("silent", "silent: nothing heard for 43 s; lost after 60 s"),
        ("lost", "lost: nothing heard for 43 s"),
    ],
)
def test_of_a_node_on_which_nothing_runs_no_replica_is_told(state_: str, sentence: str) -> None:
    node = node_row("n", 1, state=state_)
    (problem,) = problems(
        heard(snapshot({"nodes": {"n": node}, "figures": {"n": figures_row(node, (0.0,), heard_s=43)}})), NOW
    )
    assert problem.sentence == sentence


def test_no_leader_is_the_worst() -> None:
    rows = small_rows()
    rows["cluster"] = {"cluster": cluster_row(leader=None)}
    assert problems(heard(snapshot(rows)), NOW)[0].sentence.startswith("no control plane leads")


def test_all_well_is_said_in_figures() -> None:
    rows = small_rows()
    assert problems(heard(empty_cluster()), NOW) == ()
    said = all_well(heard(snapshot(rows)))
    assert said == "4 of 7 models ready, 17 replicas serving, 6 of 7 nodes connected"


def test_a_ring_keeps_the_newest_oldest_first() -> None:
    ring = Ring(4)
    for value in (1.0, 2.0, 3.0, 4.0, 5.0, None):
        ring.add(value)
    kept = ring.last(4)
    assert kept[:3] == [3.0, 4.0, 5.0]
    assert math.isnan(kept[3])
    assert ring.last(2)[0] == 5.0


def test_history_samples_at_its_own_pace_and_stays_bounded() -> None:
    history, state = History(), heard(small_fleet())
    taken = sum(history.record(state, NOW + step * 0.1) for step in range(100))
    assert taken == math.ceil(10 / SAMPLE_S)
    assert len(history.traffic("requests", 10_000)) == SAMPLES
    assert history.traffic("requests", 1) == [412.0]
    assert history.traffic("requests", 5, "nobody") == []
    many = {f"m{i}": TrafficRow() for i in range(MAX_MODELS + 50)}
    crowded, _ = state.apply(delta({"traffic": dict(many)}), at=NOW)
    history.record(crowded, NOW + 100)
    assert sum(bool(history.traffic("requests", 1, name)) for name in crowded.traffic) == MAX_MODELS


def test_history_from_before_goes_under_what_was_sampled_since() -> None:
    history, state = History(), heard(small_fleet())
    history.record(state, NOW)
    past = Past(
        model="*",
        step_s=4.0,
        end=NOW,
        requests_per_s=(1.0, 2.0),
        output_tokens_per_s=(10.0, 20.0),
        first_token_p50_ms=(None, 5.0),
        first_token_p95_ms=(None, 6.0),
        open_requests=(3, 4),
    )
    history.backfill(past)
    assert history.traffic("requests", 5) == [1.0, 1.0, 2.0, 2.0, 412.0]
    assert history.traffic("open", 5)[:4] == [3.0, 3.0, 4.0, 4.0]
    assert math.isnan(history.traffic("first_p50", 5)[0])
    history.backfill(Past(model="other", step_s=1000.0, end=NOW, requests_per_s=(7.0,) * 9))
    assert len(history.traffic("requests", 10_000, "other")) == SAMPLES


def test_history_of_cards_comes_back_as_it_was_sampled() -> None:
    history, state = History(), heard(small_fleet())
    history.record(state, NOW)
    history.record(state, NOW + NODE_SAMPLE_S)
    assert history.card("gpu03", 4, "work") == [91.0, 91.0]
    assert history.card("gpu03", 4, "memory") == [76.0, 76.0]
    assert history.node("gpu03", "cpu") == [31.0, 31.0]
    assert history.node("gpu06", "work") == [pytest.approx(31.25)] * 2
    assert history.card("gpu03", 40, "work") == [] or all(map(math.isnan, history.card("gpu03", 40, "work")))
    assert history.node("nobody", "cpu") == []


def test_a_store_hands_out_what_came_since_the_last_time_and_nothing_twice() -> None:
    store = Store()
    assert store.take() is None
    store.receive(small_fleet(), at=NOW)
    store.receive(delta({"models": {"new": model_row("new")}}, {"models": ("old-llama",)}), at=NOW)
    update = store.take()
    assert update is not None
    assert "new" in update.diff.changed["models"]
    assert update.diff.gone["models"] == {"old-llama"}
    assert store.take() is None
    store.receive(Tick(rev=2, now=NOW + 0.1), at=NOW + 0.1)
    assert store.take() is None, "nothing changed"
    store.set_link(Link(state="lost", since=NOW, reason="gone"))
    lost = store.take()
    assert lost is not None
    assert lost.link.reason == "gone"
    assert not lost.diff
