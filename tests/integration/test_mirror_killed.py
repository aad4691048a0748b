"""A fetch killed anywhere carries on from what is on disk, and ends with the right bytes."""

import hashlib
import os
import random
import signal
import subprocess
import sys
from functools import partial as bind
from pathlib import Path

import msgspec
import pytest
import trio

from llmgw.core.sources import parse_source, source_id
from llmgw.core.weights import Manifest, SetAnswer, SetFile, SetState, SetStatus
from llmgw.transfer.download import CHUNK_BYTES
from llmgw.transfer.http import RECEIVE_BYTES
from tests.support.rawhttp import Asked, head, partial, raw_server, whole
from tests.support.waiting import until
from tests.support.weights import tiny_llama

KILLS = 100 if os.environ.get("LLMGW_SOAK") else 4
DATA = tiny_llama(padding=8_000_000)
SHA = hashlib.sha256(DATA).hexdigest()
AWAY_S = 30.0


class _Origin:
    """Sends up to a chosen byte, then holds still until the client is gone."""

    def __init__(self, answer: bytes) -> None:
        self._answer = answer
        self.stop_at = 0
        self.reached = trio.Event()
        self.starts: list[int] = []

    async def script(self, asked: Asked, stream: trio.SocketStream) -> None:
        if asked.method == "POST":
            await stream.send_all(head("200 OK", {"Content-Length": len(self._answer)}) + self._answer)
            return
        start = asked.first_byte or 0
        self.starts.append(start)
        answer = partial(DATA, start, ETag='"1"') if start else whole(DATA, ETag='"1"')
        header = answer.index(b"\r\n\r\n") + 4
        if self.stop_at <= start:
            await stream.send_all(answer)
            return
        await stream.send_all(answer[: header + self.stop_at - start])
        self.reached.set()
        await stream.receive_some(1)


def _answer(source: str) -> bytes:
    """What a mirror that is ready says."""
    set_id = source_id(parse_source(source))
    manifest = Manifest(
        id=set_id, source=source, files=(SetFile(name="m.gguf", bytes=len(DATA), sha256=SHA),), main="m.gguf"
    )
    status = SetStatus(id=set_id, source=source, state=SetState.READY)
    return msgspec.json.encode(SetAnswer(status=status, manifest=manifest))


@pytest.mark.trio
@pytest.mark.promise("A13")
@pytest.mark.parametrize("who", ["mirror", "node"])
async def test_a_fetch_killed_at_random_bytes_ends_right(tmp_path: Path, who: str) -> None:
    dice = random.Random(f"A13 {who}")
    fixed = "https://h.example/m.gguf"
    origin = _Origin(_answer(fixed))
    async with raw_server(origin.script) as server:
        arguments = [fixed, server.url] if who == "node" else [f"{server.url}/m.gguf"]
        command = [sys.executable, "-m", "tests.support.fetch_child", who, str(tmp_path), *arguments]
        for stop_at in sorted(dice.randrange(1, len(DATA)) for _ in range(KILLS)):
            origin.stop_at, origin.reached = stop_at, trio.Event()
            before = len(origin.starts)
            child = subprocess.Popen(command)
            try:
                with trio.fail_after(AWAY_S):
                    await origin.reached.wait()
                # What was sent is on disk but for the chunk that is not full yet.
                least = stop_at - CHUNK_BYTES - RECEIVE_BYTES
                await until(bind(_reached, tmp_path, least))
            finally:
                child.send_signal(signal.SIGKILL)
                await trio.to_thread.run_sync(child.wait)
            assert len(origin.starts) == before + 1
            assert not [path for path in tmp_path.rglob("m.gguf") if path.is_file()], "never under its final name"
        origin.stop_at = 0
        kept = _part_size(tmp_path)
        done = await trio.run_process(command, capture_stdout=True)
        assert done.stdout.strip() == b"ready"
        assert origin.starts[-1] == kept
    (final,) = [path for path in tmp_path.rglob("m.gguf") if path.is_file()]
    assert hashlib.sha256(final.read_bytes()).hexdigest() == SHA
    assert not list(tmp_path.rglob("*.part*"))


def _part_size(root: Path) -> int:
    return sum(path.stat().st_size for path in root.rglob("m.gguf.part"))


def _reached(root: Path, size: int) -> bool:
    return _part_size(root) >= size
