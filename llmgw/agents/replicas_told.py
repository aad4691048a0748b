"""Replicas, downloads and log lines as agents tell of them. Nothing enters unless it is plausible and harmless.

Counts and names over their limits refuse the whole message (InvalidInput: the session ends); figures that cannot be
(NaN, negative, over a limit) count as not reported; texts lose control characters and what is over their length.
"""

import re
from collections.abc import Sequence
from urllib.parse import urlsplit

from llmgw.agents.compute_told import compute_from
from llmgw.agents.plausible import (
    HOST_PATTERN,
    LINE_CHARS,
    MAX_BYTES,
    MAX_CARDS,
    MAX_LOG_LINES,
    MAX_PID,
    MAX_SHARDS,
    MAX_TOKENS,
    NAME_CHARS,
    bounded,
    clean,
    identity,
    whole,
)
from llmgw.core.catalog import MAX_NODES
from llmgw.core.cluster import FetchProgress, Replica, Shard, ShardState
from llmgw.core.errors import InvalidInput
from llmgw.core.shards import replica_and_rank
from llmgw.wire.llmgw import v1 as wire

_PREFIX_PATTERN = re.compile(r"/r/[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_STATES = {
    wire.ShardState.PENDING: ShardState.PENDING,
    wire.ShardState.FETCHING: ShardState.FETCHING,
    wire.ShardState.CHECKING: ShardState.CHECKING,
    wire.ShardState.STARTING: ShardState.STARTING,
    wire.ShardState.READY: ShardState.READY,
    wire.ShardState.DRAINING: ShardState.DRAINING,
    wire.ShardState.STOPPED: ShardState.STOPPED,
    wire.ShardState.FAILED: ShardState.FAILED,
}
MAX_PORT = 65535
_PHASES = frozenset({"mirror", "fetching", "checking", "done", "failed"})


def replicas_from_hello(hello: wire.Hello, *, node: str) -> tuple[Replica, ...]:
    """Everything the node runs. Raises InvalidInput, also for a shard named twice."""
    found = tuple(
        replica_from_status(status, node=node, where=f"shards[{i}]")
        for i, status in bounded(hello.shards, MAX_SHARDS, "shards")
    )
    if len({replica.id for replica in found}) != len(found):
        raise InvalidInput("a shard is named twice", field="shards")
    return found


def replica_from_status(status: wire.ShardStatus, *, node: str, where: str = "shard_status") -> Replica:
    """A shard's state; without `spec` the replica's model is empty: only one known already may be updated by it."""
    shard_id = identity(status.shard_id, f"{where}.shard_id")
    state = _STATES.get(status.state)
    if state is None:
        raise InvalidInput("the state is none that this version knows", field=f"{where}.state")
    spec = status.spec or wire.ShardSpec()
    replica_id, rank = replica_and_rank(shard_id)
    if spec.replica_id not in ("", replica_id) or spec.shard_id not in ("", shard_id):
        raise InvalidInput(f"shard {shard_id} is described as another's", field=f"{where}.spec")
    shards = _shards(spec, f"{where}.spec.places")
    if status.spec and not _seated(shards, rank, node):
        raise InvalidInput(f"shard {shard_id} is none of {node}'s by its own places", field=f"{where}.spec.places")
    return Replica(
        id=replica_id,
        node=node,
        model=identity(spec.model, f"{where}.spec.model") if status.spec else "",
        profile=identity(spec.profile, f"{where}.spec.profile") if status.spec else "",
        engine=identity(spec.engine, f"{where}.spec.engine") if status.spec else "",
        spec_hash=clean(spec.spec_hash, NAME_CHARS),
        state=state,
        cards=tuple(uuid for shard in shards for uuid in shard.cards)
        or _uuids(spec.card_uuids, f"{where}.spec.card_uuids"),
        shards=shards,
        prepared=status.prepared,
        runtime_port=whole(status.runtime_port, MAX_PORT),
        memory_bytes=whole(spec.memory_bytes, MAX_BYTES),
        host_bytes=whole(spec.host_bytes, MAX_BYTES),
        endpoint=_endpoint(status.endpoint, f"{where}.endpoint"),
        pid=whole(status.pid, MAX_PID),
        message=clean(status.message),
        context_length=whole(spec.context_length, MAX_TOKENS),
        slots=whole(spec.slots, MAX_TOKENS),
        restarts=whole(status.restarts, MAX_TOKENS),
        adopted=status.adopted,
        compute=compute_from(status.compute),
    )


def check_endpoint(replica: Replica, address: str) -> None:
    """Refuse a replica that would send clients' requests elsewhere than to its node; raises InvalidInput."""
    host = urlsplit(replica.endpoint).hostname or ""
    if replica.endpoint and host != address.lower():
        raise InvalidInput(f"replica {replica.id} is said to answer at {host}, but its node's address is {address}")


def progress_from(message: wire.FetchProgress) -> tuple[tuple[str, ...], FetchProgress]:
    """Ids of the replicas that wait for a download, and how far it is. Raises InvalidInput."""
    waiting = tuple(
        replica_and_rank(identity(shard, f"shard_ids[{i}]"))[0]
        for i, shard in bounded(message.shard_ids, MAX_SHARDS, "shard_ids")
    )
    done, total = whole(message.done_bytes, MAX_BYTES), whole(message.total_bytes, MAX_BYTES)
    phase = message.phase if message.phase in _PHASES else ""
    return waiting, FetchProgress(phase=phase, done_bytes=min(done, total) if total else done, total_bytes=total)


def log_lines_from(message: wire.LogLines) -> tuple[str, ...]:
    """Log lines, each one line without control characters. Raises InvalidInput for too many in one message."""
    return tuple(clean(line, LINE_CHARS) for _, line in bounded(message.lines, MAX_LOG_LINES, "lines"))


def _seated(shards: tuple[Shard, ...], rank: int, node: str) -> bool:
    """Whether a shard of that rank is the node's, by what its specification says of all shards."""
    return shards[rank].node == node if rank < len(shards) else rank == len(shards) == 0


def _shards(spec: wire.ShardSpec, where: str) -> tuple[Shard, ...]:
    shards = tuple(
        Shard(
            node=identity(place.node, f"{where}[{i}].node"),
            address=_address(place.address, f"{where}[{i}].address"),
            cards=_uuids(place.card_uuids, f"{where}[{i}].card_uuids"),
        )
        for i, place in bounded(spec.places, MAX_NODES, where)
    )
    if len({shard.node for shard in shards}) != len(shards):
        raise InvalidInput("a node is named twice", field=where)
    return shards


def _address(text: str, field: str) -> str:
    if text and not HOST_PATTERN.fullmatch(text):
        raise InvalidInput(f"{clean(text, 80)!r} is neither a host name nor an address", field=field)
    return text


def _uuids(uuids: Sequence[str], field: str) -> tuple[str, ...]:
    return tuple(identity(uuid, f"{field}[{i}]") for i, uuid in bounded(uuids, MAX_CARDS, field))


def _endpoint(text: str, field: str) -> str:
    """`http://HOST:PORT`, or `http://HOST:PORT/r/NAME` where replicas share a listener, and nothing more.

    Link-local addresses (a cloud's metadata service) are refused.
    """
    if not text:
        return ""
    try:
        url = urlsplit(text[:300])
        host, port, prefix = url.hostname or "", url.port, url.path
    except ValueError:
        host, port, prefix = "", None, ""
    shown = f"[{host}]" if ":" in host else host
    whole = f"http://{shown}:{port}{prefix}"
    plain = not prefix or (_PREFIX_PATTERN.fullmatch(prefix) and ".." not in prefix)
    if not port or not HOST_PATTERN.fullmatch(host) or not plain or text.lower() != whole.lower():
        raise InvalidInput(f"{clean(text, 80)!r} is not http://HOST:PORT or http://HOST:PORT/r/NAME", field=field)
    if host.startswith(("169.254.", "fe80:", "0.")) or host == "::":
        raise InvalidInput(f"{host} is no address routers could use", field=field)
    return text
