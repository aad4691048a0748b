"""Orphans: what no model needs is listed with what it holds, and nothing else is ever removed."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio

from llmgw.api.types import OrphansRemove
from llmgw.control.weights_orphans import OrphanSets
from llmgw.core.errors import NotFound
from llmgw.core.weights import SetState
from llmgw.transfer.http import Remote, request
from tests.support.mirrors import TOKEN, Running, running_mirror, until_here
from tests.support.rawhttp import Asked, RawServer, answers, cut, files, head, raw_server, whole
from tests.support.weights import tiny_llama

GGUF = tiny_llama(padding=2_500_000)
SMALL = tiny_llama(padding=100_000)


class Written:
    """Stands for this server's leadership: remembers audit rows, and may do something while one is written."""

    def __init__(self) -> None:
        self.rows: list[dict[str, object]] = []
        self.meanwhile: Callable[[], None] = lambda: None

    async def lead(self, _write: object, **row: object) -> None:
        await trio.lowlevel.checkpoint()
        self.meanwhile()
        self.rows.append(row)


class Catalog(dict[str, str]):
    """Models and their sources."""


@asynccontextmanager
async def cluster(root: Path) -> AsyncIterator[tuple[RawServer, Running, OrphanSets, Catalog, Written]]:
    """A mirror with an origin of two files, a catalog, and the orphans of both."""
    catalog, written = Catalog(), Written()
    async with (
        raw_server(files({"/m.gguf": GGUF, "/small.gguf": SMALL})) as origin,
        running_mirror(root) as running,
    ):
        orphans = OrphanSets(mirror=running.mirror, leadership=written, sources=lambda: catalog)  # type: ignore[arg-type]
        yield origin, running, orphans, catalog, written


@pytest.mark.trio
async def test_what_no_model_needs_is_listed_largest_first_with_its_times(tmp_path: Path) -> None:
    async with cluster(tmp_path) as (origin, running, orphans, catalog, _):
        large, small = f"{origin.url}/m.gguf", f"{origin.url}/small.gguf"
        for source in (large, small):
            await running.settled(source)
        catalog["needs-both-still"] = large
        found = await orphans.list()
        assert [orphan.source for orphan in found.orphans] == [small]
        catalog.clear()
        found = await orphans.list()
        assert [orphan.source for orphan in found.orphans] == [large, small]
        assert found.orphans[0].bytes >= len(GGUF)
        assert found.total_bytes == sum(orphan.bytes for orphan in found.orphans)
        assert found.orphans[0].fetched is not None
        assert found.orphans[0].used is None
        url = f"{running.url}/v1/sets/{found.orphans[0].id}/files/m.gguf"
        async with request(Remote(url=url, headers={"Authorization": f"Bearer {TOKEN}"}, proxies=False)) as response:
            await response.read(10_000_000)
        used = (await orphans.list()).orphans[0].used
        assert used is not None
    async with running_mirror(tmp_path) as again:
        status = again.mirror.status(large)
        assert status is not None
        assert status.used is not None, "a restart forgets neither time"
        assert abs(status.used - used) < 60
        assert status.fetched is not None


@pytest.mark.trio
async def test_only_what_was_named_and_is_an_orphan_still_goes(tmp_path: Path) -> None:
    async with cluster(tmp_path) as (origin, running, orphans, catalog, written):
        large, small = f"{origin.url}/m.gguf", f"{origin.url}/small.gguf"
        for source in (large, small):
            await running.settled(source)
        ids = tuple(orphan.id for orphan in (await orphans.list()).orphans)
        # A model that needs one of them is added while the audit row is written.
        written.meanwhile = lambda: catalog.update({"late": large})
        result = await orphans.remove(OrphansRemove(ids=ids), actor="ada")
        assert result.message.startswith("1 orphan removed: ")
        assert result.message.endswith("1 set left alone, needed or worked on meanwhile or gone before")
        assert running.mirror.ensure(large).state is SetState.READY
        assert running.mirror.status(small) is None
        (row,) = written.rows
        assert (row["actor"], row["action"], row["target"]) == ("ada", "weights.remove-orphans", "2 sets")
        with pytest.raises(NotFound, match="orphan any more"):
            await orphans.remove(OrphansRemove(ids=ids), actor="ada")
        assert len(written.rows) == 1


@pytest.mark.trio
async def test_what_is_being_fetched_is_no_orphan(tmp_path: Path) -> None:
    release = trio.Event()

    async def slow(_asked: Asked, stream: trio.SocketStream) -> None:
        first = cut(whole(GGUF), 0.9, GGUF)
        await stream.send_all(first)
        await release.wait()
        await stream.send_all(whole(GGUF)[len(first) :])

    async with raw_server(slow) as server, cluster(tmp_path) as (_, running, orphans, _, _):
        source = f"{server.url}/ahead.gguf"
        set_id = running.mirror.ensure(source).id
        await until_here(lambda: running.mirror.ensure(source).done_bytes > 0)
        assert (await orphans.list()).orphans == ()
        with pytest.raises(NotFound):
            await orphans.remove(OrphansRemove(ids=(set_id,)), actor="ada")
        release.set()
        assert (await running.settled(source)).state is SetState.READY
        assert [orphan.id for orphan in (await orphans.list()).orphans] == [set_id]


@pytest.mark.trio
async def test_files_of_a_set_that_was_given_up_are_found_and_removed(tmp_path: Path) -> None:
    gone = head("404 Gone", {"Content-Length": 0})
    async with (
        raw_server(answers(cut(whole(GGUF), 0.9, GGUF), gone)) as server,
        running_mirror(tmp_path) as running,
    ):
        source = f"{server.url}/m.gguf"
        failed = await running.settled(source)
        assert failed.state is SetState.FAILED
    async with cluster(tmp_path) as (_, running, orphans, catalog, _):
        assert running.mirror.status(source) is None
        (left,) = (await orphans.list()).orphans
        assert (left.id, left.source, left.state) == (failed.id, "", "leftover")
        assert left.bytes >= 1024 * 1024
        catalog["m"] = source
        assert (await orphans.list()).orphans == (), "a model needs it: its fetch will carry on from it"
        catalog.clear()
        outside = tmp_path / "precious"
        outside.write_bytes(b"x")
        with pytest.raises(NotFound):
            await orphans.remove(OrphansRemove(ids=("..", "../precious")), actor="ada")
        assert outside.exists()
        result = await orphans.remove(OrphansRemove(ids=(left.id,)), actor="ada")
        assert result.message.startswith("1 orphan removed: ")
        assert not [path for path in tmp_path.rglob("*") if path.is_file() and path != outside]


@pytest.mark.trio
async def test_an_operators_own_files_stay_when_their_set_goes(tmp_path: Path) -> None:
    own = tmp_path / "models" / "m.gguf"
    own.parent.mkdir()
    own.write_bytes(GGUF)
    async with cluster(tmp_path / "mirror") as (_, running, orphans, _, _):
        await running.settled(f"file:{own}")
        (orphan,) = (await orphans.list()).orphans
        assert orphan.in_place
        assert orphan.bytes < 10_000
        await orphans.remove(OrphansRemove(ids=(orphan.id,)), actor="ada")
        assert own.read_bytes() == GGUF
