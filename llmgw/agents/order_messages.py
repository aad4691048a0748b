"""What nodes are ordered to do with replicas, as messages of the protocol."""

from llmgw.core.catalog import Profile
from llmgw.core.cluster import Replica
from llmgw.core.shards import shard_id_of
from llmgw.core.snapshot import CatalogEntry
from llmgw.wire.llmgw import v1 as wire


def start_shard(
    replica: Replica, entry: CatalogEntry, profile: Profile, *, engine_key: str, rank: int = 0
) -> wire.ServerMessage:
    """The order to run a replica, or one of its shards; `engine_key` is that replica's own."""
    own = replica.shards[rank].cards if replica.shards else replica.cards
    spec = wire.ShardSpec(
        shard_id=shard_id_of(replica.id, rank),
        replica_id=replica.id,
        model=replica.model,
        profile=profile.name,
        engine=profile.engine,
        spec_hash=replica.spec_hash,
        source=entry.model.source,
        card_uuids=list(own),
        memory_bytes=replica.memory_bytes,
        host_bytes=replica.host_bytes,
        context_length=replica.context_length,
        slots=replica.slots,
        tp=profile.tp,
        pp=profile.pp,
        rank=rank,
        places=[
            wire.ShardPlace(node=shard.node, address=shard.address, card_uuids=list(shard.cards))
            for shard in replica.shards
        ],
        args=list(profile.args),
        env=dict(profile.env),
    )
    return wire.ServerMessage(start_shard=wire.StartShard(spec=spec, engine_key=engine_key))


def stop_shard(replica_id: str, reason: str, grace_s: float, *, rank: int = 0) -> wire.ServerMessage:
    """The order to end a replica, or one of its shards: SIGTERM, then SIGKILL after `grace_s`."""
    order = wire.StopShard(shard_id=shard_id_of(replica_id, rank), reason=reason, grace_s=grace_s)
    return wire.ServerMessage(stop_shard=order)


def drain_shard(replica_id: str, reason: str, deadline_s: float) -> wire.ServerMessage:
    """The order to let a replica's requests end within `deadline_s`."""
    order = wire.DrainShard(shard_id=shard_id_of(replica_id), reason=reason, deadline_s=deadline_s)
    return wire.ServerMessage(drain_shard=order)


def rally_shard(replica: Replica, rank: int) -> wire.ServerMessage:
    """The order to a shard that waited for others to go on; where the head is, the cluster says and not the node."""
    head = replica.shards[0]
    host = f"[{head.address}]" if ":" in head.address else head.address
    where = f"{host}:{head.runtime_port}" if rank else ""
    return wire.ServerMessage(rally_shard=wire.RallyShard(shard_id=shard_id_of(replica.id, rank), head=where))
