"""A shard's engine on this node: its ports, its entry in the journal and its process, of which there is one at a time.

Whatever happens to the agent, the journal says what runs.
"""

import logging
from pathlib import Path

import msgspec
import trio

from agent.engines.base import Engine
from agent.engines.compute import compute_message
from agent.engines.ray import further_ports
from agent.journal import Entry
from agent.output import lines_since
from agent.ports import free_port, free_ports
from agent.process import EngineProcess
from agent.shared import remove_shared
from agent.site import Site, prepare
from llmgw.core.compute import Compute
from llmgw.core.errors import LlmgwError, Unavailable
from llmgw.wire.llmgw.v1 import ComputeSaid, ShardSpec

log = logging.getLogger("agent.engine_run")

RETRY_END_S = 1.0
"""Pause before an engine that could not be signalled is signalled again."""
MAX_START_BYTES = 1024 * 1024
"""Of what an engine printed until it was ready."""


class EngineRun:
    """What a shard holds while its engine runs, and gives back when it has ended."""

    def __init__(self, site: Site, spec: ShardSpec, *, key: str) -> None:
        self._site = site
        self._spec = spec
        self._key = key
        self._ports: frozenset[int] = frozenset()
        self.process: EngineProcess | None = None
        self.entry: Entry | None = None
        """As the journal has it; none while nothing is started."""

    @property
    def address(self) -> str:
        """Where other shards reach this one; where the engine listens, if there are no others."""
        return self._spec.places[self._spec.rank].address if self._spec.places else self._site.host

    @property
    def endpoint(self) -> str:
        """Where routers reach the engine; empty while there is none, or none for them."""
        if self.entry is None or self.entry.private:
            return ""
        host = f"[{self._site.address}]" if ":" in self._site.address else self._site.address
        return f"http://{host}:{self.entry.port}"

    @property
    def compute(self) -> ComputeSaid | None:
        """Where the engine that runs said that it computes; none while it is not ready, or does not say."""
        if self.process is None or self.entry is None or self.entry.compute is None:
            return None
        return compute_message(self.entry.compute)

    def take_over(self, entry: Entry, process: EngineProcess) -> None:
        """Hold what an earlier agent started."""
        self.entry, self.process = entry, process
        self._take_ports(entry.port, *entry.further)

    async def start(self, engine: Engine, *, weights: Path | None, restarts: int, head: str) -> None:
        """Start the engine, the intent journalled before; `note()` has to follow. Raises LlmgwError."""
        port, *further = self._choose_ports()
        prepared = await trio.to_thread.run_sync(
            lambda: prepare(
                self._site,
                self._spec,
                engine,
                key=self._key,
                weights=weights,
                port=port,
                restarts=restarts,
                further=tuple(further),
                head=head,
            )
        )
        self.entry = prepared.entry
        await self.note()
        # No checkpoint between these lines: a process that runs is known to the shard, whatever is cancelled after.
        self.process = prepared.spawn()
        self.entry = msgspec.structs.replace(self.entry, process=self.process.name)

    async def note(self) -> None:
        """Write the entry into the journal; raises Unavailable."""
        assert self.entry is not None
        try:
            await trio.to_thread.run_sync(self._site.journal.write, self.entry)
        except OSError as error:
            raise Unavailable(f"the journal cannot be written, so no engine is started: {error.strerror}") from error

    async def note_ready(self) -> None:
        """Keep it for the next agent that the engine was ready."""
        if self.entry is None or self.entry.ready:
            return
        self.entry = msgspec.structs.replace(self.entry, ready=True)
        try:
            await self.note()
        except Unavailable as error:
            # It runs and serves; at worst the next agent takes a moment longer to call it ready.
            log.warning("%s", error.message, extra={"shard": self._spec.shard_id})

    async def read_compute(self, engine: Engine) -> None:
        """At the first moment it is ready: where it said that it computes, kept with its entry.

        Not later, for what clients send may be in its log then.
        """
        entry, spec, says = self.entry, self._spec, engine.says_compute
        if says is None or entry is None or entry.ready or entry.output_at is None:
            return
        output, start = self._site.output(spec.shard_id), entry.output_at

        def read() -> Compute | None:
            lines = lines_since(output, start, max_bytes=MAX_START_BYTES)
            return says.report(lines, cards=len(spec.card_uuids), args=engine.check_args(spec.args, spec.env))

        try:
            said = await trio.to_thread.run_sync(read)
        except (OSError, LlmgwError) as error:
            # It serves, wherever it computes.
            log.warning("An engine's log could not be read: %s", error, extra={"shard": spec.shard_id})
            return
        self.entry = msgspec.structs.replace(entry, compute=said)

    async def end(self, grace_s: float) -> None:
        """Return when neither the engine nor anything it started is left: it would hold cards, memory or ports."""
        while self.process is not None:
            try:
                await self.process.stop(grace_s=grace_s)
            except OSError as error:
                # Out of descriptors or the like: what runs is not forgotten, its end is tried again.
                log.warning("An engine could not be ended yet: %s", error, extra={"shard": self._spec.shard_id})
                await trio.sleep(RETRY_END_S)
            else:
                self.let_go()

    async def forget(self) -> None:
        """Nothing runs any more: the journal and the key go, the output stays for those who ask why."""
        shard_id = self._spec.shard_id
        try:
            self._site.journal.remove(shard_id)
            self._site.key_file(shard_id).unlink(missing_ok=True)
        except OSError as error:
            # An entry without a process behind it is found out at the next start.
            log.warning("The journal could not be tidied: %s", error, extra={"shard": shard_id})
        self.entry = None
        self._take_ports()
        if self._spec.places:
            await trio.to_thread.run_sync(remove_shared, self._spec.replica_id)

    def let_go(self) -> None:
        """Stop watching the process, which goes on if it has not ended."""
        if self.process is not None:
            self.process.close()
            self.process = None

    def _choose_ports(self) -> tuple[int, ...]:
        """The port it is asked at and the further ones, noted without a checkpoint between: no two shards get the same.

        Raises Unavailable.
        """
        site, shard_id = self._site, self._spec.shard_id
        self._take_ports()
        # A worker of several shards is asked where the others reach it.
        host = self.address if self._spec.rank else site.host
        port = free_port(host, site.ports, taken=site.ports_in_use, hint=shard_id)
        self._take_ports(port)
        count = further_ports(self._spec)
        further = free_ports(self.address, site.ports, count, taken=site.ports_in_use, hint=shard_id)
        self._take_ports(port, *further)
        return (port, *further)

    def _take_ports(self, *ports: int) -> None:
        """Give back the ports it had and note those it has now."""
        self._site.ports_in_use.difference_update(self._ports)
        self._ports = frozenset(ports)
        self._site.ports_in_use.update(ports)
