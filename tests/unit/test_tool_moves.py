"""A tool that fetches is left alone while it writes, and ended once it is still."""

import itertools
import os
import subprocess
import sys

import pytest
import trio
from trio.testing import MockClock

from llmgw.transfer import tool_moves
from llmgw.transfer.tool_moves import run_fetching, until_still, written_bytes

SLOW = (sys.executable, "-c", "import time; time.sleep(0.3); print('found')")


@pytest.mark.trio
async def test_it_is_still_once_nothing_was_added_for_so_long(autojump_clock: MockClock) -> None:
    await until_still(lambda: min(1000, int(trio.current_time())), stall_s=60.0)
    assert 1000 + 60 <= trio.current_time() <= 1000 + 2 * 60


def test_what_a_process_wrote_is_counted() -> None:
    before = written_bytes(os.getpid())
    with open(os.devnull, "wb", buffering=0) as sink:
        sink.write(bytes(100_000))
    assert written_bytes(os.getpid()) >= before + 100_000
    assert written_bytes(2**30) == 0


@pytest.mark.trio
async def test_a_tool_that_goes_on_is_heard_to_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    counted = itertools.count()
    monkeypatch.setattr(tool_moves, "written_bytes", lambda _pid: next(counted))
    done = await run_fetching(SLOW, stall_s=0.01)
    assert (done.returncode, done.stdout) == (0, b"found\n")
    assert next(counted) > 2


@pytest.mark.trio
async def test_one_that_is_still_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tool_moves, "written_bytes", lambda _pid: 7)
    with pytest.raises(trio.TooSlowError):
        await run_fetching((sys.executable, "-c", "import time; time.sleep(60)"), stall_s=0.01)


@pytest.mark.trio
async def test_one_that_cannot_be_started_says_so() -> None:
    with pytest.raises(FileNotFoundError):
        await run_fetching(("/nowhere/tool",), stall_s=1.0)


@pytest.mark.trio
async def test_a_failure_is_told_with_its_words() -> None:
    done = await run_fetching((sys.executable, "-c", "raise SystemExit('no such wheel')"), stall_s=60.0)
    assert isinstance(done, subprocess.CompletedProcess)
    assert (done.returncode, done.stderr) == (1, b"no such wheel\n")
