"""Rows of the live feed from what the services hold. Pure: the same state gives the same row, byte for byte."""

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from types import MappingProxyType
from typing import TypeVar

from llmgw.api.types import CardInfo, ModelInfo, NodeInfo, ProgressInfo, RouterInfo
from llmgw.api.watch import (
    AuditRow,
    CardRow,
    FiguresRow,
    KeyRow,
    ModelRow,
    NodeRow,
    ReplicaRow,
    ScopeRow,
    WeightsRow,
    scope_key,
)
from llmgw.control.shard_views import shard_infos
from llmgw.core.card_use import work_of
from llmgw.core.cluster import Node, Replica
from llmgw.core.figures import NOTHING_SAID, CardFigures, EngineLoad, ReplicaFigures
from llmgw.core.weights import SetStatus
from llmgw.store.audit import AuditRow as StoredAudit
from llmgw.store.keys import KeyRow as StoredKey
from llmgw.store.scopes import ScopeRow as StoredScope

T = TypeVar("T", int, float)
STEP_S = 1.0
"""The wall clock may differ this much from what was expected before moments follow it."""


class Moments:
    """Monotonic seconds as Unix seconds, to a tenth. The same moment stays the same while the wall clock is calm."""

    def __init__(self, clock: Callable[[], float], wall: Callable[[], float]) -> None:
        self._clock = clock
        self._wall = wall
        self._offset = wall() - clock()

    def unix(self, at: float) -> float:
        """Unix seconds of a monotonic moment."""
        offset = self._wall() - self._clock()
        if abs(offset - self._offset) > STEP_S:
            self._offset = offset
        return round(at + self._offset, 1)


def model_row(info: ModelInfo) -> ModelRow:
    """A catalog entry with what became of it."""
    return ModelRow(
        name=info.name,
        state=info.state,
        ready=info.ready,
        wanted=info.wanted,
        source=info.source,
        message=info.message,
        spec=info.spec,
        facts=info.facts,
        context_length=info.context_length,
        max_output=info.max_output,
        cost_today_micros=info.cost_today_micros,
        declared=info.declared,
        created=_seconds(info.created) or 0.0,
        changed=_seconds(info.changed) or 0.0,
    )


def replica_row(
    replica: Replica,
    in_flight: int,
    moments: Moments,
    breaker: str = "",
    load: EngineLoad = NOTHING_SAID,
    limited: str = "",
) -> ReplicaRow:
    """A replica, its download in figures and its last word as it was said; `load` is what its engine says.

    `limited` says what limits the speed of its weights on their way, for a replica without a word.
    """
    progress = replica.progress
    return ReplicaRow(
        id=replica.id,
        model=replica.model,
        profile=replica.profile,
        engine=replica.engine,
        node=replica.node,
        state=replica.state.value,
        since=moments.unix(replica.since),
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
        in_flight=in_flight,
        breaker=breaker,
        progress=ProgressInfo(phase=progress.phase, done_bytes=progress.done_bytes, total_bytes=progress.total_bytes)
        if progress and progress.phase
        else None,
        message=replica.message or limited,
        running=load.running,
        waiting=load.waiting,
        kv_used=load.kv_used,
    )


def node_row(info: NodeInfo) -> NodeRow:
    """What seldom changes of a node."""
    return NodeRow(
        name=info.name,
        state=info.state,
        address=info.address,
        agent_version=info.agent_version,
        agent_pid=info.agent_pid,
        cpus=info.cpus,
        cpu_model=info.cpu_model,
        memory_total_bytes=info.memory_total_bytes,
        memory_reserved_bytes=info.memory_reserved_bytes,
        disk_total_bytes=info.disk_total_bytes,
        cards=tuple(
            CardRow(
                uuid=card.uuid,
                index=card.index,
                name=card.name,
                gpu_class=card.gpu_class,
                memory_total_bytes=card.memory_total_bytes,
                healthy=card.healthy,
                problem=card.problem,
                replica=card.replica,
                power_limit_w=_rounded(card.power_limit_w),
                work_from=work_from(card),
                wear=card.wear_problems,
                parent=card.parent,
                mig_profile=card.mig_profile,
                unified=card.unified,
                compute_capability=card.compute_capability,
                pcie_generation=card.pcie_generation,
                pcie_width=card.pcie_width,
                numa_node=card.numa_node,
                nvlink_peers=None if card.nvlink_peers is None else len(card.nvlink_peers),
            )
            for card in info.cards
        ),
        engines=info.engines,
        problems=info.problems,
        simulated=info.simulated,
        driver=next((card.driver for card in info.cards), ""),
        numa_nodes=info.numa_nodes,
        cuda_toolkits=info.cuda_toolkits,
        parts=info.parts,
    )


def figures_row(
    node: Node,
    figures: Callable[[str], CardFigures],
    moments: Moments,
    engines: Mapping[str, ReplicaFigures] = MappingProxyType({}),
    resting: Callable[[str], float | None] = lambda _: None,
) -> FiguresRow:
    """What changes of a node with every sample; `engines` take that, by replica; a card rests since `resting`."""
    cards = [figures(card.uuid) for card in node.cards]
    reasons = tuple(card.throttle_reasons for card in cards)
    return FiguresRow(
        heard=moments.unix(node.heard_at),
        cpu_percent=_rounded(node.cpu_percent),
        load_1m=None if node.load_1m is None else round(node.load_1m, 2),
        memory_available_bytes=node.memory_available_bytes or None,
        disk_free_bytes=_disk_free(node),
        memory_used_bytes=_column(card.memory_used_bytes for card in cards),
        utilization_percent=_column(_rounded(card.utilization_percent) for card in cards),
        work_percent=_column(work_percent(card) for card in cards),
        temperature_c=_column(_rounded(card.temperature_c) for card in cards),
        power_w=_column(_rounded(card.power_w) for card in cards),
        memory_temperature_c=_column(_rounded(card.memory_temperature_c) for card in cards),
        sm_clock_mhz=_column(_rounded(card.sm_clock_mhz) for card in cards),
        throttle_reasons=reasons if any(reasons) else (),
        sm_occupancy_percent=_column(_rounded(card.sm_occupancy_percent) for card in cards),
        tensor_active_percent=_column(_rounded(card.tensor_active_percent) for card in cards),
        dram_active_percent=_column(_rounded(card.dram_active_percent) for card in cards),
        cpu_temperature_c=_rounded(node.cpu_temperature_c),
        cpu_power_w=_rounded(node.cpu_power_w),
        inlet_temperature_c=_rounded(node.inlet_temperature_c),
        network_in_bytes_per_s=node.network_in_bytes_per_s,
        network_out_bytes_per_s=node.network_out_bytes_per_s,
        infiniband_in_bytes_per_s=node.infiniband_in_bytes_per_s,
        infiniband_out_bytes_per_s=node.infiniband_out_bytes_per_s,
        resting_since=_column(None if (at := resting(c.uuid)) is None else moments.unix(at) for c in node.cards),
        engine_cpu_percent={name: e.cpu_percent for name, e in engines.items() if e.cpu_percent is not None},
        engine_memory_bytes={name: e.memory_bytes for name, e in engines.items() if e.memory_bytes is not None},
    )


def _disk_free(node: Node) -> int | None:
    """None where there is no disk, or nothing was measured yet: else 0 is a full one."""
    measured = node.load_1m is not None or node.disk_free_bytes
    return node.disk_free_bytes if node.disk_total_bytes and measured else None


def work_percent(card: CardFigures) -> float | None:
    """How much of the chip works: multiprocessors active where that is read, else power against its limit."""
    return _rounded(work_of(card.sm_active_percent, card.power_w, card.power_limit_w))


def work_from(card: CardFigures | CardInfo) -> str:
    """What `work_percent` is read from: `sm`, `power`, or empty where neither is reported."""
    if card.sm_active_percent is not None:
        return "sm"
    return "power" if card.power_limit_w else ""


def weights_row(status: SetStatus, models: tuple[str, ...], revision: str) -> WeightsRow:
    """A set on the mirror and who needs it."""
    return WeightsRow(
        source=status.source,
        id=status.id,
        state=status.state.value,
        done_bytes=status.done_bytes,
        total_bytes=status.total_bytes,
        files=status.files,
        message=status.message,
        models=models,
        revision=revision,
        phase=status.phase,
        checked_bytes=status.checked_bytes,
        verdict=status.verdict,
        intact=status.intact,
        in_place=status.in_place,
        fetched=status.fetched,
        used=status.used,
    )


def key_rows(keys: Iterable[StoredKey]) -> dict[str, KeyRow]:
    """API keys, by id."""
    return {
        key.id: KeyRow(
            id=key.id,
            name=key.name,
            models=key.models,
            created=key.created.timestamp(),
            revoked=_seconds(key.revoked),
            last_used=_seconds(key.last_used),
            requests=key.requests,
            input_tokens=key.input_tokens,
            output_tokens=key.output_tokens,
            team=key.team,
            limits=key.limits,
            budgets=key.budgets,
            spent_day_micros=key.spent_day_micros,
            spent_month_micros=key.spent_month_micros,
            cost_micros=key.cost_micros,
            band=key.band,
        )
        for key in keys
    }


def scope_rows(scopes: Iterable[StoredScope]) -> dict[str, ScopeRow]:
    """Teams and tenants, by kind and name."""
    return {
        scope_key(scope.kind, scope.name): ScopeRow(
            kind=scope.kind,
            name=scope.name,
            tenant=scope.tenant,
            limits=scope.limits,
            budgets=scope.budgets,
            spent_day_micros=scope.spent_day_micros,
            spent_month_micros=scope.spent_month_micros,
            cost_micros=scope.cost_micros,
            keys=scope.keys,
            requests=scope.requests,
            input_tokens=scope.input_tokens,
            output_tokens=scope.output_tokens,
            created=scope.created.timestamp(),
            band=scope.band,
        )
        for scope in scopes
    }


def audit_rows(entries: Iterable[StoredAudit]) -> dict[str, AuditRow]:
    """Audit entries, by number."""
    return {
        str(entry.id): AuditRow(
            id=entry.id,
            at=entry.at.timestamp(),
            actor=entry.actor,
            action=entry.action,
            target=entry.target,
            before=entry.before,
            after=entry.after,
        )
        for entry in entries
    }


def without_counters(routers: Iterable[RouterInfo]) -> tuple[RouterInfo, ...]:
    """Routers as `cluster` shows them: what they count is in `traffic`."""
    return tuple(RouterInfo(pid=r.pid, port=r.port, version=r.version, connected=r.connected) for r in routers)


def models_by_source(sources: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
    """Names of the models that need each source, from model → source."""
    found: dict[str, list[str]] = {}
    for model, source in sorted(sources.items()):
        found.setdefault(source, []).append(model)
    return {source: tuple(models) for source, models in found.items()}


def _column(values: Iterable[T | None]) -> tuple[T | None, ...]:
    """A column, empty when nothing in it is reported."""
    column = tuple(values)
    return column if any(value is not None for value in column) else ()


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 1)


def _seconds(time: datetime | None) -> float | None:
    return None if time is None else time.timestamp()
