"""What an operator asks a node to install: from the store to a real agent, its archive and its log, and back."""

import contextlib
from collections.abc import AsyncIterator, Mapping
from datetime import UTC, datetime
from pathlib import Path

import pytest
import trio

from llmgw.agents.bridge import Limits
from llmgw.api.types import BuildInfo, BuildRequest
from llmgw.control.builds import BuildService
from llmgw.control.engine_checks import EngineCheckService
from llmgw.control.inventory import Inventory
from llmgw.control.leadership import Leadership
from llmgw.control.logs import LogService
from llmgw.control.samples import SampleService
from llmgw.control.sessions import AgentBuildOrders, AgentCheckOrders, AgentLogOrders, AgentSampleOrders, SessionLoop
from llmgw.core.cluster import Card, EngineBuild, Node
from llmgw.core.errors import InvalidInput, NotFound
from llmgw.core.layout import ServerLayout
from llmgw.store import nodes as stored_nodes
from llmgw.store.nodes import NodeRow
from llmgw.store.store import Store
from tests.integration.test_ctl import Ctl, admin, ctl
from tests.support.agent_node import Node as AgentNode
from tests.support.agent_node import end_marked, free_ports
from tests.support.agentport import enrolled, make_port, running
from tests.support.mirrors import until_here
from tests.support.release import TAG, Release, release_archive, release_server
from tests.support.waiting import until

__all__ = ["admin", "ctl"]

NAME = f"llama-{TAG}-bin-ubuntu-x64.tar.gz"
NOW = datetime(2026, 11, 1, tzinfo=UTC)
ACTOR = "test"


def row(builds: Mapping[str, str], *, name: str = "n1") -> NodeRow:
    """A node as the store has it."""
    return NodeRow(
        name=name,
        fingerprint="f",
        serial="1",
        joined=NOW,
        renewed=NOW,
        cordoned=False,
        evicted=None,
        builds=dict(builds),
    )


class Desk:
    """A leader's services for one real agent, n1, that takes archives from a release server."""

    def __init__(self, tmp_path: Path, release: Release) -> None:
        self.port = make_port(tmp_path / "server", limits=Limits())
        self.inventory = Inventory(trio.current_time, lambda: None)
        server = self.port.server
        self.logs = LogService(
            layout=ServerLayout(data=tmp_path / "server"), inventory=self.inventory, orders=AgentLogOrders(server)
        )
        checks = EngineCheckService(inventory=self.inventory, orders=AgentCheckOrders(server))
        # Nothing is asked by an operator here: the store's rows come from the test.
        self.builds = BuildService(leadership=NotImplemented, inventory=self.inventory, orders=AgentBuildOrders(server))
        self.sessions = SessionLoop(
            server=server,
            inventory=self.inventory,
            logs=self.logs,
            checks=checks,
            samples=SampleService(inventory=self.inventory, orders=AgentSampleOrders(server), clock=trio.current_time),
            ordered=lambda _: True,
            connected=self.builds.connected,
        )
        settings: dict[str, object] = {"llamacpp_releases": release.releases, "llamacpp_variant": "cpu"}
        self.agent = AgentNode(
            port=self.port, directory=tmp_path / "n1", name="n1", ports=free_ports(), settings=settings
        )

    @contextlib.asynccontextmanager
    async def up(self) -> AsyncIterator[None]:
        """Until the block ends."""
        async with running(self.port), trio.open_nursery() as nursery:
            await nursery.start(self.sessions.run)
            enrolled(self.port, self.agent.directory, "n1")
            self.agent.start()
            try:
                await until(lambda: self.inventory.is_connected("n1"))
                yield
            finally:
                self.agent.end()
                end_marked(self.port.authority.cluster_id)
            nursery.cancel_scope.cancel()

    def llamacpp(self) -> BuildInfo:
        """How far llama.cpp is."""
        return next(build for build in self.builds.list("n1") if build.engine == "llamacpp")

    async def log(self, target: str) -> list[str]:
        """Its lines."""
        async with self.logs.open(target, tail=100, follow=False) as lines:
            return [line async for line in lines]


@pytest.mark.trio
async def test_a_version_asked_of_a_node_is_installed_there_and_its_log_is_read_from_afar(tmp_path: Path) -> None:
    async with release_server({NAME: release_archive(padding=5_000_000)}) as release:
        desk = Desk(tmp_path, release)
        release.files[NAME].next_life("", 0.5)
        desk.builds.replace([row({"llamacpp": TAG})])
        async with desk.up():
            # It was asked for before the node was there, which is told with its new stream.
            await until_here(lambda: desk.llamacpp().state.startswith(f"{TAG}: being installed for 0 min"))
            assert desk.llamacpp().version.startswith("xllamacpp"), "meanwhile the built-in one starts engines"
            release.files[NAME].next_life("", 2.0)
            desk.builds.replace([row({"llamacpp": "none"})])
            await until_here(lambda: desk.llamacpp().state == "")
            assert desk.llamacpp().asked == "none"
            desk.builds.replace([row({"llamacpp": TAG})])
            await until_here(lambda: desk.llamacpp().version == "100 (0abcdef)")
            assert desk.llamacpp().state == ""
            lines = await desk.log("n1:llamacpp")
            assert f"# fetching {NAME}" in lines
            assert "# installed: cpu: version: 100 (0abcdef)" in lines
            with pytest.raises(NotFound, match="vllm was never installed by this node's agent"):
                await desk.log("n1:vllm")
            with pytest.raises(NotFound, match="NODE:ENGINE"):
                await desk.log("n1:agent")
            desk.builds.replace([row({"llamacpp": "b101"})])
            await until_here(lambda: "there is no release b101" in desk.llamacpp().state)
            assert desk.llamacpp().version == "100 (0abcdef)"


class Told:
    """Agents that write down what they were told."""

    def __init__(self) -> None:
        self.heard: list[tuple[str, dict[str, str]]] = []
        self.away: set[str] = set()

    def set_builds(self, node: str, builds: Mapping[str, str]) -> bool:
        """Write it down."""
        if node in self.away:
            return False
        self.heard.append((node, dict(builds)))
        return True


CARD = Card(uuid="GPU-1", index=0, name="H200", gpu_class="h200", memory_total_bytes=1)


@pytest.fixture
async def asked(store: Store) -> tuple[BuildService, Told, Store]:
    """A leader over the real store, with a node that has a card, one that has none, and one that is made up."""
    leadership = Leadership(store, "server-1")
    await leadership.acquired()
    inventory = Inventory(trio.current_time, lambda: None)
    engines = (EngineBuild(engine="vllm", version="0.29.0", installing="0.30.0: being installed for 3 min"),)
    for node in (
        Node(name="gpu", cards=(CARD,), engines=engines),
        Node(name="plain"),
        Node(name="made-up", cards=(CARD,), simulated=True),
    ):
        inventory.connected(node, (), ())
        await leadership.lead(stored_nodes.upsert_node, name=node.name, fingerprint=node.name, serial="1", actor=ACTOR)
    told = Told()
    return BuildService(leadership=leadership, inventory=inventory, orders=told), told, store


@pytest.mark.trio
async def test_what_is_asked_is_stored_told_and_taken_back(asked: tuple[BuildService, Told, Store]) -> None:
    builds, told, store = asked
    result = await builds.ask("gpu", BuildRequest(engine="vllm", version="0.30.0"), actor=ACTOR)
    assert result.message == "gpu installs vllm 0.30.0; until it is whole the one before starts engines"
    await builds.ask("gpu", BuildRequest(engine="llamacpp", version="b10991"), actor=ACTOR)
    assert told.heard[-1] == ("gpu", {"vllm": "0.30.0", "llamacpp": "b10991"})
    shown = {build.engine: build for build in builds.list("gpu")}
    assert shown["vllm"] == BuildInfo(
        engine="vllm", asked="0.30.0", version="0.29.0", state="0.30.0: being installed for 3 min"
    )
    assert shown["sglang"] == BuildInfo(engine="sglang", asked="auto")
    rows = await store.run(stored_nodes.list_nodes)
    assert {row.name: row.builds for row in rows}["gpu"] == {"vllm": "0.30.0", "llamacpp": "b10991"}
    result = await builds.ask("gpu", BuildRequest(engine="freetoken", version="default"), actor=ACTOR)
    assert result.message.startswith("gpu installs freetoken 0.2.1;"), "what a node is asked for is a version"
    await builds.ask("gpu", BuildRequest(engine="freetoken", version="auto"), actor=ACTOR)
    told.away.add("gpu")
    result = await builds.ask("gpu", BuildRequest(engine="vllm", version="auto"), actor=ACTOR)
    assert result.message == "vllm on gpu is what its own agent.yaml says, once it is connected again"
    told.away.clear()
    builds.connected("gpu")
    assert told.heard[-1] == ("gpu", {"llamacpp": "b10991"})


@pytest.mark.trio
@pytest.mark.parametrize(
    ("node", "engine", "version", "words"),
    [
        ("plain", "vllm", "0.30.0", "plain has no card, and vllm needs one"),
        ("made-up", "vllm", "0.30.0", "made-up is simulated, and installs nothing"),
        ("gpu", "vllm", "b10991", "is no version: write 0.30.0"),
        ("gpu", "vllm", "0.30.0; rm -rf /", "is no version"),
        ("gpu", "llamacpp", "0.30.0", "is no release of llama.cpp: write its tag, such as b10991"),
        ("gpu", "trtllm", "1.3", "is not installed by llmgw: install it, and name its environment"),
        ("gpu", "strata", "0.2.7", r"nothing is run unchecked.* name its directory as engine_paths\.strata"),
        ("gpu", "strata", "default", "nothing is run unchecked"),
        ("gpu", "sim", "auto", "is not one of vllm"),
        ("nobody", "vllm", "0.30.0", "there is no node 'nobody'"),
    ],
)
async def test_what_cannot_be_is_refused(
    asked: tuple[BuildService, Told, Store], node: str, engine: str, version: str, words: str
) -> None:
    builds, told, store = asked
    with pytest.raises((InvalidInput, NotFound), match=words):
        await builds.ask(node, BuildRequest(engine=engine, version=version), actor=ACTOR)
    assert told.heard == []
    assert all(row.builds == {} for row in await store.run(stored_nodes.list_nodes))


@pytest.mark.trio
async def test_a_node_that_was_removed_and_joins_again_is_asked_for_nothing(
    asked: tuple[BuildService, Told, Store],
) -> None:
    builds, _, store = asked
    await builds.ask("plain", BuildRequest(engine="llamacpp", version="b10991"), actor=ACTOR)
    leadership = Leadership(store, "server-1")
    await leadership.acquired()
    again = {"name": "plain", "fingerprint": "other", "serial": "2", "actor": ACTOR}
    renewed = await leadership.lead(stored_nodes.upsert_node, **again)
    assert renewed.builds == {"llamacpp": "b10991"}
    await leadership.lead(stored_nodes.remove_node, "plain", actor=ACTOR)
    joined = await leadership.lead(stored_nodes.upsert_node, **again)
    assert joined.builds == {}


def test_ctl_asks_and_shows(ctl: Ctl) -> None:
    shown = ctl("node", "builds", "gpu1")
    assert shown.returncode == 0
    assert shown.stdout.splitlines()[1].split(None, 3) == [
        "vllm", "0.30.0", "-", "0.30.0: being installed for 3 min",
    ]  # fmt: skip
    done = ctl("node", "build", "gpu1", "llamacpp", "b10991")
    assert (done.returncode, done.stderr) == (0, "gpu1 installs llamacpp b10991\n")
    assert ctl("node", "build", "gpu1", "emacs", "30").returncode == 2
