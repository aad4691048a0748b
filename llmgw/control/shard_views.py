"""The parts of a replica, as the admin API and the live feed show them. Pure."""

from llmgw.api.shard_types import ShardInfo
from llmgw.core.cluster import Replica
from llmgw.core.shards import role_of


def shard_infos(replica: Replica) -> tuple[ShardInfo, ...]:
    """The parts of a replica that spans several nodes."""
    return tuple(
        ShardInfo(
            role=role_of(rank),
            node=shard.node,
            state=shard.state.value if shard.heard else "unheard",
            pid=shard.pid,
            cards=shard.cards,
            message=shard.message,
            adopted=shard.adopted,
            compute=shard.compute,
        )
        for rank, shard in enumerate(replica.shards)
    )
