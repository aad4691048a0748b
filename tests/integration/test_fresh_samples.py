"""A fresh sample from a real agent over a real stream, long before its next one would come by itself."""

from collections.abc import Callable
from pathlib import Path

import pytest
import trio

from llmgw.agents.bridge import Limits
from llmgw.control.engine_checks import EngineCheckService
from llmgw.control.inventory import Inventory
from llmgw.control.logs import LogService
from llmgw.control.samples import SampleService
from llmgw.control.sessions import AgentCheckOrders, AgentLogOrders, AgentSampleOrders, SessionLoop
from llmgw.core.figures import NodeFigures
from llmgw.core.layout import ServerLayout
from tests.support.agent_node import Node, end_marked, free_ports
from tests.support.agentport import enrolled, make_port, running
from tests.support.waiting import until

PATIENT = """
import sys
from pathlib import Path
import agent.sensors
agent.sensors.SAMPLE_EVERY_S = 3600.0
agent.sensors.ASKED_EVERY_S = 0.01
from agent.main import main
sys.exit(main(Path(sys.argv[1])))
"""
"""An agent that tells once when it starts and once when it connects, and then for an hour nothing by itself."""
BY_ITSELF = 2
LOOKS = 5


class Counting(Inventory):
    """Counts samples."""

    def __init__(self, clock: Callable[[], float]) -> None:
        super().__init__(clock, lambda: None)
        self.samples = 0

    def sensed(self, name: str, figures: NodeFigures) -> None:
        """One more."""
        super().sensed(name, figures)
        self.samples += 1


@pytest.mark.trio
async def test_each_look_brings_a_sample_that_would_not_have_come(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("llmgw.control.samples.ASK_EVERY_S", 0.0)
    port = make_port(tmp_path / "server", limits=Limits())
    inventory = Counting(trio.current_time)
    logs = LogService(
        layout=ServerLayout(data=tmp_path / "server"), inventory=inventory, orders=AgentLogOrders(port.server)
    )
    samples = SampleService(inventory=inventory, orders=AgentSampleOrders(port.server), clock=trio.current_time)
    sessions = SessionLoop(
        server=port.server,
        inventory=inventory,
        logs=logs,
        checks=EngineCheckService(inventory=inventory, orders=AgentCheckOrders(port.server)),
        samples=samples,
        ordered=lambda _: True,
    )
    async with running(port), trio.open_nursery() as nursery:
        await nursery.start(sessions.run)
        enrolled(port, tmp_path / "n1", "n1")
        node = Node(port=port, directory=tmp_path / "n1", name="n1", ports=free_ports(), program=("-c", PATIENT))
        node.start()
        try:
            await until(lambda: inventory.is_connected("n1"))
            for _ in range(BY_ITSELF + LOOKS):
                before = inventory.samples
                samples.ask("n1")
                await until(lambda before=before: inventory.samples > before)  # type: ignore[misc]
            told = inventory.node("n1")
            assert told is not None
            assert told.memory_available_bytes
        finally:
            node.end()
            end_marked(port.authority.cluster_id)
        nursery.cancel_scope.cancel()
