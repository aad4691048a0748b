"""Spans of a data plane as a collector receives them, what engines are told, and collectors that do not serve."""

import gc
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
import trio

from llmgw.core.requests import RequestLine, Seen
from llmgw.core.routing import RoutedExternal
from llmgw.router import seen, span_export
from llmgw.router.ended import Ended
from llmgw.router.exchange import InferenceRequest
from tests.support.collector import Collector, SpanSeen, collector
from tests.support.router_plane import Plane, chat, post, running, settled
from tests.support.scripted_engine import answering, json_answer, streaming
from tests.support.waiting import until

pytestmark = pytest.mark.trio

ANSWER = {"choices": [{"message": {"content": "x"}}], "usage": {"prompt_tokens": 9, "completion_tokens": 4}}
BUSY = json_answer({}, b"503 Service Unavailable")
TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
PARENT = f"00-{TRACE}-{SPAN}-01"


@pytest.fixture
def collecting() -> Iterator[Collector]:
    """A collector that listens."""
    found = collector()
    yield found
    found.close()


def trace_to(plane: Plane, endpoint: str, *, sample: float = 1.0, headers_file: str = "") -> None:
    """Have the plane export its spans."""
    routing = plane.state.routes.routing
    assert routing is not None
    told = Seen(endpoint=endpoint, sample=sample, headers_file=headers_file)
    plane.state.apply(msgspec.structs.replace(routing, seen=told))


def headers(*lines: str) -> bytes:
    """Header lines of a client."""
    return "".join(f"{line}\r\n" for line in lines).encode()


async def spans(collecting: Collector, count: int) -> list[SpanSeen]:
    """Once there are so many."""
    await until(lambda: len(collecting.spans) >= count)
    return collecting.spans


async def test_a_request_is_a_span_under_the_clients_with_a_child_for_each_try(collecting: Collector) -> None:
    async with running(answering(BUSY), streaming("abc", usage=(9, 3))) as plane:
        trace_to(plane, collecting.endpoint)
        for _ in range(2):  # they take turns: one of two begins with the busy one
            answer = await plane.ask(post(chat(stream=True), headers=headers(f"traceparent: {PARENT}")))
            assert answer.status == 200
        found = await spans(collecting, 5)
        received = plane.engines[1].received
    servers = [span for span in found if span.kind == 2]
    assert {(span.trace, span.parent, span.name) for span in servers} == {(TRACE, SPAN, "chat m")}
    failed = next(span for span in found if span.kind == 3 and span.error)
    served = next(span for span in servers if span.id == failed.parent)
    tries = sorted((span for span in found if span.parent == served.id), key=lambda span: span.began_ns)
    assert [(t.kind, t.error, t.attributes["llmgw.replica"]) for t in tries] == [(3, True, "r0"), (3, False, "r1")]
    assert served.began_ns <= tries[0].began_ns <= tries[0].ended_ns <= tries[1].began_ns <= served.ended_ns
    assert served.attributes["gen_ai.request.model"] == "m"
    assert (served.attributes["gen_ai.usage.input_tokens"], served.attributes["gen_ai.usage.output_tokens"]) == (9, 3)
    assert served.attributes["http.response.status_code"] == 200
    assert not served.error
    assert served.resource["service.name"] == "llmgw-router"
    # Each engine was told of the span of its own try.
    answered = {span.id for span in found if span.kind == 3 and not span.error}
    told = {(request.header(b"traceparent") or b"").decode() for request in received}
    assert told == {f"00-{TRACE}-{span}-01" for span in answered}


async def test_a_client_that_does_not_trace_gets_a_trace_of_its_own(collecting: Collector) -> None:
    async with running(answering(json_answer(ANSWER))) as plane:
        trace_to(plane, collecting.endpoint)
        for _ in range(2):
            assert (await plane.ask(post(chat()))).status == 200
        found = await spans(collecting, 4)
    roots = [span for span in found if not span.parent]
    assert len({span.trace for span in roots}) == 2


@pytest.mark.parametrize(
    "said",
    [
        [f"traceparent: 00-{TRACE}-{SPAN}-1"],
        [f"traceparent: ff-{TRACE}-{SPAN}-01"],
        [f"traceparent: 00-{TRACE}-{SPAN}-01-more"],
        [f"traceparent: 00-{'0' * 32}-{SPAN}-01"],
        [f"traceparent: 00-{TRACE}-{'0' * 16}-01"],
        [f"traceparent: 00-{TRACE.upper()}-{SPAN}-01"],
        [f"traceparent: {PARENT}", f"traceparent: {PARENT}"],
        ["traceparent: "],
    ],
)
async def test_a_malformed_parent_is_none(collecting: Collector, said: list[str]) -> None:
    async with running(answering(json_answer(ANSWER))) as plane:
        trace_to(plane, collecting.endpoint)
        assert (await plane.ask(post(chat(), headers=headers(*said, "tracestate: a=b")))).status == 200
        found = await spans(collecting, 2)
        engine = plane.engines[0].received[0]
    assert {span.trace for span in found} != {TRACE}
    assert engine.header(b"tracestate") is None


async def test_a_version_to_come_is_read_as_far_as_it_is_known(collecting: Collector) -> None:
    async with running(answering(json_answer(ANSWER))) as plane:
        trace_to(plane, collecting.endpoint)
        said = headers(f"traceparent: cc-{TRACE}-{SPAN}-01-what-comes", "tracestate: a=b", "tracestate: c=d")
        assert (await plane.ask(post(chat(), headers=said))).status == 200
        found = await spans(collecting, 2)
        engine = plane.engines[0].received[0]
    assert {span.trace for span in found} == {TRACE}
    assert (engine.header(b"traceparent") or b"").startswith(f"00-{TRACE}-".encode())
    assert engine.header(b"tracestate") == b"a=b,c=d"


async def test_what_is_not_sampled_is_exported_by_nobody(collecting: Collector) -> None:
    async with running(answering(json_answer(ANSWER))) as plane:
        trace_to(plane, collecting.endpoint, sample=0.0)
        assert (await plane.ask(post(chat()))).status == 200
        unsampled = f"traceparent: {PARENT[:-2]}00"
        assert (await plane.ask(post(chat(), headers=headers(unsampled)))).status == 200
        sampled = f"traceparent: {PARENT}"
        assert (await plane.ask(post(chat(), headers=headers(sampled)))).status == 200
        found = await spans(collecting, 2)
        flags = [(request.header(b"traceparent") or b"")[-2:] for request in plane.engines[0].received]
        plane.drain.set()
        await plane.returned.wait()
    assert flags == [b"00", b"00", b"01"]
    assert ({span.trace for span in found}, len(found)) == ({TRACE}, 2)


async def test_without_a_collector_the_clients_trace_goes_through_untouched() -> None:
    async with running(answering(json_answer(ANSWER))) as plane:
        assert (await plane.ask(post(chat(), headers=headers(f"traceparent: {PARENT}")))).status == 200
        assert (await plane.ask(post(chat()))).status == 200
        told = [request.header(b"traceparent") for request in plane.engines[0].received]
    assert told == [PARENT.encode(), None]


async def test_an_endpoint_outside_the_cluster_is_told_of_no_trace() -> None:
    async with running(answering(json_answer(ANSWER))) as plane:
        routing = plane.state.routes.routing
        assert routing is not None
        outside = msgspec.structs.replace(routing.replicas[0], external=RoutedExternal())
        plane.state.apply(msgspec.structs.replace(routing, replicas=(outside,)))
        assert (await plane.ask(post(chat(), headers=headers(f"traceparent: {PARENT}")))).status == 200
        assert plane.engines[0].received[0].header(b"traceparent") is None


async def test_headers_come_from_the_operators_file_and_from_no_file_of_the_servers(
    collecting: Collector, tmp_path: Path
) -> None:
    own, secret = tmp_path / "collector.headers", tmp_path / "data" / "secret"
    secret.parent.mkdir()
    for path in (own, secret):
        path.write_text("# the collector's\nx-collector-key: abc123\n")
    async with running(answering(json_answer(ANSWER)), private=(secret.parent,)) as plane:
        trace_to(plane, collecting.endpoint, headers_file=str(own))
        assert (await plane.ask(post(chat()))).status == 200
        await spans(collecting, 2)
        trace_to(plane, collecting.endpoint, headers_file=str(secret))
        assert (await plane.ask(post(chat()))).status == 200
        await settled(plane)
        nursery_ended = plane.returned
        plane.drain.set()
        await nursery_ended.wait()
    assert [request.get("x-collector-key") for request in collecting.requests] == ["abc123"]
    assert collecting.requests[0]["content-type"] == "application/json"
    assert collecting.paths == ["/v1/traces"]


async def test_spans_that_wait_are_sent_when_the_router_ends(collecting: Collector) -> None:
    async with running(answering(json_answer(ANSWER))) as plane:
        trace_to(plane, collecting.endpoint)
        assert (await plane.ask(post(chat()))).status == 200
        plane.drain.set()
        await plane.returned.wait()
        assert len(collecting.spans) == 2


@pytest.mark.parametrize("trouble", ["dead", "refusing", "silent"])
async def test_a_collector_that_does_not_serve_costs_spans_and_nothing_else(
    collecting: Collector, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, trouble: str
) -> None:
    monkeypatch.setattr(span_export, "EXPORT_S", 0.2)
    monkeypatch.setattr(span_export, "FIRST_PAUSE_S", 0.01)
    monkeypatch.setattr(span_export, "MAX_WAITING", 5)
    if trouble == "dead":
        collecting.close()
    elif trouble == "refusing":
        collecting.answer = 500
    else:
        collecting.hold.clear()
    async with running(answering(json_answer(ANSWER)), requests=tmp_path) as plane:
        trace_to(plane, collecting.endpoint)
        for _ in range(20):
            assert (await plane.ask(post(chat()))).status == 200
        with trio.fail_after(60):
            while plane.state.meters.spans_dropped < 20:  # noqa: ASYNC110 - a plain counter
                await trio.sleep(0.01)
        assert len(plane.state.rows) == 20
        await until(lambda: (tmp_path / "0.jsonl").read_bytes().count(b"\n") == 20)
        assert plane.state.meters.log_lines_dropped == 0
        collecting.answer = 200
        collecting.hold.set()
        if trouble != "dead":  # and when it serves again, so do spans
            assert (await plane.ask(post(chat()))).status == 200
            await until(lambda: bool(collecting.spans))


async def test_what_waits_for_a_collector_keeps_no_body_alive(collecting: Collector) -> None:
    collecting.hold.clear()
    async with running(answering(BUSY)) as plane:
        trace_to(plane, collecting.endpoint)
        for _ in range(8):
            assert (await plane.ask(post(chat(user="x" * 2_000_000)))).status in (502, 503)
        await settled(plane)
        gc.collect()
        kept = [
            found for found in gc.get_objects() if isinstance(found, InferenceRequest) and len(found.body) > 1_000_000
        ]
        assert len(kept) <= 1, "only of the request that was served last"
        collecting.hold.set()


async def test_a_fault_in_telling_costs_its_own_lines_and_spans_and_no_request(
    collecting: Collector, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told, faults = Ended.line, 2  # one in each of the two writers

    def line(ended: Ended) -> RequestLine:
        nonlocal faults
        if faults:
            faults -= 1
            raise RuntimeError("a fault of its own")
        return told(ended)

    monkeypatch.setattr(seen, "AGAIN_S", 0.01)
    monkeypatch.setattr(Ended, "line", line)
    async with running(answering(json_answer(ANSWER)), requests=tmp_path) as plane:
        trace_to(plane, collecting.endpoint)
        with trio.fail_after(60):
            while not collecting.spans or not (tmp_path / "0.jsonl").exists():
                assert (await plane.ask(post(chat()))).status == 200
                await trio.sleep(0.1)
