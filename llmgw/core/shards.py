"""Replicas that span several nodes: one state of many, and no part that outlives the whole.

What is told of one shard becomes the replica's own state here, and only here. A replica that has failed never comes
back, whatever its shards say: the others are ended, and a new replica takes its place.
"""

import re
from collections.abc import Callable, Iterator

import msgspec

from llmgw.core.cluster import FetchProgress, Replica, Shard, ShardState

_SHARD_ID = re.compile(r"(.+)/([0-9]{1,3})")
_ON_ITS_WAY = (
    ShardState.PENDING,
    ShardState.FETCHING,
    ShardState.CHECKING,
    ShardState.STARTING,
    ShardState.READY,
)
"""States of a start, in order: a replica is as far as the last of its shards."""
GONE = Shard(node="", state=ShardState.STOPPED, message="its node does not run it any more")
"""What is known of a shard that its node does not name."""


def shard_id_of(replica_id: str, rank: int = 0) -> str:
    """The id of a replica's shard; a replica on one node has one, of rank 0."""
    return f"{replica_id}/{rank}"


def replica_and_rank(shard_id: str) -> tuple[str, int]:
    """The replica a shard belongs to, and which of its shards it is; what bears no rank is a replica's only shard."""
    match = _SHARD_ID.fullmatch(shard_id)
    return (match[1], int(match[2])) if match else (shard_id, 0)


def role_of(rank: int) -> str:
    """`head` answers for the replica, a `worker` computes."""
    return "worker" if rank else "head"


def node_of(replica: Replica, rank: int) -> str:
    """The node of one of its shards; empty when it has no such shard."""
    return replica.nodes[rank] if rank < len(replica.nodes) else ""


def rank_on(replica: Replica, node: str) -> int:
    """Which of its shards is on the node; 0 for one that has none there."""
    return replica.nodes.index(node) if node in replica.nodes else 0


def seat_of(replica: Replica) -> str:
    """Where it was ordered to run: the name of its node, or those of all its nodes in their order."""
    return " ".join(replica.nodes)


def assemble(told: Replica, node: str) -> Replica:
    """A replica that one of its nodes told of, as far as it is known by that: its other shards have yet to be heard."""
    shards = tuple(
        shard if shard.node == node else msgspec.structs.replace(shard, heard=False) for shard in told.shards
    )
    blank = msgspec.structs.replace(
        told, shards=shards, node=shards[0].node, state=ShardState.PENDING, message="", endpoint="", pid=0
    )
    return _whole(blank, node, told)


def heard(known: Replica, node: str, told: Replica) -> Replica:
    """The replica after `node` told of its shard."""
    return _whole(known, node, told)


def missed(known: Replica, node: str) -> Replica:
    """The replica after `node` named all it runs, and no shard of this one."""
    return _with(known, node, state=GONE.state, message=GONE.message, heard=True, pid=0, prepared=False, runtime_port=0)


def progressed(known: Replica, node: str, progress: FetchProgress) -> Replica:
    """The replica after a download of one of its shards moved; what it shows is the shard that is least far."""
    replica = _with(known, node, progress=progress)
    moving = [s.progress for s in replica.shards if s.progress is not None]
    return msgspec.structs.replace(replica, progress=min(moving, key=_done, default=None))


def rallied(replica: Replica) -> Iterator[int]:
    """Ranks of the shards that may go on now: the head once all weights are there, workers once it takes them in."""
    if not replica.shards or replica.state not in _ON_ITS_WAY:
        return
    if not all(shard.prepared or shard.pid for shard in replica.shards):
        return
    for rank, shard in enumerate(replica.shards):
        if shard.prepared and not shard.pid and (rank == 0 or replica.shards[0].runtime_port):
            yield rank


def to_stop(replica: Replica, reachable: Callable[[str], bool]) -> tuple[int, ...]:
    """Ranks of the shards to end now: the head first, and the others once it has; of what failed, all at once.

    A shard that cannot be told waits for nobody and keeps nobody waiting.
    """
    if not replica.shards:
        return (0,) if reachable(replica.node) else ()
    left = tuple(
        rank
        for rank, shard in enumerate(replica.shards)
        if shard.state is not ShardState.STOPPED and reachable(shard.node)
    )
    return (0,) if 0 in left and replica.state is not ShardState.FAILED else left


def left_over(replica: Replica) -> bool:
    """Whether a replica that failed still has shards that run."""
    return replica.state is ShardState.FAILED and bool(replica.shards) and bool(replica.holding)


def ended(replica: Replica) -> bool:
    """Whether nothing of it is left on any node."""
    return all(shard.state is ShardState.STOPPED for shard in replica.shards)


def _whole(known: Replica, node: str, told: Replica) -> Replica:
    """`told` is what its node says of its one shard."""
    own = next((shard for shard in told.shards if shard.node == node), None)
    before = next(shard for shard in known.shards if shard.node == node)
    replica = _with(
        known,
        node,
        state=told.state,
        heard=True,
        pid=told.pid,
        message=told.message,
        restarts=told.restarts,
        adopted=told.adopted,
        prepared=told.prepared,
        runtime_port=told.runtime_port,
        compute=told.compute,
        address=before.address or (own.address if own is not None else ""),
        progress=before.progress if before.state is told.state else None,
    )
    if node != known.shards[0].node:
        return replica
    return msgspec.structs.replace(
        replica,
        endpoint=told.endpoint or known.endpoint,
        pid=told.pid,
        adopted=told.adopted,
        restarts=told.restarts,
        compute=told.compute,
    )


def _with(known: Replica, node: str, **changes: object) -> Replica:
    shards = tuple(msgspec.structs.replace(shard, **changes) if shard.node == node else shard for shard in known.shards)
    state = _state(known.state, shards)
    return msgspec.structs.replace(known, shards=shards, state=state, message=_message(known, state, shards))


def _state(before: ShardState, shards: tuple[Shard, ...]) -> ShardState:
    if before in (ShardState.FAILED, ShardState.DRAINING):
        return before
    if any(shard.state in (ShardState.FAILED, ShardState.STOPPED) for shard in shards):
        return ShardState.FAILED
    if any(shard.state is ShardState.DRAINING for shard in shards):
        return ShardState.DRAINING
    # Whoever has not been heard is taken to run on, as a silent node's replicas are; but the head alone knows where.
    said = [shard.state for shard in shards if shard.heard]
    said += [] if shards[0].heard else [ShardState.STARTING]
    return min(said, key=_ON_ITS_WAY.index)


def _message(known: Replica, state: ShardState, shards: tuple[Shard, ...]) -> str:
    """The word of the shard that decides; of a replica that failed the first word, which is the cause."""
    if state is known.state and state in (ShardState.FAILED, ShardState.DRAINING):
        return known.message
    if state is ShardState.STARTING and not shards[0].heard:
        return f"head on {shards[0].node}: not heard yet"
    for rank, shard in enumerate(shards):
        gone = state is ShardState.FAILED and shard.state is ShardState.STOPPED
        if (shard.state is state or gone) and shard.message:
            return f"{role_of(rank)} on {shard.node}: {shard.message}"
    return ""


def _done(progress: FetchProgress) -> float:
    return progress.done_bytes / progress.total_bytes if progress.total_bytes else 0.0
