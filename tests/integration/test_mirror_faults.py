"""Mirror and agent are killed anywhere while their server goes wrong: the file is right, nothing came twice in vain."""

import hashlib
import os
import random
import shutil
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest
import trio

from llmgw.core.sources import parse_source, source_id
from llmgw.core.weights import Manifest, SetAnswer, SetFile, SetState, SetStatus
from llmgw.transfer.download import CHUNK_BYTES
from llmgw.transfer.http import RECEIVE_BYTES
from tests.support.faulty import FAULTS, FaultyFile
from tests.support.hub import hub_server
from tests.support.rawhttp import Asked, head, raw_server
from tests.support.waiting import until
from tests.support.weights import tiny_llama

KILLS = 100 if os.environ.get("LLMGW_SOAK") else 2 * len(FAULTS)
DATA = tiny_llama(padding=6_000_000)
SHA = hashlib.sha256(DATA).hexdigest()
A_KILL_MAY_COST = CHUNK_BYTES + RECEIVE_BYTES
"""Bytes that were received and are not on disk yet."""
LIMIT_BYTES_S = 20_000_000
"""Slow enough that a life is killed while it waits for its limit, and a whole file takes a third of a second."""
TO_THE_END = 1 / 6
"""So many lives are killed after their last byte, while the file is synced, renamed or read back."""


@asynccontextmanager
async def served(who: str, origin: FaultyFile) -> AsyncIterator[list[str]]:
    """The origin behind a hub for a mirror, or as a mirror for a node; gives the arguments of the one who fetches."""
    if who == "mirror":
        async with hub_server({"m.gguf": DATA}, cdn_script=origin.script) as hub:
            yield ["hf:org/model:m.gguf", hub.url]
        return
    source = "https://h.example/m.gguf"
    set_id = source_id(parse_source(source))
    manifest = Manifest(
        id=set_id, source=source, files=(SetFile(name="m.gguf", bytes=len(DATA), sha256=SHA),), main="m.gguf"
    )
    status = SetStatus(id=set_id, source=source, state=SetState.READY)
    ready = msgspec.json.encode(SetAnswer(status=status, manifest=manifest))

    async def script(asked: Asked, stream: trio.SocketStream) -> None:
        if asked.method == "POST":
            await stream.send_all(head("200 OK", {"Content-Length": len(ready)}) + ready)
        else:
            await origin.script(asked, stream)

    async with raw_server(script) as server:
        yield [source, server.url]


@pytest.mark.trio
@pytest.mark.promise("A13")
@pytest.mark.timeout(1200)
@pytest.mark.parametrize(
    ("who", "bytes_s", "enough"),
    [("mirror", 0, KILLS), ("node", 0, KILLS), ("mirror", LIMIT_BYTES_S, KILLS // 2)],
    ids=["mirror", "node", "limited mirror"],
)
async def test_a_fetch_killed_anywhere_among_faults_ends_right(
    tmp_path: Path, who: str, bytes_s: int, enough: int
) -> None:
    dice = random.Random(f"{who} among faults")
    origin = FaultyFile(DATA, dice)
    root = tmp_path / "root"
    sent = resets = kills = lives = held = 0
    faults = [fault for fault in FAULTS for _ in range(-(-enough // len(FAULTS)))]
    dice.shuffle(faults)
    async with served(who, origin) as arguments:
        command = [sys.executable, "-m", "tests.support.fetch_child", who, str(root), *arguments]
        command += [str(bytes_s)] if bytes_s else []
        while kills < enough:
            origin.next_life(faults[lives % len(faults)], 2 if dice.random() < TO_THE_END else dice.random())
            killed = await _live(command, origin, root)
            kills += killed
            lives += 1
            resets += _account(origin, held)
            sent += sum(answer.sent for answer in origin.answers)
            must_hold = origin.answers[-1].holds if origin.answers else held
            if final := _found(root, "m.gguf"):
                assert hashlib.sha256(final.read_bytes()).hexdigest() == SHA, "never half a file under its name"
                sent, resets, held = 0, 0, 0
                shutil.rmtree(root)
                continue
            held = _size(root)
            assert held <= must_hold
            assert held >= must_hold - (A_KILL_MAY_COST if killed else 0)
            assert sent <= len(DATA) * (1 + resets) + kills * A_KILL_MAY_COST
        origin.next_life("", 2)
        done = await trio.run_process(command, capture_stdout=True)
    assert done.stdout.strip() == b"ready"
    assert [answer.start for answer in origin.answers] == ([held] if held < len(DATA) else [])
    final = _found(root, "m.gguf")
    assert final is not None
    assert hashlib.sha256(final.read_bytes()).hexdigest() == SHA
    assert not list(root.rglob("*.part*"))


async def _live(command: list[str], origin: FaultyFile, root: Path) -> bool:
    """Start the process and kill it where its server holds still; false when it ended before."""
    child = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def there() -> bool:
        if child.poll() is not None:
            return True
        if not origin.holding.is_set():
            return False
        return _found(root, "m.gguf") is not None or _size(root) >= origin.answers[-1].holds - A_KILL_MAY_COST

    try:
        await until(there)
        return child.poll() is None
    finally:
        child.send_signal(signal.SIGKILL)
        await trio.to_thread.run_sync(child.wait)


def _account(origin: FaultyFile, held: int) -> int:
    """Check that each request began where the file on disk ended; gives how often it had to begin anew."""
    resets = 0
    for answer in origin.answers:
        assert answer.start == held, "no byte that is here is asked for again, and none is left out"
        resets += answer.holds < answer.start + answer.sent or (answer.start > 0 and answer.holds < answer.start)
        held = answer.holds
    return resets


def _found(root: Path, name: str) -> Path | None:
    return next((path for path in root.rglob(name) if path.is_file()), None)


def _size(root: Path) -> int:
    part = _found(root, "m.gguf.part")
    return part.stat().st_size if part is not None else 0
