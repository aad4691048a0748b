"""Downloads of the mirror reach a collector: whence, carried on from where, how much, and what went wrong."""

import json
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio

from llmgw.control.download_spans import MAX_WAITING, DownloadSpans, export_of
from llmgw.core.requests import Seen
from llmgw.core.weights import SetState
from llmgw.mirror.fetched import FetchedFile, FetchedSet
from llmgw.mirror.service import Mirror
from llmgw.mirror.source import MirrorConfig
from tests.support.collector import Collector, SpanSeen, collector, decode
from tests.support.mirrors import until_here
from tests.support.rawhttp import Asked, answers, cut, partial, raw_server, whole
from tests.support.weights import quick, tiny_llama

DATA = tiny_llama(padding=2_000_000)
CUT = int(0.4 * len(DATA))
FETCHED = FetchedSet(
    source="hf:org/m",
    began=1.0,
    ended=3.5,
    files=(FetchedFile(name="m.gguf", began=1.5, ended=3.0, resumed_from=4, bytes=9, failed="no space"),),
    failed="no space",
)


@pytest.fixture
def collecting() -> Iterator[Collector]:
    found = collector()
    yield found
    found.close()


@asynccontextmanager
async def traced(root: Path, seen: Seen) -> AsyncIterator[tuple[Mirror, DownloadSpans]]:
    """A mirror whose downloads are traced, until the block ends."""
    spans = DownloadSpans(lambda: seen, private=())
    mirror = Mirror(root, config=MirrorConfig(policy=quick(attempts=1)), on_fetched=spans.add)
    failure: Exception | None = None
    async with trio.open_nursery() as nursery:
        await nursery.start(spans.run)
        await nursery.start(mirror.run)
        try:
            yield mirror, spans
        except Exception as error:  # raised below as it is, without the nursery's group around it
            failure = error
        nursery.cancel_scope.cancel()
    if failure is not None:
        raise failure


async def settled(mirror: Mirror, source: str) -> SetState:
    mirror.ensure(source, now=True)

    def state() -> SetState:
        status = mirror.status(source)
        assert status is not None
        return status.state

    await until_here(lambda: state() in (SetState.READY, SetState.FAILED))
    return state()


def rest(asked: Asked) -> bytes:
    return whole(DATA) if asked.first_byte is None else partial(DATA, asked.first_byte)


@pytest.mark.trio
async def test_every_try_is_a_trace_with_its_files(tmp_path: Path, collecting: Collector) -> None:
    keys = tmp_path / "headers"
    keys.write_text("x-key: abc\n")
    seen = Seen(endpoint=collecting.endpoint, headers_file=str(keys))
    async with (
        raw_server(answers(cut(whole(DATA), 0.4, DATA), rest)) as server,
        traced(tmp_path / "mirror", seen) as (mirror, _),
    ):
        source = f"{server.url}/m.gguf?signature=secret"
        assert await settled(mirror, source) is SetState.FAILED
        assert await settled(mirror, source) is SetState.READY
        await until_here(lambda: len(collecting.spans) == 4)
        shown = f"{server.url}/m.gguf"
    first, part, second, rest_of_it = collecting.spans
    assert [span.parent for span in collecting.spans] == ["", first.id, "", second.id]
    assert len({span.trace for span in collecting.spans}) == 2
    assert [span.error for span in collecting.spans] == [True, True, False, False]
    assert [figures(span) for span in collecting.spans] == [(0, CUT), (0, CUT), (CUT, len(DATA)), (CUT, len(DATA))]
    assert (first.name, part.name) == (f"fetch {shown}", "download m.gguf")
    assert {span.attributes["llmgw.source"] for span in collecting.spans} == {shown}
    assert rest_of_it.attributes["llmgw.file"] == "m.gguf"
    assert first.resource["service.name"] == "llmgw-mirror"
    assert all(span.began_ns <= span.ended_ns for span in collecting.spans)
    assert collecting.requests[0]["x-key"] == "abc"
    assert "secret" not in str(collecting.spans)


def figures(span: SpanSeen) -> tuple[object, object]:
    """Where it was carried on from, and how much is here."""
    return span.attributes["llmgw.resumed_from"], span.attributes["llmgw.bytes"]


@pytest.mark.trio
async def test_a_file_that_began_anew_was_carried_on_from_nothing(tmp_path: Path, collecting: Collector) -> None:
    async with (
        raw_server(answers(cut(whole(DATA), 0.4, DATA), lambda _: whole(DATA))) as server,
        traced(tmp_path / "mirror", Seen(endpoint=collecting.endpoint)) as (mirror, _),
    ):
        source = f"{server.url}/m.gguf"
        await settled(mirror, source)
        assert await settled(mirror, source) is SetState.READY
        await until_here(lambda: len(collecting.spans) == 4)
    assert [figures(span) for span in collecting.spans[2:]] == [(0, len(DATA))] * 2


@pytest.mark.trio
async def test_what_nobody_collects_is_not_kept(tmp_path: Path, collecting: Collector) -> None:
    spans = DownloadSpans(Seen, private=())
    for _ in range(2 * MAX_WAITING):
        spans.add(FETCHED)
    assert collecting.requests == []


@pytest.mark.trio
@pytest.mark.parametrize("trouble", ["refuses", "is away", "has no headers", "is overrun", "has a strange proxy"])
async def test_a_collector_in_trouble_costs_spans_and_no_download(
    tmp_path: Path,
    collecting: Collector,
    trouble: str,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    collecting.answer = 503 if trouble == "refuses" else 200
    missing = str(tmp_path / "none") if trouble == "has no headers" else ""
    endpoint = "http://127.0.0.1:9/v1/traces" if trouble == "is away" else collecting.endpoint
    if trouble == "has a strange proxy":
        endpoint = "https://otel.test/v1/traces"
        monkeypatch.setenv("https_proxy", "http://proxy:notaport")
    async with (
        raw_server(answers(rest)) as server,
        traced(tmp_path / "mirror", Seen(endpoint=endpoint, headers_file=missing)) as (mirror, spans),
    ):
        if trouble == "is overrun":
            for _ in range(MAX_WAITING + 2):
                spans.add(FETCHED)
        assert await settled(mirror, f"{server.url}/m.gguf") is SetState.READY
        await until_here(lambda: "takes nothing of the mirror's downloads" in caplog.text or trouble == "is overrun")
    assert caplog.text.count("takes nothing of the mirror's downloads") == 1


def test_an_export_is_what_a_collector_reads() -> None:
    whole_set, file = decode(json.loads(export_of(FETCHED, instance=f"n{os.getpid()}")))
    assert (whole_set.began_ns, whole_set.ended_ns) == (1_000_000_000, 3_500_000_000)
    assert (file.began_ns, file.ended_ns, file.error) == (1_500_000_000, 3_000_000_000, True)
