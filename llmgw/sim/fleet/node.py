"""One simulated node: what an agent tells, made up; what it is ordered, carried out. The link under it is the agent's.

Orders are idempotent by shard id, as the protocol wants: a known shard reports its state, an unknown one is stopped.
"""

import logging
import os
import random

import trio

import llmgw
from agent.identity import Identity
from agent.link import LinkTimes
from agent.loads import Teller
from llmgw.core.layout import AgentLayout
from llmgw.core.processes import boot_id
from llmgw.core.units import plural
from llmgw.sim.fleet.cards import CardModel
from llmgw.sim.fleet.hall import Hall
from llmgw.sim.fleet.link import TIMES, SilentLink
from llmgw.sim.fleet.load import CardFigures, CardLoad
from llmgw.sim.fleet.logs import AGENT, LogBook
from llmgw.sim.fleet.replica import SimReplica
from llmgw.sim.fleet.roster import NodePlan
from llmgw.sim.fleet.telling import card_message, engine_messages, part_messages, sensors_message, wear_message
from llmgw.wire.llmgw.v1 import (
    AgentMessage,
    FetchProgress,
    Hello,
    Inventory,
    ServerMessage,
    ShardState,
    ShardStatus,
    StartShard,
)

log = logging.getLogger("llmgw.sim.fleet")

OUTBOUND_MESSAGES = 1024
"""Messages on their way to the link, which takes them whether it is connected or not."""
INBOUND_MESSAGES = 256
MAX_SHARDS = 256
"""Shards a node takes; more are refused."""
SLOW_TELLING_S = 2.5
"""A slow node tells what happened this much later."""
FIRST_PID = 100_000


class SimNode:
    """A node of the fleet. `run` lives inside the agent's `link_loop()`."""

    def __init__(self, plan: NodePlan, layout: AgentLayout, *, hall: Hall, address: str, seed: int) -> None:
        """Raises IdentityError when the node has not joined."""
        self.plan = plan
        self._hall = hall
        self._address = address
        self._chance = random.Random(f"{seed}/{plan.name}")
        self._outbound, link_outbound = trio.open_memory_channel[AgentMessage](OUTBOUND_MESSAGES)
        link_inbound, self._inbound = trio.open_memory_channel[ServerMessage](INBOUND_MESSAGES)
        times = TIMES if plan.silent else LinkTimes()
        self.link = SilentLink(layout, hello=self._hello, outbound=link_outbound, inbound=link_inbound, times=times)
        self._logs = LogBook(self._send)
        self._shards: dict[str, SimReplica] = {}
        self._cached: dict[str, int] = {}
        """Sources fetched, with their bytes."""
        self._nursery: trio.Nursery | None = None
        self._loads = {card.uuid: CardLoad(card.model, self._chance) for card in plan.cards}
        self._sampled_at = 0.0
        self._cpu_percent = 1.0
        self._told: object = None
        self._loads_told = Teller()
        self._next_pid = FIRST_PID + plan.index

    @property
    def identity(self) -> Identity:
        """Its place in the cluster."""
        return self.link.identity

    @property
    def replicas(self) -> int:
        """Replicas it has, in whatever state."""
        return len(self._shards)

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Carry out orders until cancelled; the link is kept up by whoever owns the node."""
        self._sampled_at = trio.current_time()
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            task_status.started()
            async for message in self._inbound:
                self._carry_out(message)

    def sense(self, *, asked: bool = False) -> None:
        """Sample every card and tell the figures, if they are others than the last or somebody `asked`."""
        now = trio.current_time()
        elapsed_s, self._sampled_at = now - self._sampled_at, now
        figures = self._sample(elapsed_s)
        told = (figures, round(self._cpu_percent), sum(self._cached.values()))
        if (told == self._told and not asked) or not self.link.connected:
            return
        first, self._told = self._told is None, told
        message = sensors_message(
            self.plan,
            figures,
            with_uuids=first,
            cpu_percent=self._cpu_percent,
            fetched_bytes=sum(self._cached.values()),
        )
        self._send(AgentMessage(sensors=message))
        if first and self.plan.cards:
            self._send(AgentMessage(card_wear=wear_message(self.plan)))

    def tell_loads(self) -> None:
        """Tell what its engines say of their work, as an agent does."""
        if self.link.connected:
            loads = {shard_id: load for shard_id, shard in self._shards.items() if (load := shard.load()) is not None}
            message = self._loads_told.message(loads, trio.current_time())
            if message is not None:
                self._send(AgentMessage(engine_loads=message))

    def _sample(self, elapsed_s: float) -> tuple[CardFigures, ...]:
        streams = {shard_id: shard.streams(elapsed_s) for shard_id, shard in self._shards.items()}
        self._cpu_percent = min(100.0, 1.0 + 400.0 * sum(streams.values()) / self.plan.cpus)
        return tuple(
            self._loads[card.uuid].sample(
                streams=sum(streams[shard.id] for shard in held),
                slots=sum(max(1, shard.spec.slots) for shard in held),
                held_bytes=sum(shard.spec.memory_bytes for shard in held if shard.engine is not None),
            )
            for card in self.plan.cards
            for held in [[s for s in self._shards.values() if card.uuid in s.spec.card_uuids]]
        )

    def _hello(self) -> Hello:
        self._told = None
        self._loads_told.forget()
        return Hello(
            agent_version=llmgw.__version__,
            boot_id=boot_id(),
            inventory=self._inventory(),
            shards=[shard.status(with_spec=True) for shard in self._shards.values()],
            simulated=True,
            pid=os.getpid(),
            takes_samples=True,
        )

    def _inventory(self) -> Inventory:
        plan = self.plan
        return Inventory(
            address=self._address,
            cpus=plan.cpus,
            cpu_model=plan.cpu_model,
            memory_total_bytes=plan.memory_bytes,
            disk_total_bytes=plan.disk_bytes,
            kernel="simulated",
            os="simulated",
            cards=[card_message(card) for card in plan.cards],
            engines=engine_messages(),
            numa_nodes=2,
            parts=part_messages(plan),
        )

    def _carry_out(self, message: ServerMessage) -> None:
        if message.welcome is not None:
            self._logs.cancel_all()
            self._logs.write(AGENT, f"connected to {self.link.connected_to or 'a control plane'} (simulated agent)")
            for shard in self._shards.values():
                self._tell(shard)
        elif message.start_shard is not None:
            self._start(message.start_shard)
        elif message.stop_shard is not None:
            known = self._known(message.stop_shard.shard_id)
            if known is not None:
                self._logs.write(known.id, f"stopping: {message.stop_shard.reason}")
                known.stop()
        elif message.drain_shard is not None:
            known = self._known(message.drain_shard.shard_id)
            if known is not None:
                known.drain(deadline_s=message.drain_shard.deadline_s, reason=message.drain_shard.reason)
        elif message.take_sample is not None:
            self.sense(asked=True)
        elif message.log_request is not None:
            self._logs.answer(message.log_request)
        elif message.log_cancel is not None:
            self._logs.cancel(message.log_cancel.request_id)

    def _known(self, shard_id: str) -> SimReplica | None:
        """The shard of that id; one that is not here is told to be stopped."""
        shard = self._shards.get(shard_id)
        if shard is None:
            self._send(AgentMessage(shard_status=ShardStatus(shard_id=shard_id, state=ShardState.STOPPED)))
        return shard

    def _start(self, order: StartShard) -> None:
        spec = order.spec
        if spec is None or self._nursery is None:
            return
        if spec.shard_id in self._shards:
            self._tell(self._shards[spec.shard_id])
            return
        if len(self._shards) >= MAX_SHARDS:
            refusal = ShardStatus(
                shard_id=spec.shard_id, state=ShardState.FAILED, message=f"this node has {MAX_SHARDS} shards already"
            )
            self._send(AgentMessage(shard_status=refusal))
            return
        self._next_pid += 1
        shard = SimReplica(
            spec,
            key=order.engine_key,
            hall=self._hall,
            card=self._card_model(spec.card_uuids),
            slow=self.plan.slow,
            pid=self._next_pid,
            changed=self._tell,
            progressed=self._progressed,
            write=lambda text: self._logs.write(spec.shard_id, text),
        )
        self._shards[shard.id] = shard
        self._logs.write(AGENT, f"start {shard.id} of {spec.model} on {plural(len(spec.card_uuids), 'card')}")
        self._tell(shard)
        self._nursery.start_soon(self._live, shard)

    def _card_model(self, uuids: list[str]) -> CardModel | None:
        return next((card.model for card in self.plan.cards if card.uuid in uuids), None)

    async def _live(self, shard: SimReplica) -> None:
        await shard.run(cached=shard.spec.source in self._cached)
        self._shards.pop(shard.id, None)
        self._logs.write(AGENT, f"{shard.id} ended")
        self._logs.forget(shard.id)

    def _tell(self, shard: SimReplica) -> None:
        """Report a shard as it is by the time it is told: a slow node reports late, and never an older state last."""
        if shard.state is ShardState.READY:
            self._cached.setdefault(shard.spec.source, shard.weights_bytes)
        if self.plan.slow and self._nursery is not None:
            self._nursery.start_soon(self._tell_late, shard)
        else:
            self._send(AgentMessage(shard_status=shard.status()))

    async def _tell_late(self, shard: SimReplica) -> None:
        await trio.sleep(SLOW_TELLING_S)
        self._send(AgentMessage(shard_status=shard.status()))

    def _progressed(self, progress: FetchProgress) -> None:
        self._send(AgentMessage(fetch_progress=progress))

    def _send(self, message: AgentMessage) -> None:
        """Hand a message to the link, which takes it at once."""
        try:
            self._outbound.send_nowait(message)
        except trio.WouldBlock:
            log.warning("%s has %s messages waiting; one is dropped", self.plan.name, OUTBOUND_MESSAGES)
