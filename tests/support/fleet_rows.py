"""Recorded feeds for the console: a small fleet with something of everything, an empty cluster, and a large one."""

import math
from collections.abc import Mapping

import msgspec

from llmgw.api.types import EngineInfo, ProgressInfo, RouterInfo, ServerInfo
from llmgw.api.watch import (
    AuditRow,
    CardRow,
    ClusterRow,
    Delta,
    FiguresRow,
    KeyRow,
    ModelRow,
    NodeRow,
    ReplicaRow,
    Snapshot,
    TrafficRow,
    WeightsRow,
)
from llmgw.core.catalog import Model, ModelFacts, Profile, Scaling

NOW = 1_772_368_867.0
"""The server's clock in every recorded message."""
GB = 10**9
Rows = Mapping[str, Mapping[str, msgspec.Struct]]


def encode(rows: Rows) -> dict[str, dict[str, msgspec.Raw]]:
    """Rows as they travel."""
    return {
        topic: {key: msgspec.Raw(msgspec.json.encode(row)) for key, row in of.items()} for topic, of in rows.items()
    }


def snapshot(rows: Rows, *, role: str = "admin", epoch: str = "run-1", rev: int = 1, now: float = NOW) -> Snapshot:
    """A snapshot of these rows."""
    return Snapshot(epoch=epoch, rev=rev, now=now, actor="unix:ops", role=role, rows=encode(rows))


def delta(
    rows: Rows | None = None, gone: Mapping[str, tuple[str, ...]] | None = None, *, rev: int = 2, now: float = NOW
) -> Delta:
    """A delta."""
    return Delta(rev=rev, now=now, rows=encode(rows or {}), gone=dict(gone or {}))


def cluster_row(leader: str | None = "ctl-a", planes: int = 3) -> ClusterRow:
    """Three control planes, one of which leads."""
    names = [f"ctl-{'abc'[i]}" for i in range(planes)]
    return ClusterRow(
        version="0.1.0",
        cluster_id="berlin-lab",
        leader=leader,
        epoch=7,
        servers=tuple(
            ServerInfo(id=name, pid=100 + i, host=name, leader=name == leader, version="0.1.0", epoch=7)
            for i, name in enumerate(names)
        ),
        routers=(RouterInfo(pid=400, port=8080),),
        database="db.lab",
    )


def model_row(name: str, state: str = "ready", *, ready: int = 1, wanted: int = 1, message: str = "") -> ModelRow:
    """A catalog entry."""
    return ModelRow(
        name=name,
        state=state,
        ready=ready,
        wanted=wanted,
        source=f"hf:org/{name}",
        message=message,
        spec=Model(
            name=name,
            source=f"hf:org/{name}",
            scaling=Scaling(min=wanted, max=max(1, wanted + 1)),
            profiles=(Profile(name="main", engine="llamacpp", gpu_class="h100-80g"),),
            stopped=state == "stopped",
        ),
        facts=ModelFacts(
            weights_bytes=47 * GB,
            trained_context=131072,
            kv_bytes_per_token=327_680,
            architecture="llama",
            parameters=70_600_000_000,
            layers=80,
            quantization="Q4_K_M",
        ),
        context_length=32768,
        max_output=8192,
        created=NOW - 90_000,
        changed=NOW - 7_200,
    )


def replica_row(
    id_: str,
    model: str,
    node: str,
    state: str = "ready",
    *,
    since_s: float = 7200.0,
    cards: tuple[str, ...] = (),
    message: str = "",
    in_flight: int = 0,
    progress: ProgressInfo | None = None,
) -> ReplicaRow:
    """A replica."""
    return ReplicaRow(
        id=id_,
        model=model,
        profile="main",
        engine="llamacpp",
        node=node,
        state=state,
        since=NOW - since_s,
        pid=4000 if state == "ready" else 0,
        endpoint=f"http://{node}:9001",
        cards=cards,
        memory_bytes=61 * GB,
        context_length=32768,
        slots=16,
        restarts=2 if state == "failed" else 0,
        in_flight=in_flight,
        progress=progress,
        message=message,
    )


def card_uuid(node: str, index: int) -> str:
    """The card's identity."""
    return f"GPU-{node}-{index}"


def node_row(
    name: str,
    cards: int = 8,
    *,
    gpu_class: str = "h100-80g",
    state: str = "connected",
    held: Mapping[int, str] | None = None,
    worn: tuple[int, ...] = (),
    problems: tuple[str, ...] = (),
) -> NodeRow:
    """A machine; `held` says which replica holds which card."""
    held = held or {}
    memory = {"h100-80g": 80, "a100-80g": 80, "l40s-48g": 48}.get(gpu_class, 24) * GB
    return NodeRow(
        name=name,
        state=state,
        address=f"{name}.lab",
        agent_version="0.1.0",
        agent_pid=880,
        cpus=96,
        cpu_model="AMD EPYC 9654",
        memory_total_bytes=768 * GB,
        memory_reserved_bytes=64 * GB,
        disk_total_bytes=7_680 * GB,
        cards=tuple(
            CardRow(
                uuid=card_uuid(name, index),
                index=index,
                name=f"NVIDIA {gpu_class.split('-')[0].upper()}",
                gpu_class=gpu_class,
                memory_total_bytes=memory,
                healthy=index not in worn,
                problem="12 rows remapped, 1 waiting for a reset" if index in worn else "",
                replica=held.get(index),
            )
            for index in range(cards)
        ),
        engines=(EngineInfo(engine="llamacpp", version="b6900", usable=True),),
        problems=problems,
    )


def figures_row(node: NodeRow, work: tuple[float, ...], *, heard_s: float = 1.4) -> FiguresRow:
    """What the node's sensors said."""
    totals = [card.memory_total_bytes or 0 for card in node.cards]
    return FiguresRow(
        heard=NOW - heard_s,
        cpu_percent=31.0,
        load_1m=24.5,
        memory_available_bytes=590 * GB,
        disk_free_bytes=4_100 * GB,
        memory_used_bytes=tuple(int(total * 0.76) for total in totals),
        utilization_percent=tuple(min(100.0, value * 1.4) for value in work),
        work_percent=work,
        temperature_c=tuple(38.0 + value / 3 for value in work),
        power_w=tuple(90.0 + 5 * value for value in work),
    )


def traffic_row(requests: float = 103.0, tokens: float = 7_100.0) -> TrafficRow:
    """What a model is asked."""
    return TrafficRow(
        requests_per_s=requests,
        errors_per_s=requests / 5000,
        input_tokens_per_s=tokens * 2.1,
        output_tokens_per_s=tokens,
        first_token_p50_ms=180.0,
        first_token_p95_ms=610.0,
        open_requests=int(requests / 3),
    )


_WORK: dict[str, tuple[float, ...]] = {
    "gpu01": (72, 70, 74, 69, 55, 58, 54, 57),
    "gpu02": (51, 49, 52, 50, 0, 0, 0, 0),
    "gpu03": (38, 41, 12, 4, 91, 88, 40, 0),
    "gpu04": (33, 35, 31, 34, 0, 0, 0, 0),
    "gpu05": (64, 61, 22, 18),
    "gpu06": (66, 59, 0, 0),
    "gpu07": (18, 69, 71, 5),
}
_CLASSES = {"gpu04": "a100-80g", "gpu05": "l40s-48g", "gpu06": "l40s-48g", "gpu07": "rtx6000-24g"}
_HELD = {"gpu01": 8, "gpu02": 6, "gpu03": 7, "gpu04": 6, "gpu05": 4, "gpu06": 2, "gpu07": 4}


def small_rows() -> dict[str, dict[str, msgspec.Struct]]:
    """Seven nodes, six models, something of every state."""
    nodes: dict[str, NodeRow] = {}
    for name, work in _WORK.items():
        held = {index: f"r-{name}-{index // 2}" for index in range(_HELD[name])}
        nodes[name] = node_row(
            name,
            len(work),
            gpu_class=_CLASSES.get(name, "h100-80g"),
            held=held,
            worn=(1,) if name == "gpu04" else (2,) if name == "gpu07" else (),
            state={"gpu06": "cordoned"}.get(name, "connected"),
        )
    models = ("qwen2.5-7b", "llama-3.3-70b", "qwen3-coder-30b", "old-llama")
    replicas: dict[str, ReplicaRow] = {}
    for name, node in nodes.items():
        for pair in range(_HELD[name] // 2):
            id_ = f"r-{name}-{pair}"
            cards = tuple(card.uuid for card in node.cards if card.replica == id_)
            model = models[(pair + len(replicas)) % 4]
            replicas[id_] = replica_row(id_, model, name, cards=cards, in_flight=7 * pair, since_s=3600.0 * (pair + 1))
    replicas["r-gpu02-2"] = replica_row(
        "r-gpu02-2",
        "glm-5.2",
        "gpu02",
        "fetching",
        since_s=95,
        cards=tuple(card_uuid("gpu02", index) for index in (4, 5)),
        progress=ProgressInfo(phase="fetching", done_bytes=115 * GB, total_bytes=188 * GB),
    )
    replicas["r-gpu03-9"] = replica_row(
        "r-gpu03-9",
        "qwen2.5-7b",
        "gpu03",
        "failed",
        since_s=240,
        message="the engine ended with signal 9 while loading",
    )
    rows: dict[str, dict[str, msgspec.Struct]] = {
        "cluster": {"cluster": cluster_row()},
        "models": {
            "qwen2.5-7b": model_row("qwen2.5-7b", ready=6, wanted=6),
            "llama-3.3-70b": model_row("llama-3.3-70b", ready=4, wanted=4),
            "qwen3-coder-30b": model_row("qwen3-coder-30b", ready=4, wanted=4),
            "old-llama": model_row("old-llama", ready=2, wanted=2),
            "glm-5.2": model_row("glm-5.2", "fetching", ready=0, wanted=1),
            "glm-5.2-air": model_row(
                "glm-5.2-air",
                "pending",
                ready=0,
                wanted=1,
                message="cannot be placed: needs 2 × h100-80g free on one node; gpu02 has 2 but 14.2 GB short each",
            ),
            "mixtral-8x22b": model_row("mixtral-8x22b", "stopped", ready=0, wanted=0),
        },
        "replicas": dict(replicas),
        "nodes": dict(nodes),
        "figures": {name: figures_row(node, _WORK[name]) for name, node in nodes.items()},
        "traffic": {
            "*": TrafficRow(
                requests_per_s=412.0,
                errors_per_s=0.1,
                input_tokens_per_s=61_000.0,
                output_tokens_per_s=28_400.0,
                first_token_p50_ms=180.0,
                first_token_p95_ms=610.0,
                open_requests=137,
            ),
            "qwen2.5-7b": traffic_row(290, 18_000),
            "llama-3.3-70b": traffic_row(42, 3_900),
            "qwen3-coder-30b": traffic_row(80, 6_500),
            "old-llama": TrafficRow(),
        },
        "weights": {
            "hf:org/glm-5.2": WeightsRow(
                source="hf:org/glm-5.2",
                id="w1",
                state="ready",
                done_bytes=188 * GB,
                total_bytes=188 * GB,
                files=42,
                models=("glm-5.2",),
            )
        },
        "keys": {"key-1": KeyRow(id="key-1", name="ci", created=NOW - 9_000, requests=12_000)},
        "audit": {"1": AuditRow(id=1, at=NOW - 300, actor="unix:ops", action="model.add", target="glm-5.2")},
    }
    return rows


def small_fleet(role: str = "admin") -> Snapshot:
    """`small_rows` as a snapshot."""
    return snapshot(small_rows(), role=role)


def empty_cluster() -> Snapshot:
    """A leader, and nothing else."""
    return snapshot({"cluster": {"cluster": cluster_row(planes=1)}})


def played(steps: int = 300, *, step_s: float = 2.0) -> list[Snapshot | Delta]:
    """The small fleet over `steps` samples, traffic and cards in gentle waves, ending as `small_rows` at NOW."""
    rows = small_rows()
    nodes = {name: row for name, row in rows["nodes"].items() if isinstance(row, NodeRow)}
    messages: list[Snapshot | Delta] = [snapshot(rows, now=NOW - step_s * (steps + 1))]
    for step in range(steps):
        wave = 1 + 0.35 * math.sin(step / 14) + 0.12 * math.sin(step / 3)
        figures = {
            name: figures_row(node, tuple(min(99.0, value * wave) for value in _WORK[name]))
            for name, node in nodes.items()
        }
        traffic = {
            "*": traffic_row(412 * wave, 28_400 * wave),
            "qwen2.5-7b": traffic_row(290 * wave, 18_000 * wave),
            "llama-3.3-70b": traffic_row(42 * wave, 3_900 * wave),
            "qwen3-coder-30b": traffic_row(80 * (2 - wave), 6_500 * (2 - wave)),
        }
        changed: dict[str, dict[str, msgspec.Struct]] = {"figures": dict(figures), "traffic": dict(traffic)}
        messages.append(delta(changed, rev=2 + step, now=NOW - step_s * (steps - step)))
    last = {"figures": rows["figures"], "traffic": rows["traffic"]}
    return [*messages, delta(last, rev=2 + steps, now=NOW)]


def large_rows(nodes: int, cards: int, replicas: int) -> dict[str, dict[str, msgspec.Struct]]:
    """`nodes` × `cards` cards and `replicas` replicas."""
    machines = {f"node{i:04d}": node_row(f"node{i:04d}", cards) for i in range(nodes)}
    return {
        "cluster": {"cluster": cluster_row()},
        "models": {
            f"model-{i}": model_row(f"model-{i}", ready=100, wanted=100) for i in range(max(1, replicas // 100))
        },
        "nodes": dict(machines),
        "figures": {
            name: figures_row(row, tuple(float((i * 7 + k * 13) % 100) for k in range(cards)))
            for i, (name, row) in enumerate(machines.items())
        },
        "replicas": {
            f"r{i:05d}": replica_row(f"r{i:05d}", f"model-{i // 100}", f"node{i % max(1, nodes):04d}")
            for i in range(replicas)
        },
        "traffic": {"*": traffic_row()},
    }
