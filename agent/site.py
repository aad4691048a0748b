"""What all shards of this node share, and how one of them is made ready to be started."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from agent.engines.base import Command, Engine, Launch, key_config_of
from agent.engines.environment import build_environment, mark
from agent.fetches import Fetches
from agent.identity import write_file
from agent.journal import Entry, Journal, file_name
from agent.output import length_of
from agent.process import EngineProcess, spawn
from agent.shared import make_shared, token_of
from agent.state import Outbox
from llmgw.core.errors import InvalidInput, Unavailable
from llmgw.core.layout import AgentLayout
from llmgw.wire.llmgw.v1 import ShardSpec


def _unknown(_uuid: str) -> int | None:
    return None


@dataclass(frozen=True, kw_only=True)
class Site:
    """What all shards of this node share."""

    layout: AgentLayout
    cluster_id: str
    node: str
    address: str
    """Host under which routers reach engines."""
    host: str
    """Address engines listen on."""
    ports: range
    cpus: int
    operator_env: Mapping[str, str]
    engines: Mapping[str, Engine]
    fetches: Fetches
    journal: Journal
    outbox: Outbox
    card_bytes: Callable[[str], int | None] = _unknown
    """Memory of a card by UUID, where it is told."""
    card_index: Callable[[str], int | None] = _unknown
    """Index of a whole card by UUID."""
    ports_in_use: set[int] = field(default_factory=set)
    """Ports this node's shards have; a shard notes and releases its own."""

    def directory(self, shard_id: str) -> Path:
        """A shard's directory; raises InvalidInput for an id that no server gives."""
        return self.layout.shards / file_name(shard_id)

    def smallest_card(self, spec: ShardSpec) -> int:
        """Memory of the smallest of a shard's cards; 0 where one of them does not tell."""
        return min((self.card_bytes(uuid) or 0 for uuid in spec.card_uuids), default=0)

    def card_names(self, spec: ShardSpec) -> list[str]:
        """A shard's cards as CUDA is told of them: by UUID, or by index to a runtime that spans nodes.

        Raises InvalidInput for a card that is not here, or is part of one.
        """
        if not spec.places:
            return list(spec.card_uuids)
        indexes = {uuid: self.card_index(uuid) for uuid in spec.card_uuids}
        missing = next((uuid for uuid, index in indexes.items() if index is None), None)
        if missing is not None:
            raise InvalidInput(f"{missing} is no whole card of this node", field="card_uuids")
        return [str(index) for index in indexes.values()]

    def output(self, shard_id: str) -> Path:
        """What a shard's engine prints."""
        return self.directory(shard_id) / "output.log"

    def key_file(self, shard_id: str) -> Path:
        """0600; the key of a shard's engine."""
        return self.directory(shard_id) / "engine.key"


@dataclass(frozen=True, kw_only=True)
class Prepared:
    """An engine that can be started now."""

    entry: Entry
    """What the journal has to know before the start."""
    command: Command
    environment: Mapping[str, str]
    directory: Path
    output: Path

    def spawn(self) -> EngineProcess:
        """Start it; raises Unavailable."""
        shard_mark = mark(self.entry.cluster_id, self.entry.shard_id)
        argv = self.command.argv
        try:
            return spawn(argv, env=self.environment, cwd=self.directory, output=self.output, mark=shard_mark)
        except OSError as error:
            raise Unavailable(f"{argv[0]} cannot be started: {error.strerror}") from error


def prepare(
    site: Site,
    spec: ShardSpec,
    engine: Engine,
    *,
    key: str,
    weights: Path | None,
    port: int,
    restarts: int,
    further: tuple[int, ...] = (),
    head: str = "",
) -> Prepared:
    """Directory, key file, command line and environment of one start. Blocking.

    Raises Unavailable when the disk does not allow it, InvalidInput when the engine cannot load the weights.
    """
    shard_id = spec.shard_id
    directory, key_file = site.directory(shard_id), site.key_file(shard_id)
    launch = Launch(
        spec=spec,
        weights=weights,
        host=site.host,
        port=port,
        key_file=key_file,
        cpus=site.cpus,
        card_bytes=site.smallest_card(spec),
        cache=site.layout.data / "engine-cache" / engine.name,
        further=further,
        head=head,
        shared=make_shared(spec.replica_id, weights) if spec.places else None,
    )
    command = engine.command(launch)
    try:
        for made in (directory, *command.directories):
            made.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_file(key_file, f"{key}\n".encode(), mode=0o600)
        if command.key_text:
            write_file(key_config_of(launch), command.key_text.replace("{key}", key).encode(), mode=0o600)
    except OSError as error:
        raise Unavailable(f"{directory} cannot be written: {error.strerror}") from error
    environment = build_environment(
        cluster_id=site.cluster_id,
        node=site.node,
        shard_id=shard_id,
        home=directory,
        card_uuids=site.card_names(spec),
        operator=site.operator_env,
        engine={
            **command.env,
            **({command.key_variable: key} if command.key_variable else {}),
            **({command.token_variable: token_of(key)} if command.token_variable else {}),
        },
        profile=spec.env,
    )
    output = site.output(shard_id)
    entry = Entry(
        shard_id=shard_id,
        cluster_id=site.cluster_id,
        host=command.host or site.host,
        port=port,
        # A worker of several shards answers no request.
        private=bool(spec.rank) or (bool(command.host) and command.host != site.host),
        key_file=str(key_file),
        spec=spec.to_json(),
        restarts=restarts,
        further=further,
        patience_s=command.patience_s,
        output_at=length_of(output),
    )
    return Prepared(entry=entry, command=command, environment=environment, directory=directory, output=output)
