"""Fallbacks from an operator's change to what routers are told: the real catalog service over a real database."""

import msgspec
import pytest
import trio

from llmgw.control.catalog import Catalog
from llmgw.control.inventory import Inventory
from llmgw.control.leadership import Leadership
from llmgw.control.models import ModelService
from llmgw.control.reconciler import Reconciler
from llmgw.control.routing import RoutingBuilder
from llmgw.control.wake import Wake
from llmgw.core.catalog import Model, Profile
from llmgw.core.errors import InvalidInput
from llmgw.core.external import External
from llmgw.core.routing import Timeouts
from llmgw.store import audit
from llmgw.store.store import Store
from tests.bench.watch_server import AllWeights, NoOrders, OpenRequests
from tests.support.builders import a_model

ACTOR = "unix:ops"


class Site:
    """A control plane's models."""

    def __init__(self, store: Store, leadership: Leadership) -> None:
        self.store = store
        self.catalog = Catalog(lambda: None)
        inventory = Inventory(trio.current_time, lambda: None)
        self.reconciler = Reconciler(
            catalog=self.catalog,
            inventory=inventory,
            weights=AllWeights(),
            orders=NoOrders(),
            traffic=OpenRequests(),
            timeouts=Timeouts,
            leading=lambda: False,
            wake=Wake(),
            owner="test",
            new_id=lambda model, node: f"{model}-{node}",
        )
        self.models = ModelService(
            store=store,
            leadership=leadership,
            catalog=self.catalog,
            inventory=inventory,
            reconciler=self.reconciler,
        )

    async def add(self, name: str, *fallbacks: str, **more: object) -> str:
        model = msgspec.structs.replace(a_model(name), source="sim:", fallbacks=fallbacks, **more)
        model = msgspec.structs.replace(
            model, profiles=tuple(msgspec.structs.replace(p, engine="sim", args=()) for p in model.profiles)
        )
        return (await self.models.add(model, actor=ACTOR, replace=True)).message

    def told(self) -> dict[str, tuple[str, ...]]:
        """Whom routers may ask instead of each model."""
        routing = RoutingBuilder("test").build(self.reconciler.snapshot(), Timeouts(), {})
        return {model.name: model.fallbacks for model in routing.models}


@pytest.fixture
async def site(store: Store) -> Site:
    leadership = Leadership(store, "server-1")
    await leadership.acquired()
    return Site(store, leadership)


@pytest.mark.trio
async def test_a_model_that_makes_pictures_answers_for_nobody(site: Site) -> None:
    await site.add("a")
    profile = Profile(name="pictures", engine="comfyui", gpu_class="h100-80g")
    flux = Model(name="flux", source="file:/weights/flux.safetensors", profiles=(profile,))
    await site.models.add(flux, actor=ACTOR, replace=False)
    with pytest.raises(InvalidInput, match="flux makes pictures and answers no request in tokens"):
        await site.models.set_fallbacks("a", ("flux",), actor=ACTOR)
    assert site.told() == {"a": (), "flux": ()}


@pytest.mark.trio
async def test_what_is_set_reaches_routers_the_store_and_the_audit(site: Site) -> None:
    for name in "abc":
        await site.add(name, aliases=(f"alias-of-{name}",))
    outside = Model(name="outside", external=External(base_url="https://provider.example/v1"))
    await site.models.add(outside, actor=ACTOR, replace=False)
    answer = await site.models.set_fallbacks("alias-of-a", ("b", "outside"), actor=ACTOR)
    assert answer.message == "a falls back to b, then outside"
    assert answer.model is not None
    assert answer.model.spec.fallbacks == ("b", "outside")
    answer = await site.models.set_fallbacks("b", ("c",), actor=ACTOR)
    assert site.told() == {"a": ("b", "outside", "c"), "b": ("c",), "c": (), "outside": ()}
    rows = await site.store.run(audit.entries, limit=1)
    assert (rows[0].action, rows[0].target, rows[0].actor) == ("model.change", "b", ACTOR)
    assert (await site.models.set_fallbacks("a", (), actor=ACTOR)).message == "a falls back to no other model"
    assert site.told()["a"] == ()


@pytest.mark.trio
async def test_what_cannot_be_is_refused_before_anything_is_written(site: Site) -> None:
    await site.add("a")
    await site.add("b", "a")
    await site.add("c", "b", aliases=("see",))
    for fallbacks, words in (
        (("c",), "a → c → b → a"),
        (("a",), "a cannot answer for itself"),
        (("nobody",), "there is no model 'nobody'"),
        (("see",), "write the model's own name, c"),
    ):
        with pytest.raises(InvalidInput, match=words):
            await site.models.set_fallbacks("a", fallbacks, actor=ACTOR)
        with pytest.raises(InvalidInput, match=words):
            await site.add("a", *fallbacks)
    assert site.told() == {"a": (), "b": ("a",), "c": ("b", "a")}


@pytest.mark.trio
async def test_a_removed_model_is_passed_over_and_its_removal_says_who_fell_back_to_it(site: Site) -> None:
    await site.add("a")
    await site.add("b", "a")
    await site.add("c", "b", "a")
    result, _ = await site.models.remove("a", actor=ACTOR)
    assert "2 models (b, c) fell back to a and do without it from now on" in result.message
    assert site.told() == {"b": (), "c": ("b",)}
    stopped = await site.models.stop("c", actor=ACTOR)
    assert stopped.model is not None
    assert stopped.model.spec.fallbacks == ("b", "a"), "the wish stays, for when the model is back"
    with pytest.raises(InvalidInput, match="a → c → a"):
        await site.add("a", "c")
    await site.add("a")
    assert site.told()["c"] == ("b", "a")
