"""A node whose journal or shard directory cannot be written: no engine runs unknown, and the next order starts one."""

import errno
import os
import subprocess
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.journal import Entry, Journal
from llmgw.core.processes import start_time
from llmgw.wire.llmgw.v1 import ShardState
from tests.support.agent_node import sim_spec
from tests.support.agent_site import yard

READY, FAILED, STOPPED = ShardState.READY, ShardState.FAILED, ShardState.STOPPED


@pytest.fixture
def cluster() -> str:
    return f"test-{uuid.uuid4().hex}"


@pytest.fixture(params=["journal", "shards"])
def small(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Path]:
    """A tmpfs of a few pages in the place of one of the agent's directories."""
    path = tmp_path / str(request.param)
    path.mkdir(mode=0o700)
    made = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k,nr_inodes=64", "tmpfs", str(path)])
    if made.returncode:
        pytest.skip("a small file system needs the right to mount a tmpfs")
    try:
        yield path
    finally:
        subprocess.run(["umount", "-l", str(path)], check=True)


@pytest.mark.trio
@pytest.mark.case("C25")
@pytest.mark.parametrize("how", ["full", "read-only"])
async def test_a_full_disk_starts_no_engine_and_the_next_order_does(
    tmp_path: Path, small: Path, how: str, cluster: str
) -> None:
    async with yard(tmp_path, cluster_id=cluster) as node:
        filler = small / "filler"
        if how == "full":
            _fill(filler)
        else:
            subprocess.run(["mount", "-o", "remount,ro", str(small)], check=True)
        node.start(sim_spec())
        failed = await node.state("r1/0", FAILED)
        assert failed.pid == 0
        assert "cannot be written" in failed.message
        assert os.strerror(errno.ENOSPC if how == "full" else errno.EROFS) in failed.message
        node.stop("r1/0")
        await node.state("r1/0", STOPPED)
        if how == "full":
            filler.unlink()
        else:
            subprocess.run(["mount", "-o", "remount,rw", str(small)], check=True)
        node.forget()
        node.start(sim_spec())
        ready = await node.state("r1/0", READY)
        assert start_time(ready.pid) is not None


@pytest.mark.trio
@pytest.mark.case("C25")
@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EROFS])
async def test_an_engine_that_could_not_be_noted_is_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, cluster: str
) -> None:
    written: list[Entry] = []
    real = Journal.write

    def refuses_the_process(self: Journal, entry: Entry) -> None:
        written.append(entry)
        if entry.process is not None and sum(e.process is not None for e in written) == 1:
            raise OSError(code, os.strerror(code))
        real(self, entry)

    monkeypatch.setattr(Journal, "write", refuses_the_process)
    async with yard(tmp_path, cluster_id=cluster) as node:
        node.start(sim_spec())
        failed = await node.state("r1/0", FAILED)
        assert f"the journal cannot be written, so no engine is started: {os.strerror(code)}" in failed.message
        process = next(entry.process for entry in written if entry.process is not None)
        assert start_time(process.pid) is None, "nothing runs of which the next agent would not know"
        assert not list(node.site.layout.journal.glob("*.json"))
        node.stop("r1/0")
        await node.state("r1/0", STOPPED)
        node.forget()
        node.start(sim_spec())
        await node.state("r1/0", READY)


def _fill(path: Path) -> None:
    """Take every page that is left."""
    with path.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(4096))
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise
