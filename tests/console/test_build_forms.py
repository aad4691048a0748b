"""Which engines a node installs, from its menu: where each is offered, what stands in its form, and what is sent."""

from pathlib import Path

import msgspec
import pytest
from textual.pilot import Pilot

from console.actions.handler import Handler
from console.actions.handlers import HANDLERS
from console.app import Console, Ending
from console.places import Subject
from console.screens.build_form import BuildForm
from llmgw.api.actions import Target
from llmgw.api.targets import ServerTarget
from llmgw.api.types import BuildInfo, EngineInfo, Result
from llmgw.api.watch import NodeRow
from tests.console.harness import console_with, screen_text, shown, until
from tests.support.fake_feed import fake_feed
from tests.support.fleet_rows import small_rows, snapshot

PATH = "/api/v1/nodes/gpu01/builds"
NODE = Subject(target=Target.NODE, key="gpu01")
BUILDS = (
    BuildInfo(
        engine="vllm", asked="0.30.0", version="0.29.0", state="0.30.0: being installed for 3 min, 3.1 GB of 8 GB"
    ),
    BuildInfo(engine="llamacpp", asked="auto", version="10991"),
)


def handler(variant: str) -> Handler:
    """One of the node's menu."""
    return next(h for h in HANDLERS if h.id in (f"node.build.{variant}", f"cluster.logs.{variant}"))


def node(console: Console, name: str) -> NodeRow:
    """As the console knows it."""
    return console.store.state.nodes[name]


async def typed(console: Console, pilot: Pilot[Ending], text: str) -> None:
    """Type over what stands in the form."""
    await pilot.press(*text)
    form = console.screen
    assert isinstance(form, BuildForm)
    await until(lambda: form.rows["version"].text == text)


def promise(console: Console) -> str:
    """What enter will do, as the form says it."""
    form = console.screen
    assert isinstance(form, BuildForm)
    return "".join(text for line in form.promise_line._given for text, _ in line)


@pytest.mark.asyncio
async def test_a_version_is_asked_for_from_what_is_asked_now(tmp_path: Path) -> None:
    async with fake_feed(tmp_path / "s", snapshot(small_rows(), role="admin")) as feed:
        feed.answers[PATH] = msgspec.json.encode(BUILDS)
        console = console_with(
            snapshot(small_rows(), role="admin"), start="nodes", target=ServerTarget(socket=tmp_path / "s")
        )
        async with shown(console) as pilot:
            console.perform(handler("vllm"), (NODE,))
            await until(lambda: isinstance(console.screen, BuildForm) and console.screen.found is not None)
            await until(lambda: "as it is: 0.30.0 is asked for" in promise(console))
            assert "0.29.0 is there; 0.30.0: being installed for 3 min," in screen_text(console)
            assert "3.1 GB of 8 GB" in screen_text(console)
            await typed(console, pilot, "no version")
            await pilot.press("enter")
            await until(lambda: "is no version: write 0.30.0" in screen_text(console))
            form = console.screen
            assert isinstance(form, BuildForm)
            form.rows["version"].input.value = "0.31.0"
            await until(lambda: "has gpu01 install vllm 0.31.0; until it is whole the one before" in promise(console))
            assert [call for call in feed.calls if call[0] == "POST"] == []
            feed.answers[PATH] = msgspec.json.encode(Result(message="gpu01 installs vllm 0.31.0"))
            await pilot.press("enter")
            await until(lambda: bool(console._notifications))
            (notice,) = console._notifications
            assert notice.message == "gpu01 installs vllm 0.31.0"
            (sent,) = [body for method, path, body in feed.calls if method == "POST" and path == PATH]
            assert msgspec.json.decode(sent) == {"engine": "vllm", "version": "0.31.0"}


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("variant", "version", "words"),
    [
        ("llamacpp", "none", "has gpu01 install no llamacpp; what is there stays on its disk"),
        ("sglang", "auto", "leaves sglang on gpu01 to its own agent.yaml"),
    ],
)
async def test_none_and_auto_are_said_in_words(tmp_path: Path, variant: str, version: str, words: str) -> None:
    async with fake_feed(tmp_path / "s", snapshot(small_rows(), role="admin")):
        console = console_with(
            snapshot(small_rows(), role="admin"), start="nodes", target=ServerTarget(socket=tmp_path / "s")
        )
        async with shown(console) as pilot:
            console.perform(handler(variant), (NODE,))
            await until(lambda: isinstance(console.screen, BuildForm))
            await typed(console, pilot, version)
            await until(lambda: words in promise(console))


@pytest.mark.asyncio
async def test_engines_that_need_a_card_are_offered_where_there_is_one(tmp_path: Path) -> None:
    rows = small_rows()
    first, *_ = (row for row in rows["nodes"].values() if isinstance(row, NodeRow))
    bare = msgspec.structs.replace(first, name="bare", cards=())
    made_up = msgspec.structs.replace(first, name="made-up", simulated=True)
    rows["nodes"] = {**rows["nodes"], "bare": bare, "made-up": made_up}
    console = console_with(snapshot(rows, role="admin"), start="nodes")
    async with shown(console):
        state = console.store.state
        offered = {
            name: [
                v
                for v in ("vllm", "sglang", "llamacpp")
                if handler(v).when(state, Subject(target=Target.NODE, key=name))
            ]
            for name in ("gpu01", "bare", "made-up")
        }
        assert offered == {"gpu01": ["vllm", "sglang", "llamacpp"], "bare": ["llamacpp"], "made-up": []}
        assert [handler(v).label for v in ("vllm", "sglang", "llamacpp")] == [
            "vLLM build…", "SGLang build…", "llama.cpp build…",
        ]  # fmt: skip


@pytest.mark.asyncio
async def test_how_far_an_installation_is_stands_on_the_node_and_its_log_is_a_step_away(tmp_path: Path) -> None:
    rows = small_rows()
    first = rows["nodes"]["gpu01"]
    assert isinstance(first, NodeRow)
    engine = EngineInfo(engine="vllm", version="0.29.0", usable=True, installing="0.30.0: being installed for 3 min")
    rows["nodes"]["gpu01"] = msgspec.structs.replace(first, engines=(engine,))
    async with fake_feed(tmp_path / "s", snapshot(rows, role="admin")) as feed:
        console = console_with(snapshot(rows, role="admin"), start="nodes", target=ServerTarget(socket=tmp_path / "s"))
        async with shown(console) as pilot:
            state = console.store.state
            other = next(name for name in state.nodes if name != "gpu01")
            log = handler("build")
            assert log.when(state, NODE)
            assert not log.when(state, Subject(target=Target.NODE, key=other))
            await pilot.press("enter")
            await until(lambda: "0.30.0: being installed for 3 min" in screen_text(console))
            console.perform(log, (NODE,))
            await until(lambda: any("/logs/gpu01%3Avllm" in path for _, path, _ in feed.calls))
