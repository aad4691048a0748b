"""A real `llmgw agent` process beside a real agent port, and what the port heard of its shards."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path

import trio

from llmgw.agents.bridge import Limits
from llmgw.agents.sessions import NodeConnected, NodeMessage
from llmgw.wire.llmgw.v1 import (
    CardWear,
    FetchProgress,
    Hello,
    LogLines,
    LogRequest,
    Sensors,
    ServerMessage,
    ShardSpec,
    ShardState,
    ShardStatus,
    StartShard,
    StopShard,
)
from tests.support.agentport import Port, enrolled, make_port, running

ROOT = Path(__file__).resolve().parents[2]
DEADLINE_S = 60.0
KEY = "ek-0123456789abcdef"


def free_ports(count: int = 20) -> str:
    """A range of ports nobody listens on now, as agent.yaml writes it."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        first = min(int(probe.getsockname()[1]), 65535 - count)
    return f"{first}-{first + count - 1}"


def sim_spec(
    shard_id: str = "r1/0", *, args: tuple[str, ...] = (), source: str = "sim:rate=0,prefill-ms=0"
) -> ShardSpec:
    """A shard of the sim engine serving the model `m`."""
    return ShardSpec(
        shard_id=shard_id,
        replica_id=shard_id.rpartition("/")[0],
        model="m",
        profile="cpu",
        engine="sim",
        spec_hash="h",
        source=source,
        context_length=4096,
        slots=4,
        tp=1,
        args=list(args),
    )


@dataclass(kw_only=True)
class Node:
    """One agent and what is known of it."""

    port: Port
    directory: Path
    name: str
    ports: str
    process: subprocess.Popen[bytes] | None = None
    hellos: list[Hello] = field(default_factory=list)
    statuses: dict[str, ShardStatus] = field(default_factory=dict)
    history: list[ShardStatus] = field(default_factory=list)
    sensors: list[Sensors] = field(default_factory=list)
    logs: list[LogLines] = field(default_factory=list)
    wear: list[CardWear] = field(default_factory=list)
    fetches: list[FetchProgress] = field(default_factory=list)
    settings: dict[str, object] = field(default_factory=dict)
    """Keys of agent.yaml, from the next start on."""
    program: tuple[str, ...] = ("-m", "agent.main")
    """What Python runs, before the path of agent.yaml."""
    heard: trio.Event = field(default_factory=trio.Event)

    def start(self, **environment: str) -> None:
        """Start the agent's process."""
        config = self.directory / "agent.yaml"
        config.write_text(json.dumps({"data": str(self.directory), "engine_ports": self.ports, **self.settings}))
        with (self.directory / "stderr.log").open("ab") as stderr:
            self.process = subprocess.Popen(
                [sys.executable, *self.program, str(config)],
                cwd=ROOT,
                env={**os.environ, **environment},
                stdin=subprocess.DEVNULL,
                stdout=stderr,
                stderr=stderr,
            )

    def end(self, number: signal.Signals = signal.SIGKILL) -> int:
        """Signal the agent and wait for its end; the exit code."""
        assert self.process is not None
        if self.process.poll() is None:
            self.process.send_signal(number)
        return self.process.wait(timeout=DEADLINE_S)

    def order(self, message: ServerMessage) -> None:
        """Send an order; the node must be connected."""
        assert self.port.server.send(self.name, message)

    def start_shard(self, spec: ShardSpec, *, key: str = KEY) -> None:
        """Order a shard."""
        self.order(ServerMessage(start_shard=StartShard(spec=spec, engine_key=key)))

    def stop_shard(self, shard_id: str, *, grace_s: float = 5.0) -> None:
        """Order its end."""
        self.order(ServerMessage(stop_shard=StopShard(shard_id=shard_id, grace_s=grace_s, reason="test")))

    def ask_log(self, request_id: str, shard_id: str, *, lines: int = 100, follow: bool = False) -> None:
        """Ask for a log."""
        request = LogRequest(request_id=request_id, shard_id=shard_id, tail_lines=lines, follow=follow)
        self.order(ServerMessage(log_request=request))

    async def until(self, condition: Callable[[], bool], *, deadline_s: float = DEADLINE_S) -> None:
        """Wait until what was heard fulfils `condition`."""
        with trio.move_on_after(deadline_s) as scope:
            while not condition():
                await self.heard.wait()
        assert not scope.cancelled_caught, f"not heard within {deadline_s} s; last: {list(self.statuses.values())}"

    async def state(self, shard_id: str, state: ShardState, *, deadline_s: float = DEADLINE_S) -> ShardStatus:
        """Wait for a shard's state."""
        await self.until(
            lambda: shard_id in self.statuses and self.statuses[shard_id].state == state, deadline_s=deadline_s
        )
        return self.statuses[shard_id]

    async def connected(self, *, count: int = 1, deadline_s: float = DEADLINE_S) -> Hello:
        """Wait for the `count`-th Hello."""
        await self.until(lambda: len(self.hellos) >= count, deadline_s=deadline_s)
        return self.hellos[-1]

    async def listen(self, *, task_status: trio.TaskStatus[None]) -> None:
        """Take in what the port hears, for ever."""
        task_status.started()
        async for event in self.port.server.events:
            if isinstance(event, NodeConnected):
                self.hellos.append(event.hello)
                self.statuses = {status.shard_id: status for status in event.hello.shards}
            elif isinstance(event, NodeMessage):
                self._hear(event)
            self.heard.set()
            self.heard = trio.Event()

    def _hear(self, event: NodeMessage) -> None:
        message = event.message
        if message.shard_status is not None:
            self.history.append(message.shard_status)
            self.statuses[message.shard_status.shard_id] = message.shard_status
        if message.sensors is not None:
            self.sensors.append(message.sensors)
        if message.card_wear is not None:
            self.wear.append(message.card_wear)
        if message.fetch_progress is not None:
            self.fetches.append(message.fetch_progress)
        if message.log_lines is not None:
            self.logs.append(message.log_lines)


@contextlib.asynccontextmanager
async def running_node(directory: Path, *, name: str = "n1") -> AsyncIterator[Node]:
    """An agent process joined to an agent port of its own cluster. At the end, whatever bears its mark is ended."""
    port = make_port(directory / "server", limits=Limits())
    async with running(port):
        data = directory / name
        enrolled(port, data, name)
        node = Node(port=port, directory=data, name=name, ports=free_ports())
        async with trio.open_nursery() as nursery:
            await nursery.start(node.listen)
            try:
                node.start()
                await node.connected()
                yield node
            finally:
                node.end()
                end_marked(port.authority.cluster_id)
                nursery.cancel_scope.cancel()


def end_marked(cluster_id: str) -> None:
    """Kill the engines a test's cluster left."""
    from agent.process import marked_processes, signal_every

    for _, mark, _ in list(marked_processes()):
        if mark.startswith(f"{cluster_id}/"):
            signal_every(mark, signal.SIGKILL)
