"""A real agent on a disk that is really full: it says so, goes on, and fetches the set once there is space."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
import trio

from agent.identity import load_identity, save_identity
from llmgw.core.layout import AgentLayout
from llmgw.mirror.app import serve
from llmgw.mirror.service import Mirror
from llmgw.wire.llmgw.v1 import FetchSource, ServerMessage
from tests.support.agent_node import Node, running_node
from tests.support.mirrors import TOKEN
from tests.support.weights import tiny_llama

MIB = 1024 * 1024
DATA = tiny_llama(padding=100 * MIB)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A tmpfs of 64 MiB in the place of the node's cache."""
    path = tmp_path / "n1" / "weights"
    path.mkdir(parents=True)
    made = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64m", "tmpfs", str(path)], capture_output=True)
    if made.returncode:
        pytest.skip(f"a small file system needs the right to mount a tmpfs: {made.stderr.decode(errors='replace')}")
    try:
        yield path
    finally:
        subprocess.run(["umount", "-l", str(path)], check=True)


async def told_of_the_mirror(node: Node, url: str) -> None:
    """Start the agent anew with the mirror's address among what it knows."""
    node.end()
    layout = AgentLayout(data=node.directory)
    save_identity(layout, msgspec.structs.replace(load_identity(layout), mirror_url=url))
    node.start()
    await node.connected(count=2)


@pytest.mark.trio
@pytest.mark.case("C25")
@pytest.mark.promise("A14")
async def test_an_agent_without_space_says_so_goes_on_and_fetches_when_there_is_some(
    tmp_path: Path, small_disk: Path
) -> None:
    published = tmp_path / "models" / "m.gguf"
    published.parent.mkdir()
    published.write_bytes(DATA)
    source = f"file:{published}"
    async with running_node(tmp_path) as node, trio.open_nursery() as nursery:
        mirror = Mirror(tmp_path / "mirror")
        await nursery.start(mirror.run)

        async def api(*, task_status: trio.TaskStatus[list[trio.SocketListener]]) -> None:
            context = node.port.authority.mirror_server_context()
            await serve(mirror, host="127.0.0.1", port=0, ssl_context=context, token=TOKEN, task_status=task_status)

        listeners: list[trio.SocketListener] = await nursery.start(api)
        await told_of_the_mirror(node, f"https://127.0.0.1:{listeners[0].socket.getsockname()[1]}")
        assert node.process is not None
        pid = node.process.pid

        node.order(ServerMessage(fetch_source=FetchSource(source=source)))
        await node.until(lambda: any(progress.phase == "failed" for progress in node.fetches))
        failed = next(progress for progress in node.fetches if progress.phase == "failed")
        assert f"no space for {small_disk}" in failed.message
        assert "105 MB more are needed and 67.1 MB are free" in failed.message
        assert not list(small_disk.rglob("m.gguf*"))
        heard = len(node.sensors)
        await node.until(lambda: len(node.sensors) > heard)

        subprocess.run(["mount", "-o", "remount,size=200m", str(small_disk)], check=True)
        node.order(ServerMessage(fetch_source=FetchSource(source=source)))
        await node.until(lambda: any(progress.phase == "done" for progress in node.fetches))
        (here,) = small_disk.rglob("m.gguf")
        assert here.read_bytes() == DATA
        assert (node.process.pid, node.process.poll(), len(node.hellos)) == (pid, None, 2)
        nursery.cancel_scope.cancel()
