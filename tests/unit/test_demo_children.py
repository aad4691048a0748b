"""What the demo says of a child that cannot stay up."""

import sys
from pathlib import Path

import pytest
import trio

from llmgw.demo.children import Child


@pytest.mark.trio
async def test_why_a_child_ended_is_said_before_it_is_tried_again(tmp_path: Path) -> None:
    said: list[str] = []
    told = trio.Event()

    def say(sentence: str) -> None:
        said.append(sentence)
        told.set()

    program = "import sys; print('cannot listen on 127.0.0.1:1', file=sys.stderr); sys.exit(1)"
    child = Child("server", [sys.executable, "-c", program], tmp_path / "server.out", say)
    async with trio.open_nursery() as nursery:
        await nursery.start(child.run)
        with trio.fail_after(60):
            await told.wait()
        nursery.cancel_scope.cancel()
    assert said == ["the server ended and is started again: cannot listen on 127.0.0.1:1"]


@pytest.mark.trio
async def test_addresses_of_other_servers_do_not_reach_the_demos(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("LLMGW_LISTEN", "LLMGW_ADMIN", "LLMGW_OTHER"):
        monkeypatch.setenv(name, "127.0.0.1:1")
    said: list[str] = []
    told = trio.Event()

    def say(sentence: str) -> None:
        said.append(sentence)
        told.set()

    program = "import os, sys; print(sorted(n for n in os.environ if n.startswith('LLMGW_'))); sys.exit(1)"
    child = Child("server", [sys.executable, "-c", program], tmp_path / "server.out", say)
    async with trio.open_nursery() as nursery:
        await nursery.start(child.run)
        with trio.fail_after(60):
            await told.wait()
        nursery.cancel_scope.cancel()
    assert said == ["the server ended and is started again: ['LLMGW_OTHER']"]
