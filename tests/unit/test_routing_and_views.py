"""What routers and operators are told of a snapshot."""

import pytest

from llmgw.api.types import ServeRequest
from llmgw.control import settings, views
from llmgw.control.routing import RoutingBuilder
from llmgw.control.serve import changed_fields, check_servable, model_for
from llmgw.core.cluster import FetchProgress, NodeLink, Shard, ShardState
from llmgw.core.errors import InvalidInput, NotFound
from llmgw.core.prices import Prices
from llmgw.core.reconcile import Unplaced
from llmgw.core.routing import Scoring, Timeouts
from llmgw.core.snapshot import WeightsState
from tests.support.builders import a_model, a_node, a_profile, a_replica, a_snapshot, an_entry, changed


def test_the_revision_moves_with_the_content_alone() -> None:
    builder = RoutingBuilder("me")
    snapshot = a_snapshot(entries=(an_entry(),), nodes=(a_node(),), replicas=(a_replica(),))
    first = builder.build(snapshot, Timeouts(), {"m": 5})
    again = builder.build(changed(snapshot, now=2000.0), Timeouts(), {"m": 5})
    moved = builder.build(snapshot, Timeouts(connect=1.0), {"m": 5})
    assert first.revision == "me/1"
    assert again is first
    assert moved.revision == "me/2"
    taking_turns = builder.build(snapshot, Timeouts(connect=1.0), {"m": 5}, scoring=Scoring(load=False))
    assert (taking_turns.revision, taking_turns.scoring.load) == ("me/3", False)


def test_a_models_prices_reach_the_routers_and_cost_no_restart() -> None:
    prices = Prices(input=0.5, cached_input=0.05, output=1.5)
    plain = an_entry()
    priced = changed(plain, model=changed(plain.model, prices=prices))
    builder = RoutingBuilder("me")
    builder.build(a_snapshot(entries=(plain,), nodes=(a_node(),)), Timeouts(), {})
    routing = builder.build(a_snapshot(entries=(priced,), nodes=(a_node(),)), Timeouts(), {})
    assert (routing.models[0].prices, routing.revision) == (prices, "me/2")
    assert [priced.spec_hash(p) for p in plain.model.profiles] == [plain.spec_hash(p) for p in plain.model.profiles]
    assert changed_fields(plain.model, priced.model) == ("prices",)


def test_a_models_fallbacks_reach_the_routers_as_one_chain_and_cost_no_restart() -> None:
    lists = {"a": ("b",), "b": ("c", "gone"), "c": ()}
    entries = tuple(an_entry(a_model(name, fallbacks=fallbacks)) for name, fallbacks in lists.items())
    routing = RoutingBuilder("me").build(a_snapshot(entries=entries), Timeouts(), {})
    assert {model.name: model.fallbacks for model in routing.models} == {"a": ("b", "c"), "b": ("c",), "c": ()}
    plain, falling = an_entry(a_model("a")), entries[0]
    assert [falling.spec_hash(p) for p in plain.model.profiles] == [plain.spec_hash(p) for p in plain.model.profiles]


def test_only_ready_replicas_of_catalog_models_are_routed_to() -> None:
    replicas = (
        a_replica(id="ready", endpoint="http://127.0.0.1:18000/"),
        a_replica(id="starting", state=ShardState.STARTING),
        a_replica(id="draining", state=ShardState.DRAINING),
        changed(a_replica(id="other"), model="gone"),
    )
    routing = RoutingBuilder("me").build(
        a_snapshot(entries=(an_entry(),), nodes=(a_node(),), replicas=replicas), Timeouts(), {}
    )
    assert [(r.id, r.endpoint) for r in routing.replicas] == [("ready", "http://127.0.0.1:18000")]


def test_a_lost_nodes_replica_is_used_only_while_there_is_no_other() -> None:
    nodes = (a_node("n1", link=NodeLink.LOST), a_node("n2"))
    lost = a_replica(id="lost", node="n1")
    alone = a_snapshot(entries=(an_entry(),), nodes=nodes, replicas=(lost,))
    both = changed(alone, replicas=(lost, a_replica(id="here", node="n2")))
    builder = RoutingBuilder("me")
    assert [r.id for r in builder.build(alone, Timeouts(), {}).replicas] == ["lost"]
    assert [r.id for r in builder.build(both, Timeouts(), {}).replicas] == ["here"]


def test_a_replica_with_one_lost_node_is_not_counted_as_ready() -> None:
    nodes = (a_node("n1"), a_node("n2", link=NodeLink.LOST))
    torn = a_replica(shards=(Shard(node="n1", state=ShardState.READY), Shard(node="n2", state=ShardState.READY)))
    unplaced = Unplaced(model="m", missing=1, message="needs 2 nodes")
    info = views.model_info(an_entry(), None, a_snapshot(nodes=nodes, replicas=(torn,)), unplaced)
    assert (info.ready, info.state, info.message) == (0, "pending", "needs 2 nodes")


def test_a_models_state_is_the_best_its_replicas_can_claim() -> None:
    entry = an_entry(a_model(replicas=2))

    def state(*states: ShardState) -> str:
        mine = tuple(a_replica(entry, id=f"r{i}", state=s) for i, s in enumerate(states))
        snapshot = a_snapshot(entries=(entry,), nodes=(a_node(),), replicas=mine)
        return views.model_info(entry, None, snapshot, None).state

    assert state(ShardState.READY, ShardState.READY) == "ready"
    assert state(ShardState.READY, ShardState.STARTING) == "partial"
    assert state(ShardState.STARTING, ShardState.FAILED) == "starting"
    assert state(ShardState.FETCHING) == "fetching"
    assert state(ShardState.FAILED) == "failed"
    assert state() == "pending"


def test_a_model_says_the_one_sentence_that_matters() -> None:
    entry = an_entry()
    fetching = a_replica(
        entry,
        state=ShardState.FETCHING,
        progress=FetchProgress(phase="fetching", done_bytes=40_000_000, total_bytes=98_000_000),
    )
    snapshot = a_snapshot(entries=(entry,), nodes=(a_node(),), replicas=(fetching,))
    assert views.model_info(entry, None, snapshot, None).message == "fetching 40% of 98 MB"
    unplaced = Unplaced(model="m", missing=1, message="n1: needs 20 GB of memory")
    empty = changed(snapshot, replicas=())
    assert views.model_info(entry, None, empty, unplaced).message == "n1: needs 20 GB of memory"
    waiting = an_entry(weights=WeightsState(failed=True, message="no such file"))
    info = views.model_info(waiting, None, empty, Unplaced(model="m", missing=1, message="no such file"))
    assert (info.state, info.message) == ("failed", "no such file")


@pytest.mark.parametrize("phase", ["", "done", "failed"])
def test_a_fetch_that_ended_hides_no_later_word(phase: str) -> None:
    progress = FetchProgress(phase=phase, done_bytes=0)
    replica = a_replica(state=ShardState.STARTING, message="starting again in 2 s", progress=progress)
    snapshot = a_snapshot(entries=(an_entry(),), nodes=(a_node(),), replicas=(replica,))
    assert views.replica_info(replica, snapshot).message == "starting again in 2 s"


def test_a_model_with_its_replicas_up_has_nothing_to_say() -> None:
    snapshot = a_snapshot(entries=(an_entry(),), nodes=(a_node(),), replicas=(a_replica(message="was slow"),))
    assert views.model_info(an_entry(), None, snapshot, None).message == ""


def test_what_needs_attention_is_told_worst_first() -> None:
    nodes = (a_node("n1", link=NodeLink.SILENT, heard_at=970.0), a_node("n2"))
    entry = an_entry()
    snapshot = a_snapshot(entries=(entry,), nodes=nodes)
    info = views.model_info(entry, None, snapshot, Unplaced(model="m", missing=1, message="no room"))
    found = views.problems(snapshot, [info], "paused: half the nodes", {"n2": ("driver missing",)})
    assert found == (
        "paused: half the nodes",
        "model m: 0 of 1 replica ready: no room",
        "node n1 is silent: last heard 30 s ago",
        "node n2: driver missing",
    )


def test_serving_fills_in_what_was_left_open() -> None:
    model = model_for(ServeRequest(source="sim:fast"))
    assert (model.profiles[0].engine, model.profiles[0].name, model.wanted_replicas) == ("sim", "cpu", 1)
    gguf = model_for(ServeRequest(source="file:/w/qwen.gguf", gpu_class="h100-80g", slots=8))
    assert (gguf.profiles[0].engine, gguf.profiles[0].gpu_class, gguf.profiles[0].slots) == ("llamacpp", "h100-80g", 8)


@pytest.mark.parametrize(
    ("request_", "field"),
    [
        (ServeRequest(source="nonsense"), "source"),
        (ServeRequest(source="hf:org/repo"), "source"),
        (ServeRequest(source="sim:x", engine="llamacpp"), "profiles[0].engine"),
        (ServeRequest(source="file:/w/m.gguf", engine="sim"), "profiles[0].engine"),
        (ServeRequest(source="sim:x", context_length=100), "context_length"),
        (ServeRequest(source="sim:x", name="../etc"), "name"),
    ],
)
def test_what_no_engine_could_load_is_refused_by_field(request_: ServeRequest, field: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        model_for(request_)
    assert refused.value.field == field


def test_a_model_without_a_profile_cannot_be_served() -> None:
    with pytest.raises(InvalidInput, match="at least one profile"):
        check_servable(a_model(profiles=()))


def test_an_edit_names_the_fields_it_changed() -> None:
    before = a_model()
    after = changed(before, max_output=7, profiles=(a_profile(slots=2),))
    assert changed_fields(before, after) == ("max_output", "profiles")


def test_settings_are_typed_bounded_and_named() -> None:
    assert settings.decode("router.timeouts.connect", b"2.5") == 2.5
    assert settings.timeouts({"router.timeouts.connect": b"2.5"}).connect == 2.5
    assert settings.timeouts({"router.timeouts.connect": b"-1"}).connect == Timeouts().connect
    with pytest.raises(InvalidInput, match=r"router\.timeouts\.connect"):
        settings.decode("router.timeouts.connect", b'"fast"')
    with pytest.raises(InvalidInput, match="outside"):
        settings.decode("router.timeouts.connect", b"0")
    assert settings.scoring({}) == Scoring()
    stored = {"router.scoring.sticky": b"false", "router.scoring.load_margin": b"2.5", "router.scoring.prefix": b"7"}
    assert settings.scoring(stored) == Scoring(sticky=False, load_margin=2.5)
    with pytest.raises(InvalidInput, match="outside"):
        settings.decode("router.scoring.load_margin", b"-1")
    with pytest.raises(NotFound, match=r"did you mean router\.timeouts\.connect"):
        settings.decode("timeouts.connect", b"1")


def test_every_timeout_is_a_setting() -> None:
    assert {f"router.timeouts.{name}" for name in Timeouts.__struct_fields__} <= settings.KINDS.keys()
