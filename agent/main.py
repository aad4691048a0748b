"""The agent's process tree, top to bottom. What ends here is the agent: its engines go on unless it is told otherwise.

lock → take over engines → outbox, sensors, shards, their loads, logs → link → orders
"""

import logging
import signal
import ssl
import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path

import trio

import llmgw
from agent.config import AgentConfig, engine_address, load_agent_config
from agent.discovery.dcgm import Exporter
from agent.discovery.surveyor import Surveyor
from agent.discovery.traffic import TrafficMeter
from agent.engine_checks import CheckDesk
from agent.engines import known_engines
from agent.engines.base import Engine
from agent.fetches import Fetches
from agent.identity import Identity, load_identity
from agent.journal import Journal
from agent.link import Link
from agent.link_rpc import tls_context
from agent.loads import LoadService
from agent.lock import data_lock
from agent.logs import LogDesk
from agent.orders import Orders
from agent.provision.service import provisions_of
from agent.renewal import Renewal
from agent.sensors import Meter, SensorService
from agent.site import Site
from agent.state import Outbox
from agent.supervise import Supervisor
from agent.weights.cache import Cache
from llmgw.core import jsonlog
from llmgw.core.cluster import Card
from llmgw.core.errors import LlmgwError
from llmgw.core.layout import AgentLayout
from llmgw.core.processes import boot_id
from llmgw.wire.llmgw.v1 import AgentMessage, Hello, ServerMessage

log = logging.getLogger("agent")

OUTBOUND_MESSAGES = 64
"""Messages on their way to the link, which takes them whether it is connected or not."""
INBOUND_MESSAGES = 256
"""Orders on their way from the link; past that it reads no more from the stream."""
EXIT_GRACE_S = 10.0
"""Engines get so long after SIGTERM when they end with the agent."""


def main(config_path: Path) -> int:
    """Load `agent.yaml` and run the agent; the exit code. Refusals go to stderr."""
    try:
        return run(load_agent_config(config_path))
    except LlmgwError as error:
        print(f"llmgw agent: {error.message}", file=sys.stderr)
        return 1


def run(config: AgentConfig) -> int:
    """Run the agent until SIGTERM or SIGINT; the exit code. Refusals go to stderr."""
    layout = AgentLayout(data=config.data_path)
    try:
        for directory in (layout.data, layout.log, layout.shards, layout.weights):
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        with data_lock(layout.lock):
            jsonlog.setup(layout.log / "agent.log", process="agent", level=config.log_level)
            trio.run(_agent, config, layout, load_identity(layout))
    except (LlmgwError, OSError) as error:
        print(f"llmgw agent: {error}", file=sys.stderr)
        return 1
    return 0


async def _agent(config: AgentConfig, layout: AgentLayout, identity: Identity) -> None:
    """Everything the agent does; returns when it was told to end."""
    outbound, link_outbound = trio.open_memory_channel[AgentMessage](OUTBOUND_MESSAGES)
    link_inbound, inbound = trio.open_memory_channel[ServerMessage](INBOUND_MESSAGES)
    with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        outbox = Outbox(outbound)
        mirror_tls = _mirror_tls(layout)
        cache = Cache(layout.weights, mirror_url=identity.mirror_url, tls=mirror_tls)
        fetches = Fetches(cache, outbox)
        provisions = provisions_of(config, layout)
        engines = known_engines(config, provisions)
        address = engine_address(config, identity.servers)
        surveyor = Surveyor(config, layout, address=address, engines=engines)
        provisions.has_cards, provisions.on_change = (lambda: bool(surveyor.cards)), surveyor.soon
        provisions.machine.cards = lambda: surveyor.cards
        provisions.fetch, surveyor.installing = cache.fetch, provisions.installing
        await surveyor.look()
        supervisor = Supervisor(_site(config, layout, identity, address, surveyor, engines, fetches, outbox))
        await supervisor.take_over()
        surveyor.problems = supervisor.problems
        sensors = _sensors(config, layout, surveyor, supervisor, outbox)
        loads = LoadService(supervisor.serving, outbox)
        logs = LogDesk(layout, outbound)
        checks = CheckDesk(engines, outbound)
        link = Link(layout, hello=partial(_hello, surveyor, supervisor), outbound=link_outbound, inbound=link_inbound)
        renewal = Renewal(layout, connected_to=lambda: link.connected_to, contexts=(mirror_tls,))

        def welcomed() -> None:
            cache.mirror_url = link.identity.mirror_url
            sensors.tell_again()
            loads.tell_again()

        orders = Orders(
            inbound,
            supervisor=supervisor,
            logs=logs,
            checks=checks,
            fetches=fetches,
            provisions=provisions,
            welcomed=welcomed,
            sample_soon=sensors.sample_soon,
        )
        async with trio.open_nursery() as nursery:
            await nursery.start(outbox.run)
            await nursery.start(cache.run)
            await nursery.start(supervisor.run)
            await nursery.start(logs.run)
            await nursery.start(checks.run)
            await nursery.start(orders.run)
            await nursery.start(link.run)
            await nursery.start(renewal.run)
            await nursery.start(sensors.run)
            await nursery.start(loads.run)
            await nursery.start(surveyor.run, outbox)
            await nursery.start(provisions.run)
            log.info("The agent is up", extra={"node": identity.node, "shards": len(supervisor.statuses())})
            await anext(signals)
            if config.ends_engines:
                await supervisor.stop_all(grace_s=EXIT_GRACE_S, reason="the agent ends")
            nursery.cancel_scope.cancel()
    log.info("The agent ends and %s", "its engines ended with it" if config.ends_engines else "its engines go on")


def _sensors(
    config: AgentConfig, layout: AgentLayout, surveyor: Surveyor, supervisor: Supervisor, outbox: Outbox
) -> SensorService:
    def pids() -> dict[str, int]:
        return {status.shard_id: status.pid for status in supervisor.statuses() if status.pid}

    def cards() -> tuple[Card, ...]:
        return surveyor.cards

    return SensorService(
        Meter(layout.weights, cards=cards, engines=pids, traffic=TrafficMeter(Path(config.ib_root))),
        outbox,
        reader=lambda: surveyor.reader,
        cards=cards,
        exporter=Exporter(config.dcgm_exporter),
        limiter=surveyor.limiter,
    )


def _hello(surveyor: Surveyor, supervisor: Supervisor) -> Hello:
    """The node's whole state, for a new stream; the link adds who the node is."""
    return Hello(
        agent_version=llmgw.__version__,
        boot_id=boot_id(),
        inventory=surveyor.inventory(),
        shards=supervisor.statuses(with_spec=True),
        takes_samples=True,
    )


def _site(
    config: AgentConfig,
    layout: AgentLayout,
    identity: Identity,
    address: str,
    surveyor: Surveyor,
    engines: Mapping[str, Engine],
    fetches: Fetches,
    outbox: Outbox,
) -> Site:
    """What shards share. Raises InvalidInput for ports that are none, OSError when the journal cannot be made."""
    return Site(
        layout=layout,
        cluster_id=identity.cluster_id,
        node=identity.node,
        address=address,
        host=config.engine_host or address,
        ports=config.ports,
        cpus=surveyor.host.cpus,
        operator_env=config.engine_env,
        engines=engines,
        fetches=fetches,
        journal=Journal(layout.journal),
        outbox=outbox,
        card_bytes=lambda uuid: next((c.memory_total_bytes for c in surveyor.cards if c.uuid == uuid), None),
        card_index=lambda uuid: next((c.index for c in surveyor.cards if c.uuid == uuid and not c.parent), None),
    )


def _mirror_tls(layout: AgentLayout) -> ssl.SSLContext:
    """TLS towards the mirror, as this node; the mirror speaks HTTP/1.1. Raises OSError."""
    context = tls_context(layout.ca, layout.certificate, layout.key)
    context.set_alpn_protocols(["http/1.1"])
    return context


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
