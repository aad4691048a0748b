"""What a node says is taken in for what it was ordered to run, and for nothing else, whatever it claims."""

from collections.abc import Callable
from pathlib import Path

import pytest
import trio

from llmgw.agents.bridge import AgentServer
from llmgw.agents.sessions import Session, Sessions
from llmgw.control.engine_checks import EngineCheckService
from llmgw.control.inventory import Inventory
from llmgw.control.logs import LogService
from llmgw.control.samples import SampleService
from llmgw.control.sessions import AgentCheckOrders, AgentLogOrders, AgentSampleOrders, SessionLoop
from llmgw.core.cluster import Replica
from llmgw.core.layout import ServerLayout
from llmgw.core.secrets import new_replica_id, ordered_by_us
from llmgw.wire.llmgw import v1 as wire
from tests.support.waiting import DEADLINE_S

SECRET = b"s" * 32
ADDRESS = "10.0.0.7"


class _Port(AgentServer):
    """The agent port without a socket: sessions are opened by the test."""

    def __init__(self) -> None:
        self._sessions = Sessions()

    def open(self, node: str, *shards: wire.ShardStatus) -> Session:
        """A node connects and says what it runs."""
        hello = wire.Hello(node=node, inventory=wire.Inventory(address=ADDRESS), shards=list(shards))
        return self._sessions.open(
            hello, node=node, serial="1", peer_address=ADDRESS, welcome=wire.ServerMessage(), wake=lambda: None
        )

    def say(self, session: Session, status: wire.ShardStatus) -> None:
        """A node reports on a shard."""
        self._sessions.deliver(session, wire.AgentMessage(shard_status=status))


def _ready(replica_id: str, model: str, *, endpoint: str = f"http://{ADDRESS}:8000") -> wire.ShardStatus:
    spec = wire.ShardSpec(
        shard_id=f"{replica_id}/0", replica_id=replica_id, model=model, profile="cpu", engine="sim", spec_hash="h"
    )
    return wire.ShardStatus(shard_id=f"{replica_id}/0", state=wire.ShardState.READY, endpoint=endpoint, spec=spec)


async def _until(condition: Callable[[], object]) -> None:
    with trio.fail_after(DEADLINE_S):
        while not condition():
            await trio.lowlevel.checkpoint()


@pytest.fixture
def port() -> _Port:
    """An agent port."""
    return _Port()


@pytest.fixture
def inventory() -> Inventory:
    """An empty inventory."""
    return Inventory(lambda: 1.0, lambda: None)


def _loop(port: _Port, inventory: Inventory, tmp_path: Path) -> SessionLoop:
    logs = LogService(layout=ServerLayout(data=tmp_path), inventory=inventory, orders=AgentLogOrders(port))
    return SessionLoop(
        server=port,
        inventory=inventory,
        logs=logs,
        checks=EngineCheckService(inventory=inventory, orders=AgentCheckOrders(port)),
        samples=SampleService(inventory=inventory, orders=AgentSampleOrders(port), clock=lambda: 1.0),
        ordered=lambda replica: ordered_by_us(SECRET, replica.id, replica.model, replica.node),
    )


def test_an_id_is_good_for_its_model_and_node_only() -> None:
    made = new_replica_id(SECRET, "Qwen/Qwen3 8B", "n1")
    assert made.startswith("qwen-qwen3-8b-")
    assert ordered_by_us(SECRET, made, "Qwen/Qwen3 8B", "n1")
    assert made != new_replica_id(SECRET, "Qwen/Qwen3 8B", "n1")
    for secret, text, model, node in (
        (SECRET, made, "Qwen/Qwen3 8B", "n2"),
        (SECRET, made, "other", "n1"),
        (b"t" * 32, made, "Qwen/Qwen3 8B", "n1"),
        (SECRET, "x" + made, "Qwen/Qwen3 8B", "n1"),
        (SECRET, made[:-1] + ("a" if made[-1] != "a" else "q"), "Qwen/Qwen3 8B", "n1"),
        (SECRET, "", "Qwen/Qwen3 8B", "n1"),
        (SECRET, "m-é\udc80", "m", "n1"),
        (SECRET, "m-0189", "m", "n1"),
    ):
        assert not ordered_by_us(secret, text, model, node)


@pytest.mark.trio
async def test_a_node_answers_for_no_model_it_was_not_given(port: _Port, inventory: Inventory, tmp_path: Path) -> None:
    own, others = new_replica_id(SECRET, "m", "n1"), new_replica_id(SECRET, "m", "n2")
    async with trio.open_nursery() as nursery:
        await nursery.start(_loop(port, inventory, tmp_path).run)
        session = port.open("n1", _ready(own, "m"), _ready(others, "m"), _ready("forged-1", "secret-model"))
        await _until(lambda: inventory.replicas() and len(session.outbox) == 3)
        assert [replica.id for replica in inventory.replicas()] == [own]
        stopped = {message.stop_shard.shard_id for message in session.outbox if message.stop_shard is not None}
        assert stopped == {f"{others}/0", "forged-1/0"}
        port.say(session, _ready("forged-1", "secret-model"))
        port.say(session, wire.ShardStatus(shard_id="new/0", state=wire.ShardState.FAILED))
        port.say(session, _ready("new", "secret-model"))
        await _until(lambda: session.ended is not None)
        assert "Hello did not name" in (session.ended or "")
        assert [replica.id for replica in inventory.replicas()] == [own]
        nursery.cancel_scope.cancel()


@pytest.mark.trio
async def test_an_endpoint_elsewhere_ends_the_session(port: _Port, inventory: Inventory, tmp_path: Path) -> None:
    own = new_replica_id(SECRET, "m", "n1")
    async with trio.open_nursery() as nursery:
        await nursery.start(_loop(port, inventory, tmp_path).run)
        session = port.open("n1", _ready(own, "m", endpoint="http://10.9.9.9:80"))
        await _until(lambda: session.ended is not None)
        assert "10.9.9.9" in (session.ended or "")
        assert inventory.replicas() == ()
        nursery.cancel_scope.cancel()


@pytest.mark.trio
async def test_words_nobody_foresaw_cost_one_node_its_session(
    port: _Port, inventory: Inventory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(node: str, replica: Replica) -> None:
        raise OverflowError("something nobody foresaw")

    async with trio.open_nursery() as nursery:
        await nursery.start(_loop(port, inventory, tmp_path).run)
        own = new_replica_id(SECRET, "m", "n1")
        session, other = port.open("n1", _ready(own, "m")), port.open("n2")
        await _until(lambda: inventory.is_connected("n1") and inventory.is_connected("n2"))
        monkeypatch.setattr(inventory, "shard_changed", fails)
        port.say(session, _ready(own, "m"))
        await _until(lambda: session.ended is not None)
        assert other.ended is None
        nursery.cancel_scope.cancel()


@pytest.mark.trio
async def test_a_node_answers_no_log_request_made_to_another(inventory: Inventory, tmp_path: Path) -> None:
    asked: list[tuple[str, str]] = []

    class _Orders:
        def request_logs(
            self, node: str, request_id: str, shard_id: str, tail: int, follow: bool, *, engine: str = ""
        ) -> bool:
            asked.append((node, request_id))
            return True

        def cancel_logs(self, node: str, request_id: str) -> None:
            """Nothing waits here."""

    logs = LogService(layout=ServerLayout(data=tmp_path), inventory=inventory, orders=_Orders())
    inventory.expect([("n1", False), ("n2", False)])
    async with logs.open("n1", tail=5, follow=False) as lines:
        ((node, request_id),) = asked
        logs.received("n2", request_id, ["forged"], end=True, error="forged")
        logs.received(node, request_id, ["true"], end=True, error="")
        assert [line async for line in lines] == ["true"]
