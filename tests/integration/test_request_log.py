"""The request log of a data plane on real sockets: one line a request, however it ended, and nobody's words in it."""

import errno
import json
import os
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
import trio

from llmgw.core.limits import Limits
from llmgw.core.requests import RequestLine, Seen
from llmgw.core.routing import KeyRecord
from llmgw.router.limiter import Limiter
from llmgw.router.refusal_ration import IN_A_ROW
from llmgw.router.request_files import RequestFiles
from llmgw.router.request_log import RequestLog
from llmgw.router.trail import ABANDONED
from tests.support.router_plane import KEY, LIMITED_KEY, Answer, Plane, chat, post, running
from tests.support.scripted_engine import answering, dropping, json_answer, never, streaming
from tests.support.waiting import until

pytestmark = pytest.mark.trio

CANARY = "canary-in-the-prompt"
ANSWER = {"choices": [{"message": {"content": CANARY}}], "usage": {"prompt_tokens": 9, "completion_tokens": 4}}
BUSY = json_answer({"error": {"message": CANARY}}, b"503 Service Unavailable")


def read(directory: Path) -> list[RequestLine]:
    """All lines, the oldest first."""
    files = sorted(directory.glob("0.jsonl*"), key=lambda path: path.name, reverse=True)
    return [msgspec.json.decode(line, type=RequestLine) for path in files for line in path.read_bytes().splitlines()]


async def lines(directory: Path, count: int) -> list[RequestLine]:
    """Once there are so many."""
    await until(lambda: len(read(directory)) >= count)
    return read(directory)


def prompt(**fields: object) -> dict[str, object]:
    """A chat that says what must be nowhere."""
    return chat(**fields) | {"messages": [{"role": "user", "content": CANARY}]}  # type: ignore[arg-type]


def tell(plane: Plane, seen: Seen) -> None:
    """The routers' settings are others."""
    routing = plane.state.routes.routing
    assert routing is not None
    plane.state.apply(msgspec.structs.replace(routing, seen=seen))


async def ask(plane: Plane, body: dict[str, object], key: bytes = KEY) -> tuple[Answer, str]:
    """An answer and the request's id."""
    answer = await plane.ask(post(body, key=key))
    return answer, answer.headers["x-request-id"]


async def test_an_answered_request_leaves_one_line_with_its_figures_and_nobodys_words(tmp_path: Path) -> None:
    async with running(answering(json_answer(ANSWER)), requests=tmp_path) as plane:
        plane.state.key = KeyRecord(id="k-test", name="ci", team="ml")
        answer, id_ = await ask(plane, prompt(model="alias-of-m"))
        assert answer.status == 200
        (line,) = await lines(tmp_path, 1)
    assert (line.id, line.status, line.end, line.model, line.asked) == (id_, 200, "complete", "m", "alias-of-m")
    assert (line.key_id, line.key, line.team, line.tenant) == ("k-test", "ci", "ml", "acme")
    assert (line.input_tokens, line.output_tokens, line.stream, line.route) == (9, 4, False, "/v1/chat/completions")
    assert [(tried.replica, tried.failed) for tried in line.attempts] == [("r0", "")]
    assert line.client == "127.0.0.1"
    raw = (tmp_path / "0.jsonl").read_bytes()
    assert CANARY.encode() not in raw
    assert KEY not in raw
    assert os.stat(tmp_path / "0.jsonl").st_mode & 0o777 == 0o600


async def test_what_failed_before_it_was_answered_elsewhere_is_told_try_by_try(tmp_path: Path) -> None:
    async with running(answering(BUSY), streaming("abc", usage=(9, 3)), requests=tmp_path) as plane:
        for _ in range(2):  # they take turns: one of two begins with the busy one
            answer, _ = await ask(plane, prompt(stream=True))
            assert answer.status == 200
        found = await lines(tmp_path, 2)
    tried = next(line for line in found if len(line.attempts) == 2)
    assert [(t.replica, t.failed) for t in tried.attempts] == [("r0", "it answers 503"), ("r1", "")]
    assert tried.replica == "r1"
    assert tried.first_token_ms is not None
    assert tried.attempts[0].duration_ms <= tried.attempts[1].at_ms <= tried.first_token_ms <= tried.duration_ms
    assert CANARY.encode() not in (tmp_path / "0.jsonl").read_bytes()


async def test_each_way_to_end_has_its_name(tmp_path: Path) -> None:
    async with running(dropping("ab"), requests=tmp_path) as plane:
        await ask(plane, prompt(stream=True))
        plane.engines[0].behaviour = answering(BUSY)
        answer, _ = await ask(plane, prompt())
        assert answer.status == 503
        plane.engines[0].behaviour = answering(json_answer({"error": {"message": CANARY}}, b"400 Bad Request"))
        answer, _ = await ask(plane, prompt())
        assert answer.status == 400
        plane.engines[0].behaviour = never
        client = await plane.connect()
        await client.send(post(prompt()))
        await until(lambda: len(plane.engines[0].received) >= 4 and plane.state.in_flight == {"r0": 1})
        client.stream.socket.close()
        found = await lines(tmp_path, 4)
    assert [(line.end, line.status) for line in found] == [
        ("lost", 200),
        ("failed", 503),
        ("complete", 400),
        ("left", 499),
    ]
    assert found[3].attempts[0].failed == ABANDONED
    assert 0 < found[3].attempts[0].duration_ms <= found[3].duration_ms
    assert CANARY.encode() not in (tmp_path / "0.jsonl").read_bytes()


async def test_a_refusal_says_which_limit_and_when_the_next_is_let_in(tmp_path: Path) -> None:
    async with running(answering(json_answer(ANSWER)), requests=tmp_path) as plane:
        plane.state.limiter = Limiter()
        plane.state.key = KeyRecord(id="k-test", name="ci", limits=Limits(rpm=1))
        assert (await ask(plane, prompt()))[0].status == 200
        answer, id_ = await ask(plane, prompt())
        assert answer.status == 429
        line = (await lines(tmp_path, 2))[1]
    assert (line.id, line.end, line.limit, line.model, line.key) == (id_, "refused", "key/rpm", "m", "ci")
    assert line.said == answer.error["message"]
    assert line.retry_s is not None


async def test_what_a_client_made_up_is_kept_short_and_its_errors_are_not_repeated(tmp_path: Path) -> None:
    async with running(answering(json_answer(ANSWER)), requests=tmp_path) as plane:
        assert (await ask(plane, prompt(model="x" * 5000)))[0].status == 404
        assert (await ask(plane, prompt(n=CANARY)))[0].status == 400
        assert (await ask(plane, chat(model="m"), key=LIMITED_KEY))[0].status == 404
        made_up, wrong, hidden = await lines(tmp_path, 3)
    assert (len(made_up.asked), made_up.model, made_up.code) == (200, "", "model_not_found")
    assert (wrong.status, wrong.said, wrong.end) == (400, "", "refused")
    assert (hidden.key_id, hidden.asked, hidden.model) == ("k-limited", "m", "")
    assert CANARY.encode() not in (tmp_path / "0.jsonl").read_bytes()


async def test_guesses_are_rationed_and_those_passed_over_are_counted(tmp_path: Path) -> None:
    async with running(answering(json_answer(ANSWER)), requests=tmp_path) as plane:
        client = await plane.connect()
        sent = int(IN_A_ROW) * 3
        for number in range(sent):
            await client.send(post(chat(), key=b"sk-guess-%04d" % number))
            assert (await client.answer()).status == 401
        await ask(plane, prompt())
        await until(lambda: any(line.key_id for line in read(tmp_path)))
        found = read(tmp_path)
    guesses = [line for line in found if not line.key_id]
    assert IN_A_ROW <= len(guesses) < sent
    assert b"sk-guess" not in (tmp_path / "0.jsonl").read_bytes()


@pytest.mark.parametrize(("log", "kept"), [("all", 2), ("failed", 1), ("off", 0)])
async def test_all_may_be_kept_or_failures_alone_or_nothing(tmp_path: Path, log: str, kept: int) -> None:
    directory = tmp_path / "requests"
    async with running(answering(json_answer(ANSWER)), requests=directory) as plane:
        tell(plane, Seen(log=log))
        assert (await ask(plane, prompt()))[0].status == 200
        plane.engines[0].behaviour = answering(BUSY)
        assert (await ask(plane, prompt()))[0].status == 503
        plane.drain.set()
        await plane.returned.wait()
    assert len(read(directory)) == kept
    assert directory.exists() == bool(kept)


async def test_what_waits_is_written_when_the_router_ends(tmp_path: Path) -> None:
    async with running(answering(json_answer(ANSWER)), requests=tmp_path) as plane:
        _, id_ = await ask(plane, prompt())
        plane.drain.set()
        await plane.returned.wait()
        assert [line.id for line in read(tmp_path)] == [id_]


async def test_lines_taken_at_the_moment_the_router_ends_are_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = RequestLog(RequestFiles(tmp_path, 0), Seen, on_dropped=lambda count: pytest.fail(f"{count} lines dropped"))
    log.add(RequestLine(id="req-1", at=1.0, status=200, end="complete"))
    with trio.CancelScope() as scope:

        async def sleep(_: float) -> None:
            if scope.cancel_called:
                await trio.lowlevel.checkpoint()
            scope.cancel()

        monkeypatch.setattr(trio, "sleep", sleep)
        with trio.fail_after(10):
            await log.run()
    log.close()
    assert [line.id for line in read(tmp_path)] == ["req-1"]


async def test_files_are_put_aside_by_size_and_no_more_are_kept_than_may_be(tmp_path: Path) -> None:
    async with running(answering(json_answer(ANSWER)), requests=tmp_path) as plane:
        tell(plane, Seen(log_bytes=1000, log_files=3))
        ids = []
        for number in range(7):
            ids.append((await ask(plane, prompt()))[1])
            await until(lambda n=number: ids[n] in _current(tmp_path))  # type: ignore[misc]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["0.jsonl", "0.jsonl.1", "0.jsonl.2"]
    assert all(path.stat().st_size <= 1000 for path in tmp_path.iterdir())
    kept = [line.id for line in read(tmp_path)]
    assert kept == ids[-len(kept) :]


def _current(directory: Path) -> str:
    path = directory / "0.jsonl"
    return path.read_text() if path.exists() else ""


async def test_a_disk_that_takes_nothing_costs_lines_and_no_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real: Callable[[int, bytes], int] = os.write
    full = True

    def write(descriptor: int, data: bytes) -> int:
        if full:
            real(descriptor, data[:10])
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(descriptor, data)

    monkeypatch.setattr(os, "write", write)
    async with running(answering(json_answer(ANSWER)), requests=tmp_path) as plane:
        assert (await ask(plane, prompt()))[0].status == 200
        await until(lambda: plane.state.meters.log_lines_dropped == 1)
        full = False
        _, id_ = await ask(plane, prompt())
        await until(lambda: id_ in _current(tmp_path))
        assert plane.state.meters.log_lines_dropped == 1
    # What the full disk took of the first line is a line of its own, which nobody can take for another.
    assert [json.loads(line)["id"] for line in _current(tmp_path).splitlines()[1:]] == [id_]
