"""Wire to core and back. Nothing a node says enters the cluster's state unless it is plausible and harmless.

Counts and names over their limits refuse the whole message (InvalidInput: the session ends); figures that cannot be
(NaN, negative, over a limit) count as not reported; texts lose control characters and what is over their length.
"""

import re
from collections.abc import Sequence
from urllib.parse import urlsplit

from llmgw.agents.plausible import (
    LINE_CHARS,
    MAX_BYTES,
    MAX_CARDS,
    MAX_CPUS,
    MAX_ENGINES,
    MAX_LOG_LINES,
    MAX_PARTS,
    MAX_PID,
    MAX_PROBLEMS,
    MAX_SHARDS,
    MAX_TOKENS,
    MAX_TOOLKITS,
    NAME_CHARS,
    bounded,
    clean,
    identity,
    size_of,
    whole,
)
from llmgw.core.catalog import MAX_NODES, Profile
from llmgw.core.cluster import Card, EngineBuild, FetchProgress, MachinePart, Node, Replica, Shard, ShardState
from llmgw.core.errors import InvalidInput
from llmgw.core.shards import replica_and_rank, shard_id_of
from llmgw.core.snapshot import CatalogEntry
from llmgw.wire.llmgw import v1 as wire

_HOST_PATTERN = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]{0,252}[A-Za-z0-9])?|[0-9A-Fa-f:]{2,39}")
_LOCAL_PATTERN = re.compile(r"(localhost|127\..*|0\..*|0|::1?|::ffff:127\..*)\Z", re.IGNORECASE)
"""What would mean the control plane's machine and not the node's."""
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


def node_from_hello(hello: wire.Hello, *, node: str, peer_address: str) -> Node:
    """A node as it introduces itself; `node` is the name in its certificate. Raises InvalidInput."""
    inventory = hello.inventory or wire.Inventory()
    described = node_from_inventory(inventory, node=node, peer_address=peer_address)
    return Node(
        name=node,
        address=described.address,
        agent_version=clean(hello.agent_version, NAME_CHARS),
        agent_pid=whole(hello.pid, MAX_PID),
        boot_id=clean(hello.boot_id, NAME_CHARS),
        cpus=described.cpus,
        cpu_model=described.cpu_model,
        memory_total_bytes=described.memory_total_bytes,
        memory_available_bytes=described.memory_total_bytes,
        disk_total_bytes=described.disk_total_bytes,
        cards=described.cards,
        engines=described.engines,
        numa_nodes=described.numa_nodes,
        cuda_toolkits=described.cuda_toolkits,
        parts=described.parts,
        simulated=hello.simulated,
    )


def node_from_inventory(inventory: wire.Inventory, *, node: str, peer_address: str) -> Node:
    """The parts of a node that an inventory describes. Raises InvalidInput."""
    cards = tuple(_card(card, f"cards[{i}]") for i, card in bounded(inventory.cards, MAX_CARDS, "cards"))
    if len({card.uuid for card in cards}) != len(cards):
        raise InvalidInput("two cards have the same uuid", field="cards")
    engines = tuple(_engine(e, f"engines[{i}]") for i, e in bounded(inventory.engines, MAX_ENGINES, "engines"))
    address = inventory.address or peer_address
    if not _HOST_PATTERN.fullmatch(address):
        raise InvalidInput(f"{clean(address, 80)!r} is neither a host name nor an address", field="address")
    if _LOCAL_PATTERN.match(address) and peer_address and not _LOCAL_PATTERN.match(peer_address):
        raise InvalidInput(
            f"{address} is this machine's own address, and the node is at {peer_address}: set address in agent.yaml",
            field="address",
        )
    return Node(
        name=node,
        address=address,
        cpus=whole(inventory.cpus, MAX_CPUS),
        cpu_model=clean(inventory.cpu_model, NAME_CHARS),
        memory_total_bytes=whole(inventory.memory_total_bytes, MAX_BYTES),
        disk_total_bytes=whole(inventory.disk_total_bytes, MAX_BYTES),
        cards=cards,
        engines=engines,
        numa_nodes=whole(inventory.numa_nodes, MAX_CPUS),
        cuda_toolkits=tuple(clean(version, 16) for version in inventory.cuda_toolkits[:MAX_TOOLKITS]),
        parts=tuple(_part(part) for part in inventory.parts[:MAX_PARTS]),
    )


def problems(inventory: wire.Inventory | None) -> tuple[str, ...]:
    """What the agent complains of; more than MAX_PROBLEMS are left out."""
    return tuple(clean(text) for text in inventory.problems[:MAX_PROBLEMS]) if inventory else ()


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
    if text and not _HOST_PATTERN.fullmatch(text):
        raise InvalidInput(f"{clean(text, 80)!r} is neither a host name nor an address", field=field)
    return text


def _uuids(uuids: Sequence[str], field: str) -> tuple[str, ...]:
    return tuple(identity(uuid, f"{field}[{i}]") for i, uuid in bounded(uuids, MAX_CARDS, field))


def _card(card: wire.Card, where: str) -> Card:
    return Card(
        uuid=identity(card.uuid, f"{where}.uuid"),
        index=whole(card.index, MAX_CPUS),
        name=clean(card.name, NAME_CHARS),
        gpu_class=clean(card.gpu_class, NAME_CHARS),
        memory_total_bytes=size_of(card.memory_total_bytes),
        compute_capability=clean(card.compute_capability, 16),
        driver=clean(card.driver, 64),
        healthy=card.healthy,
        problem=clean(card.problem),
        bus_id=clean(card.bus_id, 32),
        parent=identity(card.parent, f"{where}.parent") if card.parent else "",
        mig_profile=clean(card.mig_profile, 32),
        unified=card.unified,
        pcie_generation=whole(card.pcie_generation, 100) or None,
        pcie_width=whole(card.pcie_width, 100) or None,
        numa_node=card.numa_node if card.numa_node is not None and card.numa_node <= MAX_CPUS else None,
        nvlink_peers=tuple(
            identity(uuid, f"{where}.nvlink_peers[{i}]")
            for i, uuid in bounded(card.nvlink_peers, MAX_CARDS, f"{where}.nvlink_peers")
        )
        if card.nvlink_read
        else None,
    )


def _part(part: wire.MachinePart) -> MachinePart:
    return MachinePart(
        kind=clean(part.kind, 16),
        name=clean(part.name, NAME_CHARS),
        state=clean(part.state, 32),
        size_bytes=whole(part.size_bytes, MAX_BYTES),
        rate_bps=whole(part.rate_bps, MAX_BYTES),
        errors=size_of(part.errors),
        link_downs=size_of(part.link_downs),
    )


def _engine(engine: wire.Engine, where: str) -> EngineBuild:
    return EngineBuild(
        engine=identity(engine.name, f"{where}.name"),
        version=clean(engine.version, NAME_CHARS),
        usable=engine.usable,
        why_not=clean(engine.why_not),
        installing=clean(engine.installing),
    )


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
    if not port or not _HOST_PATTERN.fullmatch(host) or not plain or text.lower() != whole.lower():
        raise InvalidInput(f"{clean(text, 80)!r} is not http://HOST:PORT or http://HOST:PORT/r/NAME", field=field)
    if host.startswith(("169.254.", "fe80:", "0.")) or host == "::":
        raise InvalidInput(f"{host} is no address routers could use", field=field)
    return text
