"""Checking a node's engines from its row: one sentence when all is well, and everything that is not as an error."""

from pathlib import Path

import msgspec
import pytest

from llmgw.api.targets import ServerTarget
from llmgw.api.types import EngineVerdict
from tests.console.harness import console_with, shown, until
from tests.support.fake_feed import fake_feed
from tests.support.fleet_rows import small_fleet

PATH = "/api/v1/engine-check"
GOOD = EngineVerdict(node="gpu01", engine="sim", version="1.0", good=True, message="sim 1.0 on gpu01 takes all 6 flags")
LOST = EngineVerdict(
    node="gpu01", engine="vllm", version="0.31.0", good=False, message="vllm 0.31.0 on gpu01 does not know --seed[/]"
)


async def said(tmp_path: Path, *verdicts: EngineVerdict, role: str = "admin") -> tuple[str, str, list[str]]:
    """Severity and text of the answer to `v` on the first node, and the paths that were asked."""
    async with fake_feed(tmp_path / "s", small_fleet(role=role)) as feed:
        feed.answers[PATH] = msgspec.json.encode(verdicts)
        target = ServerTarget(socket=tmp_path / "s")
        console = console_with(small_fleet(role=role), start="nodes", target=target)
        async with shown(console) as pilot:
            await pilot.press("v")
            await until(lambda: bool(console._notifications))
            (notice,) = console._notifications
            return str(notice.severity), notice.message, [path for _, path, _ in feed.calls]


@pytest.mark.asyncio
async def test_all_that_is_well_is_one_sentence(tmp_path: Path) -> None:
    severity, message, asked = await said(tmp_path, GOOD, msgspec.structs.replace(GOOD, engine="llamacpp"))
    assert severity == "information"
    assert message == "sim 1.0, llamacpp 1.0 on gpu01 take every flag that llmgw and profiles give"
    assert asked == [f"{PATH}?node=gpu01"]


@pytest.mark.asyncio
async def test_what_is_not_well_is_an_error_with_its_figures(tmp_path: Path) -> None:
    severity, message, _ = await said(tmp_path, GOOD, LOST)
    assert severity == "error"
    assert message == LOST.message


@pytest.mark.asyncio
async def test_who_only_looks_asks_no_node_to_work(tmp_path: Path) -> None:
    async with fake_feed(tmp_path / "s", small_fleet(role="viewer")) as feed:
        target = ServerTarget(socket=tmp_path / "s")
        console = console_with(small_fleet(role="viewer"), start="nodes", target=target)
        async with shown(console) as pilot:
            await pilot.press("v")
            await pilot.pause()
            assert feed.calls == []
