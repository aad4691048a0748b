"""Checks of engines: their sentences, and whose answer counts."""

import pytest
import trio
import trio.testing

from llmgw.agents.checks import check_from
from llmgw.api.engine_types import EngineVerdict
from llmgw.control.engine_checks import CHECK_DEADLINE_S, EngineCheckService
from llmgw.control.inventory import Inventory
from llmgw.core.engine_checks import EngineCheck
from llmgw.core.errors import InvalidInput, NotFound
from llmgw.wire.llmgw import v1 as wire
from tests.support.builders import a_node

GOOD = EngineCheck(engine="vllm", version="0.30.0", written=11, allowed=143)


class Agents:
    """Nodes that are asked, and answer when the test says so."""

    def __init__(self, *away: str) -> None:
        self.asked: list[tuple[str, str, str]] = []
        self.away = away

    def check_engines(self, node: str, request_id: str, engine: str) -> bool:
        """Note it."""
        if node in self.away:
            return False
        self.asked.append((node, request_id, engine))
        return True


def inventory_of(*names: str) -> Inventory:
    """Connected nodes of these names."""
    inventory = Inventory(lambda: 1.0, lambda: None)
    for name in names:
        inventory.connected(a_node(name), (), ())
    return inventory


@pytest.mark.parametrize(
    ("check", "sentence"),
    [
        (GOOD, "vllm 0.30.0 on gpu07 takes all 11 flags that llmgw writes and 143 of 143 flags that profiles may add"),
        (
            EngineCheck(engine="trtllm", version="1.3", written=7, allowed=13, unknown_allowed=("--tool_parser",)),
            "trtllm 1.3 on gpu07 takes all 7 flags that llmgw writes and 12 of 13 flags that profiles may add, "
            "not --tool_parser",
        ),
        (
            EngineCheck(engine="vllm", version="0.9", written=11, allowed=2, unknown_written=("--port", "--x")),
            "vllm 0.9 on gpu07 does not know --port, --x, of 11 flags that llmgw writes, and takes 2 of 2 flags that "
            "profiles may add",
        ),
        (EngineCheck(engine="comfyui", installed=False), "comfyui is not installed on gpu07"),
        (EngineCheck(engine="sglang", failed="no torch"), "sglang on gpu07 could not be asked: no torch"),
    ],
)
def test_what_was_found_is_a_sentence(check: EngineCheck, sentence: str) -> None:
    assert check.said("gpu07") == sentence
    assert check.good == (check in (GOOD,) or not check.installed)


def test_a_node_says_nothing_harmful() -> None:
    message = wire.EngineChecked(
        engine="vllm\x1b[2J",
        version="1" * 999,
        installed=True,
        written=10**6,
        allowed=3,
        unknown_written=["--good_flag", "--bad flag", "\x1b--x", "-t", "--" + "x" * 200],
        failed="a\nb",
    )
    check = check_from(message)
    assert "\x1b" not in check.engine
    assert len(check.version) <= 128
    assert (check.written, check.allowed) == (0, 3)
    assert check.unknown_written == ("--good_flag", "-t")
    assert "\n" not in check.failed


@pytest.mark.trio
async def test_nodes_are_asked_together_and_only_their_own_answer_counts() -> None:
    agents = Agents()
    service = EngineCheckService(inventory=inventory_of("n2", "n1"), orders=agents)
    found: list[EngineVerdict] = []

    async def ask() -> None:
        found.extend(await service.check(engine=None, node=None))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(ask)
        await trio.testing.wait_all_tasks_blocked()
        ids = {node: request_id for node, request_id, _ in agents.asked}
        assert ids.keys() == {"n1", "n2"}
        assert {engine for _, _, engine in agents.asked} == {""}
        service.received("n2", ids["n1"], EngineCheck(engine="forged"), end=True)
        service.received("n1", "check-999", EngineCheck(engine="forged"), end=True)
        service.received("n1", ids["n1"], EngineCheck(engine="comfyui", installed=False), end=False)
        service.received("n1", ids["n1"], GOOD, end=True)
        service.received("n2", ids["n2"], EngineCheck(engine="", failed="4 checks are under way already"), end=True)
    assert [verdict.message for verdict in found] == [
        GOOD.said("n1"),
        "n2 could not be asked: 4 checks are under way already",
    ]
    assert [verdict.good for verdict in found] == [True, False]
    service.received("n1", ids["n1"], GOOD, end=True)


@pytest.mark.trio
async def test_a_named_engine_that_is_not_there_is_told_and_no_fault() -> None:
    agents = Agents()
    service = EngineCheckService(inventory=inventory_of("n1"), orders=agents)
    async with trio.open_nursery() as nursery:

        @nursery.start_soon
        async def answer() -> None:
            await trio.testing.wait_all_tasks_blocked()
            ((node, request_id, engine),) = agents.asked
            service.received(node, request_id, EngineCheck(engine=engine, installed=False), end=True)

        (verdict,) = await service.check(engine="trtllm", node="n1")
    assert (verdict.good, verdict.installed) == (True, False)
    assert verdict.message == "trtllm is not installed on n1"


@pytest.mark.trio
async def test_a_node_that_goes_away_or_says_nothing_is_no_secret(autojump_clock: trio.testing.MockClock) -> None:
    agents = Agents("n3")
    inventory = inventory_of("n1", "n2", "n3")
    inventory.connected(a_node("n4", simulated=True), (), ())
    service = EngineCheckService(inventory=inventory, orders=agents)
    found: list[EngineVerdict] = []

    async def ask() -> None:
        found.extend(await service.check(engine="vllm", node=None))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(ask)
        await trio.testing.wait_all_tasks_blocked()
        ids = {node: request_id for node, request_id, _ in agents.asked}
        service.received("n1", ids["n1"], GOOD, end=False)
        service.lost("n2")
    assert trio.current_time() >= CHECK_DEADLINE_S
    messages = [verdict.message for verdict in found]
    assert messages[1:] == [
        "n1 could not be asked: it did not answer within 300 s, as agents older than this server never do",
        "n2 could not be asked: its connection was lost while it was asked",
        "n3 could not be asked: it is not connected",
        "n4 could not be asked: it is simulated, and has no engines",
    ]
    assert [verdict.good for verdict in found] == [True, False, False, False, True]


@pytest.mark.trio
async def test_what_is_no_engine_or_node_is_refused_before_anybody_is_asked() -> None:
    agents = Agents()
    service = EngineCheckService(inventory=inventory_of("n1"), orders=agents)
    with pytest.raises(InvalidInput, match="'nope' is not one of llamacpp, sim, vllm"):
        await service.check(engine="nope", node=None)
    with pytest.raises(NotFound, match="there is no node 'n9'"):
        await service.check(engine=None, node="n9")
    assert agents.asked == []
