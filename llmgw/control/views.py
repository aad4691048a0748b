"""The admin API's documents, made from snapshots. Pure: the same state shows the same everywhere."""

from collections.abc import Iterable, Mapping, Sequence

from llmgw.api.types import (
    CardInfo,
    EngineInfo,
    ModelInfo,
    NodeInfo,
    ProgressInfo,
    ReplicaInfo,
)
from llmgw.control import external
from llmgw.control.compute_views import compute_problems
from llmgw.control.inventory import Inventory
from llmgw.control.shard_views import shard_infos
from llmgw.core import throttle
from llmgw.core.cluster import Card, Node, NodeLink, Replica, ShardState
from llmgw.core.figures import NOTHING_SAID, EngineLoad, ReplicaFigures
from llmgw.core.placement import held_by_node
from llmgw.core.reconcile import Unplaced
from llmgw.core.snapshot import CatalogEntry, Snapshot
from llmgw.core.units import plural, size, span
from llmgw.store.catalog import CatalogEntry as StoredModel

NOTHING_TAKEN = ReplicaFigures()
"""Of an engine nobody reported on."""
_PROGRESS_WORDS = {"mirror": "the mirror fetches", "fetching": "fetching", "checking": "checking"}


def node_infos(snapshot: Snapshot, inventory: Inventory) -> tuple[NodeInfo, ...]:
    """Every node with what it holds."""
    by_node = held_by_node(snapshot.replicas)
    return tuple(node_info(node, by_node.get(node.name, ()), snapshot.now, inventory) for node in snapshot.nodes)


def node_info(node: Node, held: Sequence[Replica], now: float, inventory: Inventory) -> NodeInfo:
    """A node with the live replicas it holds."""
    return NodeInfo(
        name=node.name,
        state="cordoned" if node.cordoned and node.link is NodeLink.CONNECTED else node.link.value,
        address=node.address,
        agent_version=node.agent_version,
        agent_pid=node.agent_pid,
        heartbeat_age_s=round(max(0.0, now - node.heard_at), 1),
        cpus=node.cpus,
        cpu_model=node.cpu_model,
        cpu_percent=node.cpu_percent,
        load_1m=node.load_1m,
        memory_total_bytes=node.memory_total_bytes,
        memory_available_bytes=node.memory_available_bytes,
        memory_reserved_bytes=sum(r.host_bytes if r.cards else r.memory_bytes for r in held),
        disk_total_bytes=node.disk_total_bytes,
        disk_free_bytes=node.disk_free_bytes,
        cards=tuple(_card_info(card, node, held, now, inventory) for card in node.cards),
        engines=tuple(
            EngineInfo(engine=b.engine, version=b.version, usable=b.usable, why_not=b.why_not, installing=b.installing)
            for b in node.engines
        ),
        problems=inventory.problems(node.name),
        simulated=node.simulated,
        cpu_temperature_c=node.cpu_temperature_c,
        cpu_power_w=node.cpu_power_w,
        inlet_temperature_c=node.inlet_temperature_c,
        network_in_bytes_per_s=node.network_in_bytes_per_s,
        network_out_bytes_per_s=node.network_out_bytes_per_s,
        infiniband_in_bytes_per_s=node.infiniband_in_bytes_per_s,
        infiniband_out_bytes_per_s=node.infiniband_out_bytes_per_s,
        numa_nodes=node.numa_nodes,
        cuda_toolkits=node.cuda_toolkits,
        parts=node.parts,
    )


def _card_info(card: Card, node: Node, held: Iterable[Replica], now: float, inventory: Inventory) -> CardInfo:
    figures, wear = inventory.figures(card.uuid), inventory.wear(card.uuid)
    holder = next((r for r in held if card.uuid in r.cards), None)
    # Of a card whose node is not heard nobody knows whether it still rests.
    resting = inventory.resting_since(card.uuid) if node.link is NodeLink.CONNECTED else None
    return CardInfo(
        uuid=card.uuid,
        index=card.index,
        name=card.name,
        gpu_class=card.gpu_class,
        memory_total_bytes=card.memory_total_bytes,
        memory_used_bytes=figures.memory_used_bytes,
        utilization_percent=figures.utilization_percent,
        temperature_c=figures.temperature_c,
        power_w=figures.power_w,
        sm_active_percent=figures.sm_active_percent,
        power_limit_w=figures.power_limit_w,
        memory_temperature_c=figures.memory_temperature_c,
        memory_utilization_percent=figures.memory_utilization_percent,
        sm_clock_mhz=figures.sm_clock_mhz,
        memory_clock_mhz=figures.memory_clock_mhz,
        throttled=throttle.throttled(figures.throttle_reasons),
        throttle=throttle.words(figures.throttle_reasons),
        ecc_uncorrected=figures.ecc_uncorrected,
        sm_occupancy_percent=figures.sm_occupancy_percent,
        tensor_active_percent=figures.tensor_active_percent,
        dram_active_percent=figures.dram_active_percent,
        profile_source=figures.profile_source,
        wear=wear,
        wear_problems=wear.problems() if wear is not None else (),
        compute_capability=card.compute_capability,
        driver=card.driver,
        bus_id=card.bus_id,
        parent=card.parent,
        mig_profile=card.mig_profile,
        unified=card.unified,
        pcie_generation=card.pcie_generation,
        pcie_width=card.pcie_width,
        numa_node=card.numa_node,
        nvlink_peers=card.nvlink_peers,
        healthy=card.healthy,
        problem=card.problem,
        replica=holder.id if holder is not None else None,
        idle_s=None if holder is None or resting is None else round(max(0.0, now - max(resting, holder.since)), 1),
    )


def replica_info(
    replica: Replica,
    snapshot: Snapshot,
    breaker: str = "",
    takes: ReplicaFigures = NOTHING_TAKEN,
    load: EngineLoad = NOTHING_SAID,
    load_failures: int | None = None,
    limited: str = "",
) -> ReplicaInfo:
    """A replica as of now.

    `breaker` is what the routers make of it, `takes` what its engine takes of the node, `load` what that says itself,
    `limited` what limits the speed of its weights on their way.
    """
    progress = replica.progress
    return ReplicaInfo(
        id=replica.id,
        model=replica.model,
        profile=replica.profile,
        engine=replica.engine,
        node=replica.node,
        state=replica.state.value,
        since_s=round(max(0.0, snapshot.now - replica.since), 1),
        pid=replica.pid,
        endpoint=replica.endpoint,
        cards=replica.cards,
        shards=shard_infos(replica),
        memory_bytes=replica.memory_bytes,
        host_bytes=replica.host_bytes,
        context_length=replica.context_length,
        slots=replica.slots,
        restarts=replica.restarts,
        adopted=replica.adopted,
        compute=replica.compute,
        in_flight=snapshot.in_flight.get(replica.id, 0),
        breaker=breaker,
        progress=ProgressInfo(phase=progress.phase, done_bytes=progress.done_bytes, total_bytes=progress.total_bytes)
        if progress
        else None,
        message=", ".join(filter(None, (progress_sentence(replica), limited))) or replica.message,
        cpu_percent=takes.cpu_percent,
        resident_bytes=takes.memory_bytes,
        running=load.running,
        waiting=load.waiting,
        kv_used=load.kv_used,
        load_failures=load_failures,
    )


def progress_sentence(replica: Replica) -> str:
    """`fetching 61% of 188 GB`; nothing when nothing is on its way: a fetch that ended hides no later word."""
    progress = replica.progress
    words = _PROGRESS_WORDS.get(progress.phase) if progress is not None else None
    if progress is None or words is None:
        return ""
    if progress.total_bytes:
        return f"{words} {100 * progress.done_bytes // progress.total_bytes}% of {size(progress.total_bytes)}"
    return f"{words} {size(progress.done_bytes)}"


def model_info(
    entry: CatalogEntry,
    stored: StoredModel | None,
    snapshot: Snapshot,
    unplaced: Unplaced | None,
    *,
    cost_today_micros: int = 0,
) -> ModelInfo:
    """A catalog entry with what became of it."""
    model = entry.model
    outside = 0 if model.stopped else len(model.endpoints)
    lost = {n.name for n in snapshot.nodes if n.link is NodeLink.LOST}
    mine = [r for r in snapshot.replicas if r.model == model.name]
    ready = sum(1 for r in mine if r.state is ShardState.READY and lost.isdisjoint(r.nodes))
    return ModelInfo(
        name=model.name,
        state=model_state(entry, mine, ready, unplaced),
        ready=outside or ready,
        wanted=outside or model.wanted_replicas,
        source=model.source or external.where(model),
        message=_model_message(entry, mine, ready, unplaced),
        spec=model,
        facts=entry.facts,
        context_length=entry.context_length,
        max_output=entry.max_output,
        cost_today_micros=cost_today_micros,
        declared=stored.declared if stored else False,
        created=stored.created if stored else None,
        changed=stored.changed if stored else None,
    )


def model_state(entry: CatalogEntry, mine: list[Replica], ready: int, unplaced: Unplaced | None) -> str:
    """One word for the model, the best its replicas can claim."""
    if entry.model.stopped:
        return "stopped"
    wanted = entry.model.wanted_replicas
    if ready >= wanted:
        return "ready" if wanted or entry.model.external else "idle"
    if ready:
        return "partial"
    states = {r.state for r in mine}
    if states & {ShardState.STARTING}:
        return "starting"
    if states & {ShardState.FETCHING, ShardState.CHECKING}:
        return "fetching"
    if states & {ShardState.PENDING}:
        return "starting"
    if ShardState.FAILED in states:
        return "failed"
    if unplaced is not None and not entry.weights.ready:
        return "failed" if entry.weights.failed else "fetching"
    return "pending"


def _model_message(entry: CatalogEntry, mine: list[Replica], ready: int, unplaced: Unplaced | None) -> str:
    if ready >= entry.model.wanted_replicas:
        return ""
    moving = next((s for r in mine if (s := progress_sentence(r))), "")
    failed = next((r.message for r in mine if r.state is ShardState.FAILED and r.message), "")
    waiting = next((r.message for r in mine if r.live and r.state is not ShardState.READY and r.message), "")
    return moving or failed or (unplaced.message if unplaced else "") or waiting


def problems(
    snapshot: Snapshot,
    models: Iterable[ModelInfo],
    paused: str,
    node_problems: Mapping[str, tuple[str, ...]],
) -> tuple[str, ...]:
    """What needs attention, worst first, each a sentence."""
    found: list[str] = []
    if paused:
        found.append(paused)
    for model in models:
        if model.state in ("failed", "pending") or (model.state == "partial" and model.message):
            have = f"{model.ready} of {plural(model.wanted, 'replica')} ready"
            found.append(f"model {model.name}: {have}: {model.message or 'waiting'}")
    found.extend(compute_problems(snapshot))
    for node in snapshot.nodes:
        if node.link is not NodeLink.CONNECTED:
            ago = span(snapshot.now - node.heard_at)
            found.append(f"node {node.name} is {node.link.value}: last heard {ago} ago")
        found.extend(f"card {c.index} of {node.name}: {c.problem}" for c in node.cards if not c.healthy and c.problem)
    for name, texts in sorted(node_problems.items()):
        found.extend(f"node {name}: {text}" for text in texts)
    return tuple(found)
