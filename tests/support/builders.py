"""Small builders: a test names what it is about and takes the rest as it comes."""

from typing import Any, TypeVar

import msgspec

from llmgw.core.catalog import Model, ModelFacts, Profile, Scaling
from llmgw.core.cluster import Card, EngineBuild, Node, Replica, ShardState
from llmgw.core.snapshot import CatalogEntry, Snapshot, WeightsState

GB = 10**9
T = TypeVar("T", bound=msgspec.Struct)


def a_profile(**over: Any) -> Profile:
    return Profile(**{"name": "cpu", "engine": "llamacpp", **over})


def a_model(name: str = "m", *, replicas: int = 1, **over: Any) -> Model:
    fields: dict[str, Any] = {
        "name": name,
        "source": "file:/weights/m.gguf",
        "scaling": Scaling(min=replicas, max=max(1, replicas)),
        "profiles": (a_profile(),),
    }
    return Model(**{**fields, **over})


def an_entry(model: Model | None = None, **over: Any) -> CatalogEntry:
    fields: dict[str, Any] = {
        "model": model or a_model(),
        "facts": ModelFacts(weights_bytes=GB, kv_bytes_per_token=10_000, trained_context=8192),
        "weights": WeightsState(ready=True),
    }
    return CatalogEntry(**{**fields, **over})


def a_card(index: int = 0, *, node: str = "n1", memory: int = 80 * GB, **over: Any) -> Card:
    fields: dict[str, Any] = {
        "uuid": f"GPU-{node}-{index}",
        "index": index,
        "name": "NVIDIA H100 80GB HBM3",
        "gpu_class": "h100-80g",
        "memory_total_bytes": memory,
        "memory_used_bytes": 0,
    }
    return Card(**{**fields, **over})


def a_node(name: str = "n1", *, memory: int = 16 * GB, **over: Any) -> Node:
    fields: dict[str, Any] = {
        "name": name,
        "address": "127.0.0.1",
        "cpus": 8,
        "memory_total_bytes": memory,
        "memory_available_bytes": memory,
        "engines": (EngineBuild(engine="llamacpp", version="1"), EngineBuild(engine="sim", version="1")),
    }
    return Node(**{**fields, **over})


def a_replica(entry: CatalogEntry | None = None, *, id: str = "r1", node: str = "n1", **over: Any) -> Replica:
    entry = entry or an_entry()
    profile = entry.model.profiles[0]
    fields: dict[str, Any] = {
        "id": id,
        "model": entry.model.name,
        "profile": profile.name,
        "engine": profile.engine,
        "node": node,
        "spec_hash": entry.spec_hash(profile),
        "state": ShardState.READY,
        "memory_bytes": GB,
        "endpoint": "http://127.0.0.1:18000",
    }
    return Replica(**{**fields, **over})


def a_snapshot(**over: Any) -> Snapshot:
    return Snapshot(**{"now": 1000.0, **over})


def changed(struct: T, **over: Any) -> T:
    """The same struct with other fields."""
    return msgspec.structs.replace(struct, **over)
