"""Models that make pictures: what their entry may say, what routers are told, and what who asks them is told."""

import msgspec
import pytest

from llmgw.api.types import ServeRequest
from llmgw.control.routing import RoutingBuilder
from llmgw.control.serve import model_for
from llmgw.core.catalog import Model, model_from
from llmgw.core.cluster import EngineBuild, ShardState
from llmgw.core.errors import InvalidInput
from llmgw.core.placement import place
from llmgw.core.routing import KeyRecord, RoutedModel, Routing, Timeouts
from llmgw.core.snapshot import Snapshot
from llmgw.router.catalog import allowed_model, list_models, show_model
from llmgw.router.ports import Refusal
from llmgw.router.state import IndexedRoutes
from tests.support.builders import GB, a_card, a_model, a_node, a_profile, a_replica, an_entry

SOURCE = "hf:org/flux@0123456789abcdef0123456789abcdef01234567/flux1.safetensors"


def entry_of(**over: object) -> dict[str, object]:
    """A catalog entry as an operator writes one."""
    profile = {"name": "pictures", "engine": "comfyui", "gpu_class": "h100-80g"}
    return {"name": "flux", "source": SOURCE, "profiles": [profile], **over}


def flux(**over: object) -> Model:
    """The same, checked."""
    return model_from(entry_of(**over))


@pytest.mark.parametrize(
    ("over", "field", "reason"),
    [
        ({"context_length": 4096}, "context_length", "makes pictures, which have no context in tokens: leave it out"),
        ({"max_output": 100}, "max_output", "no context in tokens"),
        ({"fallbacks": ["other"]}, "fallbacks", "no request is relayed to comfyui"),
        (
            {"profiles": [{"name": "a", "engine": "comfyui", "gpu_class": "a40"}, {"name": "b", "engine": "sim"}]},
            "profiles",
            "comfyui makes pictures and sim answers in tokens: make two models of them",
        ),
        ({"profiles": [{"name": "a", "engine": "comfyui"}]}, "profiles[0].gpu_class", "comfyui runs on cards"),
        (
            {"profiles": [{"name": "a", "engine": "comfyui", "gpu_class": "a40", "tp": 2}]},
            "profiles[0].tp",
            "comfyui runs on one card",
        ),
    ],
)
def test_an_entry_that_means_tokens_is_refused(over: dict[str, object], field: str, reason: str) -> None:
    with pytest.raises(InvalidInput, match=reason) as caught:
        model_from(entry_of(**over))
    assert caught.value.field == field


def test_it_is_served_from_one_checkpoint() -> None:
    model = model_for(ServeRequest(source=SOURCE, engine="comfyui", gpu_class="h100-80g"))
    assert model.pictures
    assert an_entry(model).context_length == 0
    for source in (SOURCE.rpartition("/")[0], SOURCE.replace(".safetensors", ".gguf")):
        with pytest.raises(InvalidInput, match=r"comfyui loads one checkpoint and .* names none: end it with the file"):
            model_for(ServeRequest(source=source, name="x", engine="comfyui", gpu_class="h100-80g"))
    assert not a_model().pictures
    assert not Model(name="outside").pictures


def test_it_is_placed_on_a_card_that_nobody_holds() -> None:
    engines = (EngineBuild(engine="comfyui", version="0.3.68"),)
    node = a_node("n1", memory=64 * GB, cards=(a_card(0), a_card(1)), engines=engines)
    holder = a_replica(id="r1", node="n1", cards=("GPU-n1-0",), memory_bytes=GB, state=ShardState.READY)
    entry = an_entry(flux())
    placed = place(entry, Snapshot(now=1.0, nodes=(node,), replicas=(holder,))).placement
    assert placed is not None
    assert placed.cards == ("GPU-n1-1",)
    full = (holder, msgspec.structs.replace(holder, id="r2", cards=("GPU-n1-1",)))
    decision = place(entry, Snapshot(now=1.0, nodes=(node,), replicas=full))
    assert decision.placement is None
    assert "and nobody else on it" in decision.message


def test_routers_are_told_of_it_and_of_none_of_its_replicas() -> None:
    ready = a_replica(id="r1", model="flux", node="n1", state=ShardState.READY, endpoint="http://127.0.0.1:18000")
    talks = msgspec.structs.replace(ready, id="r2", model="m")
    talker = a_model("m", profiles=(a_profile(),))
    snapshot = Snapshot(
        now=1.0, entries=(an_entry(flux()), an_entry(talker)), nodes=(a_node("n1"),), replicas=(ready, talks)
    )
    routing = RoutingBuilder("owner").build(snapshot, Timeouts(), {})
    assert [replica.id for replica in routing.replicas] == ["r2"]
    unrouted = {model.name: model.unrouted for model in routing.models}
    assert unrouted["m"] == ""
    assert unrouted["flux"].startswith("the model 'flux' makes pictures in ComfyUI on its node")
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(routing), type=Routing) == routing


def test_who_asks_it_is_told_why_and_no_list_has_it() -> None:
    flux = RoutedModel(name="flux", unrouted="the model 'flux' makes pictures")
    routes = IndexedRoutes(Routing(revision="1", models=(RoutedModel(name="m"), flux)))
    anyone = KeyRecord(id="k", name="k")
    with pytest.raises(Refusal) as caught:
        allowed_model(routes, anyone, "flux")
    assert (caught.value.status, caught.value.code, caught.value.param) == (400, "model_not_routed", "model")
    assert caught.value.message == "The model 'flux' makes pictures."
    with pytest.raises(Refusal) as caught:
        show_model(routes, anyone, b"flux")
    assert caught.value.status == 400
    stranger = KeyRecord(id="k", name="k", models=("m",))
    with pytest.raises(Refusal) as caught:
        allowed_model(routes, stranger, "flux")
    assert caught.value.status == 404, "who may not use it is told nothing of it"
    names = [model["id"] for model in msgspec.json.decode(list_models(routes, anyone))["data"]]
    assert names == ["m"]


def test_a_model_that_came_to_make_pictures_is_passed_over_in_chains_that_name_it() -> None:
    entries = (
        an_entry(a_model("chat", fallbacks=("flux", "other"))),
        an_entry(flux()),
        an_entry(a_model("other")),
    )
    routing = RoutingBuilder("me").build(Snapshot(now=0.0, entries=entries), Timeouts(), {})
    assert [model.fallbacks for model in routing.models] == [("other",), (), ()]
