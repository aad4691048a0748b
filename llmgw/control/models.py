"""Changes to the catalog: checked, written under the epoch with their audit row, answered with figures."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import msgspec
import trio

from llmgw.api.types import Explanation, ModelInfo, ModelResult, Result, ServeRequest
from llmgw.control import external, views
from llmgw.control.catalog import Catalog
from llmgw.control.compute_views import compute_sentence
from llmgw.control.inventory import Inventory
from llmgw.control.leadership import Leadership
from llmgw.control.reconciler import Reconciler
from llmgw.control.sentences import ending, fallbacks_sentence, left_alone, restarting
from llmgw.control.serve import DEFAULT_SLOTS, changed_fields, check_servable, describe, model_for
from llmgw.core.catalog import MAX_REPLICAS, Model, Scaling, check_model
from llmgw.core.cluster import Node, ShardState
from llmgw.core.engine_rules import check_args, check_env
from llmgw.core.errors import Conflict, InvalidInput, NotFound
from llmgw.core.fallbacks import check_chain, check_list, relying_on
from llmgw.core.placement import Placement, place
from llmgw.core.snapshot import CatalogEntry
from llmgw.core.suggest import engines_for, suggest
from llmgw.core.units import plural, size
from llmgw.core.verdicts import Suggestion
from llmgw.store import audit as stored_audit
from llmgw.store import catalog as stored_catalog
from llmgw.store.catalog import CatalogEntry as StoredModel
from llmgw.store.store import Store


class ModelService:
    """What operators do with models."""

    def __init__(
        self,
        *,
        store: Store,
        leadership: Leadership,
        catalog: Catalog,
        inventory: Inventory,
        reconciler: Reconciler,
        private: Sequence[Path] = (),
        costs: Callable[[], Mapping[str, int]] = dict,
    ) -> None:
        """`private` files are never sent to an outside endpoint; `costs` is micros spent by model today."""
        self._private = private
        self._store = store
        self._leadership = leadership
        self._catalog = catalog
        self._inventory = inventory
        self._reconciler = reconciler
        self._costs = costs

    def list(self) -> tuple[ModelInfo, ...]:
        """The catalog with what became of it."""
        snapshot = self._reconciler.snapshot()
        return tuple(
            views.model_info(
                entry,
                self._stored(entry.model.name),
                snapshot,
                self._reconciler.unplaced(entry.model.name),
                cost_today_micros=self._costs().get(entry.model.name, 0),
            )
            for entry in snapshot.entries
        )

    def show(self, name: str) -> ModelInfo:
        """One model, by name or alias."""
        found = self._catalog.find(name).name
        return next(info for info in self.list() if info.name == found)

    async def serve(self, request: ServeRequest, *, actor: str) -> ModelResult:
        """Add a model from its source."""
        return await self.add(model_for(request), actor=actor, replace=False)

    async def add(self, model: Model, *, actor: str, replace: bool) -> ModelResult:
        """Add a whole entry, or put it in the place of the one of that name."""
        checked(model)
        if model.external:
            await trio.to_thread.run_sync(external.check_files, model, self._private)
        known = self._stored(model.name)
        if known is not None and not replace:
            raise Conflict(f"there is a model {model.name!r} already: remove it first, or add with --replace")
        if known is not None:
            _refuse_declared(known)
        self._check_fallbacks(model.name, model.fallbacks)
        await self._put(model, actor, generation=known.generation if known else 0)
        if known is None:
            return self._result(model, f"{describe(model)}; {self._next_step(model)}")
        fields = changed_fields(known.spec, model)
        if not fields:
            return self._result(model, f"{model.name}: nothing changed")
        return self._result(
            model, f"{model.name}: {', '.join(fields)} changed; {self._restart_note(known.spec, model)}"
        )

    async def remove(self, name: str, *, actor: str) -> tuple[Result, str | None]:
        """Take a model out; the sentence, and its source: empty when another model needs it, none for outside ones."""
        known = self._catalog.find(name)
        _refuse_declared(known)
        live = self._live(known.name)
        relying = relying_on(known.name, self._catalog.fallbacks())
        await self._leadership.lead(stored_catalog.remove_model, known.name, actor=actor)
        await self._reload()
        others = self._catalog.sources()
        gone = "requests no longer leave the cluster" if known.spec.external else f"{plural(live, 'replica')} stopping"
        message = f"{known.name} removed: {gone}{left_alone(known.name, relying)}"
        return Result(message=message), "" if known.spec.source in others else known.spec.source or None

    async def stop(self, name: str, *, actor: str) -> ModelResult:
        """Keep the entry, end its replicas."""
        known = self._catalog.find(name)
        if known.spec.stopped:
            return self._result(known.spec, f"{known.name} is stopped already")
        live = self._live(known.name)
        model = await self._edit(known, actor, stopped=True)
        if model.external:
            return self._result(model, f"{model.name} stopped: nothing is sent to it any more; the entry is kept")
        return self._result(model, f"{model.name} stopping: {ending(live)}; the entry is kept")

    async def start(self, name: str, *, actor: str) -> ModelResult:
        """Serve a stopped model again."""
        known = self._catalog.find(name)
        self._inventory.forgive(known.name)
        if not known.spec.stopped:
            return self._result(known.spec, f"{known.name} is not stopped")
        model = await self._edit(known, actor, stopped=False)
        if model.external:
            return self._result(model, f"{model.name} starts: {external.routed(model)}")
        return self._result(model, f"{model.name} starting: {plural(model.scaling.min, 'replica')} wanted")

    async def scale(self, name: str, minimum: int, maximum: int, *, actor: str) -> ModelResult:
        """Keep between `minimum` and `maximum` replicas."""
        if not 0 <= minimum <= maximum or not 1 <= maximum <= MAX_REPLICAS:
            raise InvalidInput(f"{minimum} to {maximum} is no range within 0 to {MAX_REPLICAS}", field="scaling")
        known = self._catalog.find(name)
        external.refuse_external(known.spec, "scale")
        model = await self._edit(known, actor, scaling=Scaling(min=minimum, max=maximum))
        before = known.spec.scaling.min
        return self._result(model, f"{model.name}: {plural(before, 'replica')} → {minimum}, at most {maximum}")

    async def set_fallbacks(self, name: str, fallbacks: tuple[str, ...], *, actor: str) -> ModelResult:
        """Say which models answer while this one cannot; none ends it."""
        known = self._catalog.find(name)
        check_list(known.name, fallbacks)
        self._check_fallbacks(known.name, fallbacks)
        model = await self._edit(known, actor, fallbacks=fallbacks)
        return self._result(model, fallbacks_sentence(model.name, self._catalog.fallbacks()))

    def _check_fallbacks(self, name: str, fallbacks: tuple[str, ...]) -> None:
        check_chain(name, fallbacks, self._catalog.fallbacks(), self._catalog.aliases())
        for other in fallbacks:
            stored = self._stored(other)
            if stored is not None and stored.spec.pictures:
                raise InvalidInput(f"{other} makes pictures and answers no request in tokens", field="fallbacks")

    async def restart(self, target: str, *, actor: str) -> Result:
        """Replace a model's replicas one by one, or one replica; done once the audit has it."""
        replica = self._inventory.replica(target)
        name = "" if replica is not None else self._restartable(target)
        if replica is not None:
            message = f"{target} restarts; a new replica of {replica.model} takes its place"
        else:
            message = f"{name}: {restarting(self._live(name))}"
        await self._leadership.lead(
            stored_audit.record, actor=actor, action="replica.restart", target=target, after={"message": message}
        )
        if replica is not None:
            self._inventory.restart(target)
        else:
            self._inventory.forgive(name)
            self._catalog.restart(name)
        return Result(message=message)

    def _restartable(self, target: str) -> str:
        try:
            known = self._catalog.find(target)
        except NotFound as error:
            raise NotFound(f"{target!r} is neither a model nor a replica; `llmgw ctl replicas` lists them") from error
        external.refuse_external(known.spec, "restart")
        return known.name

    def explain(self, name: str) -> Explanation:
        """Why a catalog entry is where it is, and what stands against every other place."""
        found = self._catalog.find(name).name
        snapshot = self._reconciler.snapshot()
        entry = next(e for e in snapshot.entries if e.model.name == found)
        return self._explanation(entry, dry_run=False)

    def explain_serve(self, request: ServeRequest) -> Explanation:
        """The same for a model that is not in the catalog."""
        model = model_for(request)
        checked(model)
        return self._explanation(self._reconciler.entry(CatalogEntry(model=model)), dry_run=True)

    def _explanation(self, entry: CatalogEntry, *, dry_run: bool) -> Explanation:
        if entry.model.external:
            message = f"{external.describe(entry.model)}: it needs no node"
            return Explanation(model=entry.model.name, dry_run=dry_run, message=message)
        snapshot = self._reconciler.snapshot()
        decision = place(entry, snapshot)
        live = [r for r in snapshot.replicas if r.model == entry.model.name and r.live and not dry_run]
        placed = tuple(sorted({node for r in live for node in r.nodes}))
        computes = compute_sentence(live, snapshot)
        sentence = _explain_sentence(entry, live_count=len(live), placed=placed, decision_message=decision.message)
        return Explanation(
            model=entry.model.name,
            dry_run=dry_run,
            placed=placed,
            would_place=decision.placement.where if decision.placement else None,
            spans=_spans(entry.model, decision.placement),
            message=f"{sentence}; {computes}" if computes else sentence,
            need_bytes=decision.need.total_bytes if decision.need else 0,
            need_host_bytes=decision.need.host_bytes if decision.need else 0,
            need_detail=decision.need.detail if decision.need else "",
            verdicts=decision.verdicts,
            suggestions=_suggestions(entry, snapshot.nodes),
        )

    def _stored(self, name: str) -> StoredModel | None:
        try:
            return self._catalog.find(name)
        except NotFound:
            return None

    async def _edit(self, known: StoredModel, actor: str, **changes: object) -> Model:
        _refuse_declared(known)
        model = msgspec.structs.replace(known.spec, **changes)
        check_model(model)
        await self._put(model, actor, generation=known.generation)
        return model

    async def _put(self, model: Model, actor: str, *, generation: int) -> None:
        await self._leadership.lead(stored_catalog.put_model, model, actor=actor, expected_generation=generation)
        await self._reload()

    async def _reload(self) -> None:
        """What was written is in force when the operator hears of it, not a notification later."""
        await self._catalog.read(self._store)
        self._reconciler.step()

    def _live(self, name: str) -> int:
        return sum(1 for r in self._inventory.replicas() if r.model == name and r.live)

    def _result(self, model: Model, message: str) -> ModelResult:
        return ModelResult(message=message, model=self.show(model.name))

    def _next_step(self, model: Model) -> str:
        if model.external:
            return "it is stopped" if model.stopped else external.routed(model)
        info = self.show(model.name)
        if info.message:
            return info.message
        where = sorted(
            {node for r in self._inventory.replicas() if r.model == model.name and r.live for node in r.nodes}
        )
        return f"starting on {', '.join(where)}" if where else "no replica is wanted"

    def _restart_note(self, before: Model, after: Model) -> str:
        """What the change costs."""
        if after.external:
            return self._next_step(after)
        running = [r for r in self._inventory.replicas() if r.model == after.name and r.state is ShardState.READY]
        old, new = CatalogEntry(model=before), CatalogEntry(model=after)
        hashes = {p.name: old.spec_hash(p) for p in before.profiles}
        same = all(hashes.get(p.name) == new.spec_hash(p) for p in after.profiles)
        if same or not running:
            return "nothing restarts"
        return restarting(len(running))


def checked(model: Model) -> None:
    """Raise InvalidInput for what no engine here may be told or could load."""
    check_model(model)
    if model.external:
        return
    check_servable(model)
    for i, profile in enumerate(model.profiles):
        check_args(profile.engine, profile.args, field=f"profiles[{i}].args")
        check_env(profile.env, field=f"profiles[{i}].env")


def _suggestions(entry: CatalogEntry, nodes: Sequence[Node]) -> tuple[Suggestion, ...]:
    if entry.model.pictures:
        return ()
    return suggest(
        entry.facts,
        nodes,
        engines=engines_for(entry.model.source),
        context_length=entry.context_length,
        slots=max((profile.slots for profile in entry.model.profiles), default=DEFAULT_SLOTS),
    )


def _spans(model: Model, placed: Placement | None) -> int:
    """Nodes that a replica takes where it is placed, else the most that one of its profiles asks for."""
    return placed.profile.nodes if placed else max((profile.nodes for profile in model.profiles), default=1)


def _refuse_declared(known: StoredModel) -> None:
    if known.declared:
        raise Conflict(f"{known.name} is declared in the settings: change it there, with `llmgw ctl config edit`")


def _explain_sentence(entry: CatalogEntry, *, live_count: int, placed: tuple[str, ...], decision_message: str) -> str:
    weights = entry.facts.weights_bytes if entry.facts else 0
    unknown = "" if weights or entry.model.source.startswith("sim:") else " (weights not fetched: size unknown)"
    if live_count:
        have = f"{plural(live_count, 'replica')} on {', '.join(placed)}"
        return f"{entry.model.name}: {have}; one more {_or_no_place(decision_message)}{unknown}"
    lead = f"{entry.model.name} ({size(weights)} of weights)" if weights else entry.model.name
    return f"{lead}: {decision_message}{unknown}"


def _or_no_place(message: str) -> str:
    return message if message.startswith("goes to") else f"has no place: {message}"
