"""The parts of the benchmark that load gateways: what they see, what they count, and what they say when it is wrong."""

import contextlib
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from llmgw.core.frames import FrameDecoder, encode_frame
from llmgw.core.routing import (
    Activity,
    ControlMessage,
    KeyAnswer,
    KeyAsk,
    RouterHello,
    RouterMessage,
    Routing,
    ScopeTable,
    UsageBatch,
    UsageRow,
    UsageStored,
)
from tests.bench import venvs
from tests.bench.feed import TEAM, Feed
from tests.bench.firsttoken import FirstTokenFigures, Round, first_token_text
from tests.bench.gateways import Gateway, clients_for
from tests.bench.load import LAST_CHUNK, LoadPlan
from tests.bench.native import HERE, Missing, Timed, client_argv, compile_client, compile_engine, engine, time_load
from tests.bench.openstreams import OpenFigures, OpenStreams, open_streams_text, raise_descriptors
from tests.bench.proc import Memory, descriptors, tree, tree_cpu_ms
from tests.bench.report import MIB, Figures, Sample, ceiling, text
from tests.bench.routers import RoutersFigures, Share, routers_text
from tests.bench.steady import SAMPLES, Reading, SteadyFigures, steady_text

needs_cc = pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler (apt install gcc libc6-dev)")
DEADLINE_S = 20.0
SEEN = Timed(right=10, wrong=0, why="", open_most=4, seconds=1.0, first_us=(1000, 2000), total_us=(5000, 9000))


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    directory = tmp_path_factory.mktemp("programs")
    return compile_engine(directory), compile_client(directory)


def plan(port: int, *, clients: int = 8, streams: int = 40, seconds: float = 10.0, tokens: int = 16) -> LoadPlan:
    return LoadPlan(port=port, clients=clients, streams=streams, seconds=seconds, tokens=tokens)


@needs_cc
def test_the_client_reads_streams_and_times_their_first_token(programs: tuple[Path, Path]) -> None:
    with engine(programs[0], gap_us=2000, tokens=16) as (_, port):
        seen = time_load(programs[1], plan(port), spread_us=100)
        assert (seen.right, seen.wrong, seen.open_most) == (40, 0, 8)
        assert 0 < seen.first_us[0] <= seen.first_us[1] < seen.total_us[1]
        assert seen.total_us[0] >= 14 * 2000, "the first gap of a stream may be shorter"
        short = time_load(programs[1], plan(port, streams=8, tokens=17), spread_us=0)
        assert (short.right, short.wrong, short.why) == (0, 8, "16 tokens")
        late = time_load(programs[1], plan(port, clients=4, streams=1_000_000, seconds=0.3), spread_us=0)
        assert 0 < late.right < 1_000_000


@needs_cc
def test_the_client_says_when_all_are_open(programs: tuple[Path, Path]) -> None:
    with engine(programs[0], gap_us=20_000, tokens=4) as (_, port):
        argv = client_argv(programs[1], plan(port, clients=50, streams=50, tokens=4), spread_us=200)
        said = subprocess.run(argv, capture_output=True, text=True, timeout=DEADLINE_S, check=True).stdout
    first, last = said.splitlines()
    assert first == "open"
    assert msgspec.json.decode(last, type=Timed).open_most == 50


@contextlib.contextmanager
def dripping(answer: bytes) -> Iterator[int]:
    """A server that gives its first client `answer`, a byte a segment."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            client, _ = listener.accept()
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with client, contextlib.suppress(OSError):
                client.recv(65536)
                client.sendall(answer[:64])
                for byte in answer[64:]:
                    client.sendall(bytes([byte]))

        thread = threading.Thread(target=serve)
        thread.start()
        yield listener.getsockname()[1]
        thread.join(DEADLINE_S)


HEAD = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\nX-Filler: 0123456789\r\n\r\n"
)
TOKEN = b'data: {"choices":[{"delta":{"content":" tok"}}]}\n\n'


@needs_cc
@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (HEAD + 3 * TOKEN + b"data: [DONE]\n\n" + LAST_CHUNK, ""),
        (HEAD + 2 * TOKEN + b"data: [DONE]\n\n" + LAST_CHUNK, "2 tokens"),
        (HEAD + 3 * TOKEN + LAST_CHUNK, "no [DONE]"),
        (HEAD + 3 * TOKEN + b'data: {"usage":1}\n\ndata: [DONE]\n\n' + LAST_CHUNK, "usage that nobody asked for"),
        (HEAD + 3 * TOKEN, "closed early"),
        (
            b"HTTP/1.1 429 Too Many Requests\r\nContent-Length: 0\r\nX-Filler: 0123456789012345678\r\n\r\n",
            "HTTP/1.1 429 Too",
        ),
        (b"", "closed without an answer"),
    ],
)
def test_the_client_counts_across_reads_and_tells_what_is_wrong(
    programs: tuple[Path, Path], answer: bytes, why: str
) -> None:
    with dripping(answer) as port:
        seen = time_load(programs[1], plan(port, clients=1, streams=1, tokens=3), spread_us=0)
    assert seen.why[:16] == why[:16]
    assert (seen.right, seen.wrong) == ((0, 1) if why else (1, 0))


def test_cpu_of_children_counts_also_when_they_are_gone() -> None:
    burn = "import time\nend = time.process_time() + 0.2\nwhile time.process_time() < end: pass\n"
    parent = f"import subprocess, sys\nsubprocess.run([sys.executable, '-c', {burn!r}])\nprint('burnt', flush=True)\n"
    argv = [sys.executable, "-c", parent + "sys.stdin.read()"]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        assert process.stdout.readline() == b"burnt\n"
        assert tree([process.pid]) == [process.pid]
        assert tree_cpu_ms([process.pid]) >= 200
        assert descriptors([process.pid]) >= 3
        process.stdin.close()
        process.wait(DEADLINE_S)
    assert descriptors([process.pid]) == 0
    assert tree_cpu_ms([process.pid]) == 0


class _Router:
    """The router's side of a feed."""

    def __init__(self, path: Path, index: int) -> None:
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.settimeout(DEADLINE_S)
        self._socket.connect(str(path))
        self._frames, self._waiting = FrameDecoder(), list[bytes]()
        self.tell(RouterHello(pid=index, index=index, version="0", port=1))

    def tell(self, message: RouterMessage) -> None:
        self._socket.sendall(encode_frame(msgspec.msgpack.encode(message)))

    def hear(self) -> ControlMessage:
        while not self._waiting:
            self._waiting += self._frames.feed(self._socket.recv(65536))
        return msgspec.msgpack.decode(self._waiting.pop(0), type=ControlMessage)

    def close(self) -> None:
        self._socket.close()


def test_the_feed_serves_routers_side_by_side_with_limits_and_prices(tmp_path: Path) -> None:
    feed = Feed(engine_port=1, digest="d")
    with feed.serving(tmp_path / "feed.sock"):
        routers = [_Router(tmp_path / "feed.sock", index) for index in range(2)]
        for index, router in enumerate(routers):
            routing, scopes = router.hear(), router.hear()
            assert isinstance(routing, Routing)
            assert routing.models[0].prices is not None
            assert isinstance(scopes, ScopeTable)
            assert [scope.id for scope in scopes.scopes] == [TEAM]
            router.tell(KeyAsk(digest="d"))
            answer = router.hear()
            assert isinstance(answer, KeyAnswer)
            assert answer.record is not None
            assert answer.record.team == TEAM
            assert answer.record.limits.rpm
            assert answer.record.budgets
            router.tell(Activity(requests=7 + index))
            row = UsageRow(id="u", at=0, key_id="bench", model="bench", status=200, output_tokens=5, cost_micros=9)
            router.tell(UsageBatch(seq=1, rows=(row,)))
            assert router.hear() == UsageStored(seq=1)
        assert feed.answered == {0: 7, 1: 8}
        assert (feed.usage_rows, feed.output_tokens, feed.cost_micros) == (2, 10, 18)
        for router in routers:
            router.close()


def sample(**values: float) -> Sample:
    """A sample of a gateway that keeps nothing busy."""
    zero = dict.fromkeys(("cpu_ms", "engine_cpu_ms", "per_s", "p50_ms", "p99_ms", "cores"), 0.0)
    zero |= dict.fromkeys(("engine_cores", "load_cores", "strangers"), 0.0)
    return Sample(gateway="g", clients=1, requests=1, errors=0, **(zero | values))


@pytest.mark.parametrize(
    ("values", "what"),
    [
        ({"cores": 0.2, "engine_cores": 0.3}, "pace"),
        ({"cores": 0.97, "load_cores": 0.2}, "gateway"),
        ({"cores": 0.5, "engine_cores": 0.95, "load_cores": 0.91}, "engine+load"),
        ({"cores": 0.5, "engine_cores": 0.5, "load_cores": 0.3, "strangers": 4096.0}, "machine"),
    ],
)
def test_what_kept_a_figure_from_being_higher_is_named(values: dict[str, float], what: str) -> None:
    assert ceiling([sample(**values)] * 3) == what


def test_slow_gateways_get_few_clients() -> None:
    assert clients_for(Gateway(name="a", port=1), 64) == 64
    assert clients_for(Gateway(name="a", port=1, few=True), 64) < 64


@pytest.mark.parametrize("name", ["vllm-router", "litellm"])
def test_every_file_of_another_gateway_is_pinned_by_its_hash(name: str) -> None:
    lines = [line for line in (HERE / f"{name}.txt").read_text().splitlines() if not line.startswith("#")]
    assert all(line.count("==") == 1 and line.count(" --hash=sha256:") == 1 for line in lines)
    assert f"{name}=={venvs.version(name)} " in "\n".join(lines)
    assert "://" not in "".join(lines)


def test_what_cannot_be_installed_is_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(venvs, "HERE", tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    for name in ("PIP_NO_INDEX", "PIP_CONFIG_FILE"):
        monkeypatch.setenv(name, "1" if name == "PIP_NO_INDEX" else "/dev/null")
    (tmp_path / "rival.txt").write_text(f"rival==1.0 --hash=sha256:{'0' * 64}\n")
    for _ in range(2):
        with pytest.raises(Missing, match="pip could not install rival: ERROR: "):
            venvs.installed("rival")


def test_more_descriptors_than_the_machine_gives_are_a_sentence() -> None:
    with pytest.raises(Missing, match="descriptors"):
        raise_descriptors(1 << 40)


def readings(pss: list[int], open_: list[int]) -> SteadyFigures:
    """A run with these readings."""
    made = [
        Reading(at_s=float(i), rss=p * MIB, pss=p * MIB, descriptors=d, spool_bytes=0)
        for i, (p, d) in enumerate(zip(pss, open_, strict=True))
    ]
    return SteadyFigures(minutes=1, readings=made, seen=SEEN, cpu_ms=0.5)


def test_steady_is_flat_or_says_that_it_is_not() -> None:
    flat = readings([30] * SAMPLES, [80] * SAMPLES)
    assert flat.flat
    assert "\nflat: PSS +0.0 MiB" in steady_text(flat)
    leaky = readings([30 + i // 8 for i in range(SAMPLES)], [80] * SAMPLES)
    assert not leaky.flat
    assert "\nnot flat: PSS +6.0 MiB" in steady_text(leaky)
    assert not readings([30] * SAMPLES, [80 + i for i in range(SAMPLES)]).flat


def test_added_time_is_to_the_engines_own_of_the_same_round() -> None:
    figures = FirstTokenFigures()
    for first in (1000, 3000):
        for name, added in (("direct", 0), ("ours", 500)):
            seen = replace(SEEN, first_us=(first + added, first + 2 * added))
            figures.rounds.append(Round(gateway=name, clients=32, seen=seen, cores=0.1))
    figures.rounds.sort(key=lambda r: r.gateway)
    assert not figures.wrong()
    (row,) = [line for line in first_token_text(figures).splitlines() if line.startswith("ours")]
    assert "0.50 (0.50–0.50)" in row
    assert "1.00 (1.00–1.00)" in row


def test_streams_that_are_missing_are_told() -> None:
    held = Memory(rss=MIB, pss=MIB)
    one = OpenStreams(gateway="g", before=held, at=held, after=held, descriptors=1, cores=0.0, seen=SEEN)
    figures = OpenFigures(gateways=[one])
    assert figures.wrong() == ["g: 10 of 5000 right; "]
    assert "10 of 5000" in open_streams_text(figures)


def test_a_request_of_two_routers_is_weighed_by_who_answered_it() -> None:
    figures = RoutersFigures(checked={1: "ok", 2: "ok"})
    for routers, index, requests, cpu_ms in ((1, 0, 100, 0.2), (2, 0, 75, 0.2), (2, 1, 25, 0.4)):
        share = Share(routers=routers, index=index, requests=requests, cpu_ms=cpu_ms, cores=0.1, per_s=50.0)
        figures.shares.append(share)
    assert "0.200 ms with one router, 0.250 ms with two: 1.25×" in routers_text(figures)


def test_what_came_wrong_stands_in_the_report() -> None:
    figures = Figures(machine={})
    figures.add("steady", object(), "a table", ["3 streams: closed early"])
    shown = text(figures)
    assert "a table" in shown
    assert "WRONG: steady: 3 streams: closed early" in shown
