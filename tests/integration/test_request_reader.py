"""The request log read back from real files: every request once, whatever the pages, while files are put aside."""

from pathlib import Path

import msgspec
import pytest

from llmgw.api.request_types import RequestQuery
from llmgw.control import request_lines
from llmgw.control.requests import RequestReader
from llmgw.core.errors import NotFound
from llmgw.router.request_files import RequestFiles
from tests.support.request_logs import BEGAN, a_line, pages, write

pytestmark = pytest.mark.trio


async def test_pages_hold_every_request_of_all_routers_once_the_newest_first(tmp_path: Path) -> None:
    write(tmp_path, [a_line(number) for number in range(0, 300, 2)], most_bytes=3000)
    write(tmp_path, [a_line(number) for number in range(1, 300, 2)], index=12, most_bytes=5000)
    found = await pages(RequestReader(tmp_path), RequestQuery(limit=7))
    lines = [line for page in found for line in page.requests]
    newest_first = [f"req-{number:x}" for number in range(299, -1, -1)]
    assert [line.id for line in lines] == newest_first[: len(lines)]
    assert len(lines) > 100
    assert {line.router for line in lines} == {0, 12}
    assert all(len(page.requests) == 7 for page in found[:-1])


async def test_a_large_log_is_looked_through_a_part_at_a_time_and_none_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(request_lines, "BLOCK_BYTES", 1024)
    write(tmp_path, [a_line(number) for number in range(2000)], most_bytes=40_000)
    wanted = msgspec.json.encode(a_line(3, key_id="k2")) + b"\n"
    (tmp_path / "0.jsonl.99").write_bytes(wanted)  # the oldest of all
    reader = RequestReader(tmp_path, scan_bytes=20_000)
    found = await pages(reader, RequestQuery(key="k2"))
    assert [line.id for page in found for line in page.requests] == ["req-3"]
    assert len(found) > 5
    every = await pages(reader, RequestQuery(limit=1000))
    assert len({line.id for page in every for line in page.requests}) == 2000


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        (RequestQuery(model="m"), {0, 2, 4, 6}),
        (RequestQuery(model="alias"), {3}),
        (RequestQuery(key="ci"), {2}),
        (RequestQuery(team="ml"), {5}),
        (RequestQuery(status="failed"), {1, 4, 6}),
        (RequestQuery(status="ok"), {0, 2, 3, 5}),
        (RequestQuery(status="5xx"), {4}),
        (RequestQuery(status="429"), {1}),
        (RequestQuery(waited_ms=100), {3, 5}),
        (RequestQuery(since=BEGAN + 0.4), {4, 5, 6}),
    ],
)
async def test_filters_choose(tmp_path: Path, query: RequestQuery, expected: set[int]) -> None:
    write(
        tmp_path,
        [
            a_line(0),
            a_line(1, status=429, end="refused"),
            a_line(2, key="ci"),
            a_line(3, asked="alias", waited_ms=100.0),
            a_line(4, status=502, end="failed"),
            a_line(5, team="ml", waited_ms=5000.0),
            a_line(6, end="lost"),
        ],
    )
    page = await RequestReader(tmp_path).page(query)
    assert {int(line.id.removeprefix("req-"), 16) for line in page.requests} == expected
    assert page.cursor is None


async def test_torn_and_foreign_lines_are_passed_over(tmp_path: Path) -> None:
    write(tmp_path, [a_line(0)])
    with (tmp_path / "0.jsonl").open("ab") as file:
        file.write(b'{"id":"req-9","at":17\n\x00\xff\n[]\n')
    write(tmp_path, [a_line(1)])
    (tmp_path / "notes.jsonl").write_text("not a router's\n")
    assert [line.id for line in (await RequestReader(tmp_path).page(RequestQuery())).requests] == ["req-1", "req-0"]
    assert (await RequestReader(tmp_path / "nowhere").page(RequestQuery())).requests == ()


async def test_one_request_is_found_by_its_id_wherever_it_is(tmp_path: Path) -> None:
    write(tmp_path, [a_line(number) for number in range(500)], most_bytes=4000, kept=50)
    write(tmp_path, [a_line(999, status=503, end="failed")], index=1)
    reader = RequestReader(tmp_path)
    told = await reader.told("req-3e7")
    assert (told.request.router, told.why) == (1, ("failed with 503: nobody could be asked",))
    assert (await reader.told("req-0")).request.at == BEGAN
    for unknown in ("req-", "req-3e70", 'req-3e7","at', "", "x" * 500, "req-é"):
        with pytest.raises(NotFound):
            await reader.told(unknown)


async def test_two_routers_of_one_index_share_a_file_and_put_it_aside_once(tmp_path: Path) -> None:
    one, other = RequestFiles(tmp_path, 0), RequestFiles(tmp_path, 0)
    for number in range(60):
        data = msgspec.json.encode(a_line(number)) + b"\n"
        (one, other)[number % 2].write(data, most_bytes=1000, kept=50)
    one.close()
    other.close()
    found = await RequestReader(tmp_path).page(RequestQuery(limit=1000))
    assert [line.id for line in found.requests] == [f"req-{number:x}" for number in range(59, -1, -1)]
    assert all(path.stat().st_size <= 1000 for path in tmp_path.iterdir())


async def test_a_file_that_the_other_router_just_put_aside_costs_no_older_one(tmp_path: Path) -> None:
    files = RequestFiles(tmp_path, 0)
    files.write(b"{}\n", most_bytes=1000, kept=3)
    for number, name in enumerate(("0.jsonl.1", "0.jsonl.2")):
        (tmp_path / name).write_bytes(msgspec.json.encode(a_line(number)) + b"\n")
    (tmp_path / "0.jsonl").unlink()
    files._put_aside(0, 3)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["0.jsonl.1", "0.jsonl.2"]
