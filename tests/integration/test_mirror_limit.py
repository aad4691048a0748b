"""Downloads under a limit of speed: cut, resumed, several at once and changed on the way, they end right, in time."""

import hashlib
import random
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

from llmgw.core.weights import SetState
from llmgw.mirror.source import MirrorConfig
from llmgw.transfer.download import MOVED_BYTES, Downloaded, Wanted, download
from llmgw.transfer.errors import Interrupted
from llmgw.transfer.http import RECEIVE_BYTES, Remote, Timeouts
from llmgw.transfer.limit import PIECE_S, Limit
from tests.support.faulty import FaultyFile
from tests.support.mirrors import running_mirror, until_here
from tests.support.paced import HeldLimit, PacedLimit
from tests.support.rawhttp import Asked, Script, answers, cut, files, partial, raw_server, whole
from tests.support.weights import quick, tiny_llama

DATA = tiny_llama(padding=3_000_000)
OTHER = tiny_llama(padding=3_000_000)
SHA = hashlib.sha256(DATA).hexdigest()
RATE = 1_000_000
SURVIVED = (
    "cut",
    "wrong bytes",
    "200 to a range",
    "slow",
    "several ranges",
    "a range in gzip",
    "less than the range",
    "redirect",
)


def wanted(root: Path, name: str = "m.gguf") -> Wanted:
    return Wanted(target=root / name, size=len(DATA), sha256=SHA)


async def fetch(url: str, want: Wanted, limit: Limit, **policy: object) -> Downloaded:
    return await download(Remote(url=url), want, policy=quick(limit=limit, **policy))


def in_order(origin: FaultyFile, *faults: str) -> Script:
    """One fault an answer, then right ones."""
    queue = list(faults)

    async def script(asked: Asked, stream: trio.SocketStream) -> None:
        origin.next_life(queue.pop(0) if queue else "", 2)
        await origin.script(asked, stream)

    return script


@pytest.mark.trio
@pytest.mark.parametrize("fault", SURVIVED)
async def test_a_limited_download_survives_what_others_do_and_takes_its_time(tmp_path: Path, fault: str) -> None:
    origin, limit = FaultyFile(DATA, random.Random(fault)), PacedLimit(RATE)
    want = wanted(tmp_path)
    async with raw_server(in_order(origin, "cut", fault)) as server:
        got = await fetch(f"{server.url}/m.gguf", want, limit)
    assert (got.size, got.sha256) == (len(DATA), SHA)
    assert want.target.read_bytes() == DATA
    assert [path.name for path in tmp_path.iterdir()] == ["m.gguf"]
    assert sum(limit.pays) >= len(DATA)
    assert limit.took_s == pytest.approx(sum(limit.pays) / RATE, abs=0.001)


@pytest.mark.trio
async def test_the_sum_of_downloads_that_are_cut_and_carried_on_holds(tmp_path: Path) -> None:
    limit = PacedLimit(RATE)
    origins = [FaultyFile(DATA, random.Random(i)) for i in range(6)]
    scripts = [in_order(origin, "cut", "cut", "less than the range", "cut") for origin in origins]

    async def script(asked: Asked, stream: trio.SocketStream) -> None:
        await scripts[int(asked.target.removeprefix("/"))](asked, stream)

    async with raw_server(script) as server, trio.open_nursery() as nursery:
        for i in range(len(origins)):
            nursery.start_soon(fetch, f"{server.url}/{i}", wanted(tmp_path, f"{i}.gguf"), limit)
    assert all((tmp_path / f"{i}.gguf").read_bytes() == DATA for i in range(len(origins)))
    assert sum(limit.pays) == len(origins) * len(DATA), "no byte came twice"
    assert limit.took_s == pytest.approx(len(origins) * len(DATA) / RATE, abs=0.001)


@pytest.mark.trio
async def test_no_more_than_a_piece_is_taken_ahead_of_what_is_let_through(tmp_path: Path) -> None:
    limit = PacedLimit(RATE)
    async with raw_server(answers(whole(DATA))) as server:
        await fetch(f"{server.url}/m.gguf", wanted(tmp_path), limit)
    with_header, *pays = limit.pays
    assert with_header <= RECEIVE_BYTES
    assert max(pays) <= RATE * PIECE_S


@pytest.mark.trio
async def test_progress_is_told_several_times_a_second_however_slow(tmp_path: Path) -> None:
    limit, told = PacedLimit(RATE), [0.0]

    def report(_done: int, _total: int) -> None:
        told.append(limit.took_s)

    async with raw_server(answers(whole(DATA))) as server:
        await download(Remote(url=f"{server.url}/m"), wanted(tmp_path), report=report, policy=quick(limit=limit))
    assert max(after - before for before, after in pairwise(told)) <= 0.5


@pytest.mark.trio
async def test_waiting_for_the_limit_is_not_the_servers_silence(tmp_path: Path, mock_clock: MockClock) -> None:
    async def wait(_event: trio.Event, seconds: float) -> None:
        mock_clock.jump(seconds)
        await trio.lowlevel.checkpoint()

    limit = Limit(wait=wait)
    limit.set(RATE // 10)
    async with raw_server(answers(whole(DATA))) as server:
        remote = Remote(url=f"{server.url}/m.gguf", timeouts=Timeouts(stall_s=0.01))
        await download(remote, wanted(tmp_path), policy=quick(limit=limit, attempts=1))
        assert server.ranges == [None]
    assert trio.current_time() > 25


@pytest.mark.trio
async def test_a_download_that_moves_is_never_given_up(tmp_path: Path) -> None:
    want = wanted(tmp_path)
    pauses: list[float] = []

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)
        await trio.lowlevel.checkpoint()

    def crumb(asked: Asked) -> bytes:
        start = asked.first_byte or 0
        answer = partial(DATA, start) if start else whole(DATA)
        return answer[: answer.index(b"\r\n\r\n") + 4 + MOVED_BYTES]

    async with raw_server(answers(crumb)) as server:
        await fetch(f"{server.url}/m.gguf", want, PacedLimit(RATE), attempts=2, sleep=sleep)
        assert server.ranges == [None, *range(MOVED_BYTES, len(DATA), MOVED_BYTES)]
    assert pauses == [2.0] * (len(server.ranges) - 1)
    assert want.target.read_bytes() == DATA


def from_its_beginning(asked: Asked) -> bytes:
    """A server without ranges that is cut at two thirds."""
    return cut(whole(DATA), 2 / 3, DATA)


def wrong_rest(asked: Asked) -> bytes:
    """Half of the file, and the rest of another."""
    return cut(whole(DATA), 0.5, DATA) if asked.first_byte is None else partial(OTHER, asked.first_byte)


@pytest.mark.trio
@pytest.mark.parametrize("answer", [from_its_beginning, wrong_rest])
async def test_bytes_that_never_fit_are_not_fetched_for_ever(tmp_path: Path, answer: Callable[[Asked], bytes]) -> None:
    async with raw_server(answers(answer)) as server:
        with pytest.raises(Interrupted, match="tried 6 times"):
            await fetch(f"{server.url}/m.gguf", wanted(tmp_path), PacedLimit())
        assert len(server.asked) <= 12
    assert not (tmp_path / "m.gguf").exists()


@pytest.mark.trio
async def test_a_limit_that_is_taken_away_lets_a_running_download_go(tmp_path: Path) -> None:
    limit, want = HeldLimit(RATE), wanted(tmp_path)
    async with raw_server(answers(whole(DATA))) as server, trio.open_nursery() as nursery:
        nursery.start_soon(fetch, f"{server.url}/m.gguf", want, limit)
        await limit.waiting.wait()
        assert not want.target.exists()
        limit.set(0)
    assert want.target.read_bytes() == DATA


@pytest.mark.trio
async def test_a_limit_that_is_set_slows_a_running_download(tmp_path: Path) -> None:
    limit, half, go_on = PacedLimit(), trio.Event(), trio.Event()

    async def script(_asked: Asked, stream: trio.SocketStream) -> None:
        answer = whole(DATA)
        await stream.send_all(answer[: len(answer) // 2])
        await go_on.wait()
        await stream.send_all(answer[len(answer) // 2 :])

    def report(done: int, _total: int) -> None:
        if done >= MOVED_BYTES:
            half.set()

    async with raw_server(script) as server, trio.open_nursery() as nursery:

        async def run() -> None:
            await download(Remote(url=f"{server.url}/m"), wanted(tmp_path), report=report, policy=quick(limit=limit))

        nursery.start_soon(run)
        await half.wait()
        limit.set(RATE)
        go_on.set()
    assert limit.took_s >= (len(DATA) / 2 - RECEIVE_BYTES) / RATE
    assert (tmp_path / "m.gguf").read_bytes() == DATA


@pytest.mark.trio
async def test_all_sets_of_a_mirror_share_its_limit(tmp_path: Path) -> None:
    limit = PacedLimit(RATE)
    contents = {f"/{i}.gguf": tiny_llama(padding=500_000 + i) for i in range(6)}
    config = MirrorConfig(policy=quick(limit=limit))
    async with raw_server(files(contents)) as origin, running_mirror(tmp_path, config=config) as running:
        sources = [f"{origin.url}{name}" for name in contents]
        for source in sources:
            running.mirror.ensure(source)
        await until_here(lambda: all(status.state is SetState.READY for status in running.mirror.sets()))
        assert running.mirror.downloads is limit
    assert limit.took_s == pytest.approx(sum(map(len, contents.values())) / RATE, abs=0.001)


@pytest.mark.trio
async def test_a_set_called_off_while_it_waits_ends_at_once_and_is_carried_on(tmp_path: Path) -> None:
    config = MirrorConfig(policy=quick(limit=HeldLimit(RATE)))
    async with raw_server(files({"/m.gguf": DATA})) as origin:
        source = f"{origin.url}/m.gguf"
        async with running_mirror(tmp_path, config=config) as running:
            running.mirror.ensure(source)
            assert isinstance(running.mirror.downloads, HeldLimit)
            await running.mirror.downloads.waiting.wait()
        async with running_mirror(tmp_path) as running:
            status = await running.settled(source)
            assert status.state is SetState.READY
