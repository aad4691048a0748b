"""The benchmark's own tools tell a right stream from a wrong one, and stay within their bounds."""

import contextlib
import os
import shutil
import socket
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.bench.load import LAST_CHUNK, LoadPlan, check_stream, percentiles, run_load
from tests.bench.native import compile_engine, engine
from tests.bench.proc import cpu_ms, memory
from tests.bench.report import spread, table
from tests.bench.terminal import Silent, on_terminal

needs_cc = pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler (apt install gcc libc6-dev)")


def plan(port: int, *, clients: int = 8, streams: int = 40, seconds: float = 10.0, tokens: int = 16) -> LoadPlan:
    return LoadPlan(port=port, clients=clients, streams=streams, seconds=seconds, tokens=tokens)


@needs_cc
@pytest.mark.parametrize("gap_us", [0, 200, 2000])
def test_the_engine_streams_and_the_load_counts(tmp_path: Path, gap_us: int) -> None:
    with engine(compile_engine(tmp_path), gap_us=gap_us, tokens=16) as (pid, port):
        seen = run_load(plan(port))
        assert (seen.requests, seen.wrong) == (40, {})
        assert seen.total_ms[0] >= 14 * gap_us / 1000, "the first gap of a stream may be shorter"
        assert cpu_ms([pid]) >= 0
        assert memory([pid]).rss > 0
        assert run_load(plan(port, tokens=17, streams=8)).wrong == {"16 tokens": 8}


@needs_cc
def test_the_engine_gives_usage_to_those_who_ask(tmp_path: Path) -> None:
    body = b'{"stream_options":{"include_usage":true}}'
    with (
        engine(compile_engine(tmp_path), gap_us=0, tokens=2) as (_, port),
        socket.create_connection(("127.0.0.1", port), timeout=5) as client,
    ):
        client.sendall(b"POST / HTTP/1.1\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body))
        answer = b""
        while not answer.endswith(LAST_CHUNK):
            answer += client.recv(65536)
    assert b'"completion_tokens":2' in answer
    assert check_stream(answer, 2) == "usage that nobody asked for"


@contextlib.contextmanager
def answering(answer: bytes) -> Iterator[int]:
    """A server that gives the first client `answer` and closes."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            client, _ = listener.accept()
            with client:
                client.recv(65536)
                client.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        yield listener.getsockname()[1]
        thread.join()


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (b"HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\n\r\n", "HTTP/1.1 401 Unauthorized"),
        (b"HTTP/1.1 200 OK\r\n\r\ndata: x\n\n", "closed early"),
        (b"HTTP/1.1 200 OK\r\n\r\n" + LAST_CHUNK, "0 tokens"),
        (b"", "closed without an answer"),
    ],
)
def test_a_wrong_stream_is_told(answer: bytes, reason: str) -> None:
    with answering(answer) as port:
        seen = run_load(plan(port, clients=1, streams=1))
    assert (seen.requests, seen.wrong) == (0, {reason: 1})


def test_time_is_a_bound() -> None:
    with answering(b"HTTP/1.1 200 OK\r\n\r\n") as port, socket.create_server(("127.0.0.1", 0)) as silent:
        assert run_load(plan(silent.getsockname()[1], clients=2, seconds=0.1)).requests == 0
        run_load(plan(port, clients=1, streams=1))


def test_figures_are_laid_out() -> None:
    assert percentiles([]) == (0.0, 0.0)
    assert percentiles([3.0, 1.0, 2.0]) == (2.0, 3.0)
    assert spread([1.0, 3.0, 2.0], 1) == "2.0 (1.0–3.0)"
    assert table([["a", "b"], ["long", "c"]]) == "a     b\nlong  c"
    assert cpu_ms([os.getpid()]) > 0


def test_a_terminal_is_read_and_typed_into() -> None:
    with on_terminal([sys.executable, "-c", "print(input()[::-1]); input()"], columns=40, rows=5) as terminal:
        after = terminal.press("abc\n")
        assert terminal.wait_for(b"cba\r\n", after=after, within_s=10) >= terminal.began
        assert terminal.total >= len("abc\r\ncba\r\n")
        with pytest.raises(Silent):
            terminal.wait_for(b"cba", after=terminal.total, within_s=0.1)
    assert terminal.process.returncode is not None
