"""What the mirror promises of its disk: queued and running fetches count, and a refusal comes before the first byte."""

from collections.abc import Callable
from pathlib import Path

import pytest
import trio

from llmgw.core.weights import SetState, SetStatus
from llmgw.mirror.bring import SETS_AT_ONCE
from llmgw.mirror.source import MirrorConfig
from tests.support.hub import hub_server
from tests.support.mirrors import Running, running_mirror, until_here
from tests.support.rawhttp import Asked, RawServer, Script, cut, raw_server, whole
from tests.support.weights import quick, tiny_llama

MB = 1_000_000
GGUF = tiny_llama(padding=3 * MB)


def disk(free: Callable[[], int]) -> MirrorConfig:
    return MirrorConfig(policy=quick(free_bytes=lambda _path: free()))


def halting(release: trio.Event) -> Script:
    """Sends most of the file, and the rest when told to."""

    async def script(_asked: Asked, stream: trio.SocketStream) -> None:
        first = cut(whole(GGUF), 0.7, GGUF)
        await stream.send_all(first)
        await release.wait()
        await stream.send_all(whole(GGUF)[len(first) :])

    return script


def status_of(running: Running, source: str) -> SetStatus:
    status = running.mirror.status(source)
    assert status is not None
    return status


async def begun(running: Running, server: RawServer, name: str) -> str:
    """Ask for a file of the server, and return its source once bytes of it are here."""
    source = f"{server.url}/{name}"
    running.mirror.ensure(source)
    await until_here(lambda: status_of(running, source).done_bytes >= MB)
    return source


@pytest.mark.trio
@pytest.mark.case("C25")
async def test_two_sets_that_fit_alone_and_not_together_are_not_both_begun(tmp_path: Path) -> None:
    release = trio.Event()

    def free() -> int:
        return 5 * MB - sum(path.stat().st_size for path in tmp_path.rglob("*.gguf*") if path.is_file())

    async with raw_server(halting(release)) as server, running_mirror(tmp_path, config=disk(free)) as running:
        first = await begun(running, server, "first.gguf")
        second = f"{server.url}/second.gguf?signature=secret"
        refused = await running.settled(second)
        assert refused.state is SetState.FAILED
        assert "no space for" in refused.message
        assert "second.gguf" in refused.message
        assert "1 other fetch queued or on the way" in refused.message
        assert "first.gguf" in refused.message
        assert "secret" not in refused.message
        assert [path for path in tmp_path.rglob("second.gguf*") if path.stat().st_size] == []
        release.set()
        assert (await running.settled(first)).state is SetState.READY
        await running.mirror.remove(first)
        assert (await running.settled(second, now=True)).state is SetState.READY


@pytest.mark.trio
async def test_a_set_that_cannot_fit_beside_the_queued_ones_is_refused_before_its_turn(tmp_path: Path) -> None:
    release = trio.Event()
    contents = {"m.gguf": tiny_llama(padding=4 * MB)}
    async with (
        raw_server(halting(release)) as server,
        hub_server(contents) as hub,
        running_mirror(
            tmp_path,
            config=MirrorConfig(hf_endpoint=hub.url, policy=quick(free_bytes=lambda _path: 13 * MB)),
        ) as running,
    ):
        busy = [await begun(running, server, f"busy-{number}.gguf") for number in range(SETS_AT_ONCE)]
        running.mirror.ensure("hf:org/model:m.gguf")
        await until_here(lambda: bool(status_of(running, "hf:org/model:m.gguf").message))
        queued = status_of(running, "hf:org/model:m.gguf")
        assert (queued.state, queued.message) == (SetState.FETCHING, "queued: other sets come first")
        assert hub.cdn.asked == []
        # Eleven of thirteen megabytes are spoken for, four of them by the set that waits.
        refused = await running.settled("hf:org/model@main:m.gguf")
        assert refused.state is SetState.FAILED
        assert "hf:org/model" in refused.message
        release.set()
        for source in (*busy, "hf:org/model:m.gguf"):
            assert (await running.settled(source)).state is SetState.READY
