"""Pages of the request log that follow one another: each request once, none left out, whatever routers do meanwhile."""

import base64
import os
import tempfile
from pathlib import Path

import msgspec
import pytest
import trio
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from llmgw.api.request_types import RequestPage, RequestQuery
from llmgw.control import request_lines
from llmgw.control.request_cursor import MAX_CURSOR_CHARS, Places, cursor_of, places_of
from llmgw.control.requests import RequestReader
from llmgw.core.errors import InvalidInput
from llmgw.core.requests import RequestLine
from llmgw.router.request_files import RequestFiles
from tests.support.request_logs import BEGAN, a_line, encoded, pages, write

FILE_BYTES = 600
"""A handful of lines."""
WRITERS = (0, 0, 7)
"""Routers that write, by index: two of one index overlap, while one of them drains."""


def ids(found: list[RequestPage]) -> list[str]:
    """Of all requests on these pages."""
    return [line.id for page in found for line in page.requests]


def on_disk(directory: Path) -> set[str]:
    """Ids of all requests in all files."""
    lines = (raw for path in directory.glob("*.jsonl*") for raw in path.read_bytes().splitlines())
    return {msgspec.json.decode(raw, type=RequestLine).id for raw in lines}


class Paging(RuleBasedStateMachine):
    """Routers that write, at the same moment as often as not, and put files aside, while somebody turns pages."""

    @initialize(kept=st.sampled_from((2, 3, 99)), scan_bytes=st.sampled_from((0, 400, 1 << 20)))
    def begin(self, kept: int, scan_bytes: int) -> None:
        """An empty log."""
        self.directory = tempfile.TemporaryDirectory()
        self.path = Path(self.directory.name)
        self.kept = kept
        self.block_bytes, request_lines.BLOCK_BYTES = request_lines.BLOCK_BYTES, 256
        self.reader = RequestReader(self.path, scan_bytes=scan_bytes)
        self.files = [RequestFiles(self.path, index) for index in WRITERS]
        self.at, self.count = BEGAN, 0
        self.query: RequestQuery | None = None
        self.promised: set[str] = set()
        self.heard: list[str] = []

    def teardown(self) -> None:
        """Read to the end, and leave nothing behind."""
        if hasattr(self, "files"):
            while self.query is not None:
                self._turn(self.query)
            for files in self.files:
                files.close()
            request_lines.BLOCK_BYTES = self.block_bytes
            self.directory.cleanup()

    @rule(writer=st.integers(0, len(WRITERS) - 1), count=st.integers(1, 4), later_s=st.sampled_from((0, 0, 0, 1, -1.5)))
    def write(self, writer: int, count: int, later_s: float) -> None:
        """A router writes requests that ended together; some late ones may have ended before others in the file."""
        lines = []
        for _ in range(count):
            self.count += 1
            lines.append(a_line(self.count, at=self.at + min(later_s, 0.0)))
        self.at += max(later_s, 0.0)
        self.files[writer].write(encoded(lines), most_bytes=FILE_BYTES, kept=self.kept)

    @precondition(lambda self: self.query is None)
    @rule(limit=st.integers(1, 7), model=st.sampled_from((None, "m")))
    def first_page(self, limit: int, model: str | None) -> None:
        """Somebody begins to read."""
        self.promised = {id for id in on_disk(self.path) if model is None or int(id.removeprefix("req-"), 16) % 2 == 0}
        self.heard = []
        self._turn(RequestQuery(limit=limit, model=model))

    @precondition(lambda self: self.query is not None)
    @rule()
    def next_page(self) -> None:
        """And turns a page."""
        assert self.query is not None
        self._turn(self.query)

    def _turn(self, query: RequestQuery) -> None:
        page = trio.run(self.reader.page, query)
        assert len(page.requests) <= query.limit
        self.heard += [line.id for line in page.requests]
        assert len(self.heard) == len(set(self.heard)), "a request came twice"
        self.query = None if page.cursor is None else msgspec.structs.replace(query, cursor=page.cursor)
        if self.query is None:
            assert set(self.heard) <= self.promised, "a request came that is none of these"
            assert set(self.heard) >= self.promised & on_disk(self.path), "a request was left out"


TestPaging = Paging.TestCase
TestPaging.settings = settings(max_examples=150, stateful_step_count=30, deadline=None)


@pytest.mark.trio
@pytest.mark.parametrize("limit", [1, 7, 40])
async def test_requests_of_one_moment_are_each_on_one_page(tmp_path: Path, limit: int) -> None:
    for index in range(3):
        write(tmp_path, [a_line(100 * index + number, at=BEGAN) for number in range(40)], index=index, most_bytes=900)
    found = await pages(RequestReader(tmp_path), RequestQuery(limit=limit))
    assert len(ids(found)) == len(set(ids(found)))
    assert set(ids(found)) == on_disk(tmp_path)


@pytest.mark.trio
async def test_what_is_written_and_put_aside_between_two_pages_moves_none_of_the_rest(tmp_path: Path) -> None:
    reader, query = RequestReader(tmp_path), RequestQuery(limit=5)
    for index in (0, 1):
        write(tmp_path, [a_line(100 * index + number, at=BEGAN) for number in range(30)], index=index, most_bytes=900)
    there = on_disk(tmp_path)
    first = await reader.page(query)
    for index in (0, 1, 2):
        fresh = [a_line(1000 * (index + 1) + number, at=BEGAN) for number in range(30)]
        write(tmp_path, fresh, index=index, most_bytes=900, kept=99)
    rest = await pages(reader, msgspec.structs.replace(query, cursor=first.cursor))
    assert sorted(ids([first, *rest])) == sorted(there)


@pytest.mark.trio
async def test_pages_read_while_two_routers_write_and_put_aside_without_a_pause_leave_none_out(tmp_path: Path) -> None:
    written: list[str] = []

    def write_all(index: int) -> None:
        files = RequestFiles(tmp_path, index)
        for number in range(400):
            line = a_line(1000 * index + number, at=BEGAN)
            files.write(encoded([line]), most_bytes=FILE_BYTES, kept=999)
            written.append(line.id)
        files.close()

    async with trio.open_nursery() as nursery:
        for index in (1, 2):
            nursery.start_soon(trio.to_thread.run_sync, write_all, index)
        reader = RequestReader(tmp_path)
        for _ in range(30):
            before = set(written)
            found = ids(await pages(reader, RequestQuery(limit=60)))
            assert len(found) == len(set(found))
            assert before <= set(found)
    assert sorted(ids(await pages(reader, RequestQuery(limit=60)))) == sorted(written)


@pytest.mark.trio
async def test_a_router_that_has_just_put_its_file_aside_is_among_them(tmp_path: Path) -> None:
    write(tmp_path, [a_line(number) for number in range(3)])
    (tmp_path / "0.jsonl").rename(tmp_path / "0.jsonl.1")
    assert ids(await pages(RequestReader(tmp_path), RequestQuery(limit=2))) == ["req-2", "req-1", "req-0"]
    assert (await RequestReader(tmp_path).told("req-1")).request.id == "req-1"


@pytest.mark.trio
async def test_a_file_that_took_the_inode_of_one_that_is_gone_is_not_read_for_it(tmp_path: Path) -> None:
    write(tmp_path, [a_line(number) for number in range(30)])
    reader = RequestReader(tmp_path)
    first = await reader.page(RequestQuery(limit=5))
    assert first.cursor is not None
    places = places_of(first.cursor)
    (place,) = places.routers
    (tmp_path / "0.jsonl").write_bytes(encoded([a_line(number) for number in range(500, 600)]))
    assert os.stat(tmp_path / "0.jsonl").st_ino == place.inode
    assert ids(await pages(reader, RequestQuery(cursor=first.cursor))) == []


@pytest.mark.trio
async def test_what_is_no_line_is_passed_over_however_long_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(request_lines, "BLOCK_BYTES", 1024)
    write(tmp_path, [a_line(0)])
    with (tmp_path / "0.jsonl").open("ab") as file:
        file.write(b"\x00" * 100_000 + b"\n" + b"torn\n" * 3000)
    write(tmp_path, [a_line(1)])
    found = await pages(RequestReader(tmp_path, scan_bytes=2000), RequestQuery())
    assert ids(found) == ["req-1", "req-0"]
    assert len(found) > 20


def _of(places: object) -> str:
    return base64.urlsafe_b64encode(msgspec.msgpack.encode(places)).rstrip(b"=").decode()


@pytest.mark.trio
@pytest.mark.parametrize(
    "cursor",
    [
        "", "x", "1.0", "1767225600.0~req-1", "nan~req-1", "é", "\x00", "=" * 4, "x" * (MAX_CURSOR_CHARS + 1),
        _of(None), _of([1]), _of([-1, []]), _of([1, [[0, 1, 1]]]), _of([1, [[0, 1, 1, -5]]]), _of([1, []]),
        _of([1, [["0", 1, 1, 5]]]), _of([1, [[0, 1, 1, 5], [0, 1, 1, 9]]]),
    ],
)  # fmt: skip
async def test_a_cursor_of_nobodys_is_refused_with_what_to_do(tmp_path: Path, cursor: str) -> None:
    write(tmp_path, [a_line(number) for number in range(30)])
    with pytest.raises(InvalidInput, match="none to begin with the newest") as refused:
        await RequestReader(tmp_path).page(RequestQuery(cursor=cursor))
    assert refused.value.field == "cursor"


@pytest.mark.trio
async def test_a_cursor_of_another_log_or_of_a_place_that_cannot_be_is_refused(tmp_path: Path) -> None:
    for name in ("here", "there"):
        write(tmp_path / name, [a_line(number) for number in range(30)])
    here = RequestReader(tmp_path / "here")
    page = await here.page(RequestQuery(limit=5))
    assert page.cursor is not None
    assert len((await here.page(RequestQuery(cursor=page.cursor))).requests) == 25
    places = places_of(page.cursor)
    beyond = Places(places.directory, tuple(place._replace(offset=10**6) for place in places.routers))
    for reader, cursor in (
        (RequestReader(tmp_path / "there"), page.cursor),
        (RequestReader(tmp_path / "nowhere"), page.cursor),
        (here, cursor_of(beyond)),
    ):
        with pytest.raises(InvalidInput):
            await reader.page(RequestQuery(cursor=cursor))
