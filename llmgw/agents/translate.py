"""Wire to core and back. Nothing a node says enters the cluster's state unless it is plausible and harmless.

Counts and names over their limits refuse the whole message (InvalidInput: the session ends); figures that cannot be
(NaN, negative, over a limit) count as not reported; texts lose control characters and what is over their length.
"""

import math
import re
from collections.abc import Sequence
from typing import TypeVar
from urllib.parse import urlsplit

from llmgw.core.catalog import Profile
from llmgw.core.cluster import Card, EngineBuild, FetchProgress, Node, Replica, ShardState
from llmgw.core.errors import InvalidInput
from llmgw.core.figures import CardFigures, NodeFigures
from llmgw.core.snapshot import CatalogEntry
from llmgw.core.text import safe
from llmgw.wire.llmgw import v1 as wire

MAX_CARDS = 64
MAX_SHARDS = 256
MAX_ENGINES = 32
MAX_PROBLEMS = 16
MAX_LOG_LINES = 1000
MAX_BYTES = 2**50
"""1 PiB: no card, memory or disk of a node is larger."""
MAX_CPUS = 65_536
MAX_PID = 2**22
MAX_TOKENS = 2**31
LINE_CHARS = 4096
TEXT_CHARS = 500
NAME_CHARS = 128

T = TypeVar("T")
_ID_PATTERN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/@+=-]{0,254}")
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
_PHASES = frozenset({"mirror", "fetching", "checking", "done", "failed"})


def node_from_hello(hello: wire.Hello, *, node: str, peer_address: str) -> Node:
    """A node as it introduces itself; `node` is the name in its certificate. Raises InvalidInput."""
    inventory = hello.inventory or wire.Inventory()
    described = node_from_inventory(inventory, node=node, peer_address=peer_address)
    return Node(
        name=node,
        address=described.address,
        agent_version=clean(hello.agent_version, NAME_CHARS),
        agent_pid=_int(hello.pid, MAX_PID),
        boot_id=clean(hello.boot_id, NAME_CHARS),
        cpus=described.cpus,
        cpu_model=described.cpu_model,
        memory_total_bytes=described.memory_total_bytes,
        memory_available_bytes=described.memory_total_bytes,
        disk_total_bytes=described.disk_total_bytes,
        cards=described.cards,
        engines=described.engines,
        simulated=hello.simulated,
    )


def node_from_inventory(inventory: wire.Inventory, *, node: str, peer_address: str) -> Node:
    """The parts of a node that an inventory describes. Raises InvalidInput."""
    cards = tuple(_card(card, f"cards[{i}]") for i, card in _bounded(inventory.cards, MAX_CARDS, "cards"))
    if len({card.uuid for card in cards}) != len(cards):
        raise InvalidInput("two cards have the same uuid", field="cards")
    engines = tuple(_engine(e, f"engines[{i}]") for i, e in _bounded(inventory.engines, MAX_ENGINES, "engines"))
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
        cpus=_int(inventory.cpus, MAX_CPUS),
        cpu_model=clean(inventory.cpu_model, NAME_CHARS),
        memory_total_bytes=_int(inventory.memory_total_bytes, MAX_BYTES),
        disk_total_bytes=_int(inventory.disk_total_bytes, MAX_BYTES),
        cards=cards,
        engines=engines,
    )


def problems(inventory: wire.Inventory | None) -> tuple[str, ...]:
    """What the agent complains of; more than MAX_PROBLEMS are left out."""
    return tuple(clean(text) for text in inventory.problems[:MAX_PROBLEMS]) if inventory else ()


def replicas_from_hello(hello: wire.Hello, *, node: str) -> tuple[Replica, ...]:
    """Everything the node runs. Raises InvalidInput, also for a shard named twice."""
    found = tuple(
        replica_from_status(status, node=node, where=f"shards[{i}]")
        for i, status in _bounded(hello.shards, MAX_SHARDS, "shards")
    )
    if len({replica.id for replica in found}) != len(found):
        raise InvalidInput("a shard is named twice", field="shards")
    return found


def replica_from_status(status: wire.ShardStatus, *, node: str, where: str = "shard_status") -> Replica:
    """A shard's state; without `spec` the replica's model is empty: only one known already may be updated by it."""
    shard_id = _id(status.shard_id, f"{where}.shard_id")
    state = _STATES.get(status.state)
    if state is None:
        raise InvalidInput("the state is none that this version knows", field=f"{where}.state")
    spec = status.spec or wire.ShardSpec()
    replica_id = shard_id.removesuffix("/0")
    if spec.replica_id not in ("", replica_id) or spec.shard_id not in ("", shard_id):
        raise InvalidInput(f"shard {shard_id} is described as another's", field=f"{where}.spec")
    return Replica(
        id=replica_id,
        node=node,
        model=_id(spec.model, f"{where}.spec.model") if status.spec else "",
        profile=_id(spec.profile, f"{where}.spec.profile") if status.spec else "",
        engine=_id(spec.engine, f"{where}.spec.engine") if status.spec else "",
        spec_hash=clean(spec.spec_hash, NAME_CHARS),
        state=state,
        cards=tuple(
            _id(uuid, f"{where}.spec.card_uuids[{i}]")
            for i, uuid in _bounded(spec.card_uuids, MAX_CARDS, f"{where}.spec.card_uuids")
        ),
        memory_bytes=_int(spec.memory_bytes, MAX_BYTES),
        endpoint=_endpoint(status.endpoint, f"{where}.endpoint"),
        pid=_int(status.pid, MAX_PID),
        message=clean(status.message),
        context_length=_int(spec.context_length, MAX_TOKENS),
        slots=_int(spec.slots, MAX_TOKENS),
        restarts=_int(status.restarts, MAX_TOKENS),
        adopted=status.adopted,
    )


def check_endpoint(replica: Replica, address: str) -> None:
    """Refuse a replica that would send clients' requests elsewhere than to its node; raises InvalidInput."""
    host = urlsplit(replica.endpoint).hostname or ""
    if replica.endpoint and host != address.lower():
        raise InvalidInput(f"replica {replica.id} is said to answer at {host}, but its node's address is {address}")


def figures_from(sensors: wire.Sensors, uuids: Sequence[str]) -> tuple[NodeFigures, tuple[str, ...]]:
    """Sensor readings, and the order of cards that holds from here on; `uuids` is the one that held so far.

    Raises InvalidInput for a column that does not have one entry a card.
    """
    order = tuple(uuids)
    if sensors.uuids:
        order = tuple(_id(uuid, f"uuids[{i}]") for i, uuid in _bounded(sensors.uuids, MAX_CARDS, "uuids"))
    used = _column(sensors.memory_used_bytes, len(order), "memory_used_bytes", MAX_BYTES)
    utilization = _column(sensors.utilization_percent, len(order), "utilization_percent", 100.0)
    temperature = _column(sensors.temperature_c, len(order), "temperature_c", 300.0)
    power = _column(sensors.power_w, len(order), "power_w", 20_000.0)
    sm_active = _column(sensors.sm_active_percent, len(order), "sm_active_percent", 100.0)
    power_limit = _column(sensors.power_limit_w, len(order), "power_limit_w", 20_000.0)
    memory_temperature = _column(sensors.memory_temperature_c, len(order), "memory_temperature_c", 300.0)
    cards = {
        uuid: CardFigures(
            memory_used_bytes=None if (value := used[i]) is None else int(value),
            utilization_percent=utilization[i],
            temperature_c=temperature[i],
            power_w=power[i],
            sm_active_percent=sm_active[i],
            power_limit_w=power_limit[i],
            memory_temperature_c=memory_temperature[i],
        )
        for i, uuid in enumerate(order)
    }
    figures = NodeFigures(
        cpu_percent=_figure(sensors.cpu_percent, 100.0),
        load_1m=_figure(sensors.load_1m, 1e6),
        memory_available_bytes=_size(sensors.memory_available_bytes),
        disk_free_bytes=_size(sensors.disk_free_bytes),
        cards=cards,
    )
    return figures, order


def progress_from(message: wire.FetchProgress) -> tuple[tuple[str, ...], FetchProgress]:
    """Ids of the replicas that wait for a download, and how far it is. Raises InvalidInput."""
    waiting = tuple(
        _id(shard, f"shard_ids[{i}]").removesuffix("/0")
        for i, shard in _bounded(message.shard_ids, MAX_SHARDS, "shard_ids")
    )
    done, total = _int(message.done_bytes, MAX_BYTES), _int(message.total_bytes, MAX_BYTES)
    phase = message.phase if message.phase in _PHASES else ""
    return waiting, FetchProgress(phase=phase, done_bytes=min(done, total) if total else done, total_bytes=total)


def log_lines_from(message: wire.LogLines) -> tuple[str, ...]:
    """Log lines, each one line without control characters. Raises InvalidInput for too many in one message."""
    return tuple(clean(line, LINE_CHARS) for _, line in _bounded(message.lines, MAX_LOG_LINES, "lines"))


def start_shard(replica: Replica, entry: CatalogEntry, profile: Profile, *, engine_key: str) -> wire.ServerMessage:
    """The order to run a replica; `engine_key` is that replica's own."""
    spec = wire.ShardSpec(
        shard_id=shard_id_of(replica.id),
        replica_id=replica.id,
        model=replica.model,
        profile=profile.name,
        engine=profile.engine,
        spec_hash=replica.spec_hash,
        source=entry.model.source,
        card_uuids=list(replica.cards),
        memory_bytes=replica.memory_bytes,
        context_length=replica.context_length,
        slots=replica.slots,
        tp=profile.tp,
        args=list(profile.args),
        env=dict(profile.env),
    )
    return wire.ServerMessage(start_shard=wire.StartShard(spec=spec, engine_key=engine_key))


def stop_shard(replica_id: str, reason: str, grace_s: float) -> wire.ServerMessage:
    """The order to end a replica: SIGTERM, then SIGKILL after `grace_s`."""
    order = wire.StopShard(shard_id=shard_id_of(replica_id), reason=reason, grace_s=grace_s)
    return wire.ServerMessage(stop_shard=order)


def drain_shard(replica_id: str, reason: str, deadline_s: float) -> wire.ServerMessage:
    """The order to let a replica's requests end within `deadline_s`."""
    order = wire.DrainShard(shard_id=shard_id_of(replica_id), reason=reason, deadline_s=deadline_s)
    return wire.ServerMessage(drain_shard=order)


def shard_id_of(replica_id: str) -> str:
    """The one shard of a replica."""
    return f"{replica_id}/0"


def clean(text: str, limit: int = TEXT_CHARS) -> str:
    """Text from a node as one harmless line of at most `limit` characters."""
    shown = safe(text[: limit + 1])
    return shown if len(shown) <= limit else shown[: limit - 1] + "…"


def _card(card: wire.Card, where: str) -> Card:
    return Card(
        uuid=_id(card.uuid, f"{where}.uuid"),
        index=_int(card.index, MAX_CPUS),
        name=clean(card.name, NAME_CHARS),
        gpu_class=clean(card.gpu_class, NAME_CHARS),
        memory_total_bytes=_size(card.memory_total_bytes),
        compute_capability=clean(card.compute_capability, 16),
        driver=clean(card.driver, 64),
        healthy=card.healthy,
        problem=clean(card.problem),
    )


def _engine(engine: wire.Engine, where: str) -> EngineBuild:
    return EngineBuild(
        engine=_id(engine.name, f"{where}.name"),
        version=clean(engine.version, NAME_CHARS),
        usable=engine.usable,
        why_not=clean(engine.why_not),
    )


def _bounded(items: Sequence[T], limit: int, field: str) -> Sequence[tuple[int, T]]:
    if len(items) > limit:
        raise InvalidInput(f"{len(items)} entries are over the limit of {limit}", field=field)
    return tuple(enumerate(items))


def _id(text: str, field: str) -> str:
    if not _ID_PATTERN.fullmatch(text) or any(part in ("", ".", "..") for part in text.split("/")):
        raise InvalidInput(f"{clean(text, 80)!r} is not an id: letters, digits and ._:/@+=- , 255 at most", field=field)
    return text


def _int(value: int, limit: int) -> int:
    """`value`, or 0 ("not said") when it cannot be."""
    return value if 0 <= value <= limit else 0


def _size(value: int | None) -> int | None:
    return value if value is not None and 0 <= value <= MAX_BYTES else None


def _figure(value: float | None, limit: float) -> float | None:
    return value if value is not None and math.isfinite(value) and 0.0 <= value <= limit else None


def _column(values: Sequence[float], cards: int, field: str, limit: float) -> Sequence[float | None]:
    if not values:
        return [None] * cards
    if len(values) != cards:
        raise InvalidInput(f"{len(values)} entries for {cards} cards", field=field)
    return [_figure(value, limit) for value in values]


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
