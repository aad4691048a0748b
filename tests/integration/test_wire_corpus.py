"""No door answers a request that two readers could take for two: the wire corpus on real sockets, at each door.

A refusal is the last thing said on its connection: what was sent after it is never answered.
"""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import trio

from llmgw.web.public import public_app
from tests.support.admin_server import TOKENS, Running
from tests.support.admin_server import running as apps_running
from tests.support.fake_control import FakeControl
from tests.support.router_plane import KEY, Answer, RawClient, running
from tests.support.scripted_engine import answering, json_answer
from tests.support.wire import Door, converse, wire_cases

CASES = wire_cases()
PIECES = (1 << 30, 7)
"""Bytes of one write: all at once, and so few that no line comes whole."""
LONG = 4096
"""Longer cases are sent whole only: a thousand writes would say nothing that ten do not."""
ANSWER = {"usage": {"prompt_tokens": 1, "completion_tokens": 1}}
ROUTER = Door(
    name="router",
    get=b"/v1/models",
    post=b"/v1/chat/completions",
    auth=b"Authorization: Bearer " + KEY + b"\r\n",
    body=b'{"model":"m","messages":[{"role":"user","content":"hi"}]}',
)
ADMIN = Door(
    name="admin",
    get=b"/api/v1/status",
    post=b"/api/v1/serve",
    auth=f"Authorization: Bearer {TOKENS['admin']}\r\n".encode(),
    body=b'{"source":"sim:"}',
)
PUBLIC = Door(name="public", get=b"/leader", post=b"/leader", auth=b"Authorization: Bearer nobodys\r\n", body=b"{}")

pytestmark = pytest.mark.promise("A19")


@pytest.fixture(scope="module")
def admin(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with apps_running(tmp_path_factory.mktemp("admin")) as server:
        yield server


@pytest.fixture(scope="module")
def public(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    control = FakeControl()
    with apps_running(tmp_path_factory.mktemp("public"), control, app=public_app(control)) as server:
        yield server


def names(door: Door) -> list[str]:
    """The cases for a door."""
    return [name for name, case in CASES.items() if case.concerns(door)]


def pieces(name: str, door: Door) -> list[int]:
    """In which writes a case is sent."""
    return [piece for piece in PIECES if piece > LONG or sum(map(len, CASES[name].sent(door))) <= LONG]


def test_the_corpus_is_as_large_as_promised() -> None:
    refused = [case for case in CASES.values() if case.verdict(ROUTER).refuses]
    assert len(refused) >= 60
    for case in refused:
        verdict = case.verdict(ROUTER)
        # One refusal and nothing more; only what is merely not there leaves the connection to the next request.
        assert len(verdict.statuses) == 1
        assert verdict.closed or verdict.statuses == (404,)
        assert {400 <= status < 500 or status in (501, 505) for status in verdict.statuses} == {True}


@pytest.mark.trio
@pytest.mark.parametrize("name", names(ROUTER))
async def test_the_client_port(name: str) -> None:
    async with running(answering(json_answer(ANSWER))) as plane:
        for piece in pieces(name, ROUTER):
            client = await plane.connect()
            async with client.stream:
                answers = await converse(client, CASES[name], ROUTER, piece=piece)
            if CASES[name].verdict(ROUTER).refuses and CASES[name].verdict(ROUTER).closed:
                # By the front: a request that was let in and then found wrong in its body would be a 400 as well.
                assert answers[0].error["code"] in ("bad_request", "method_not_allowed")
                assert answers[0].headers["connection"] == "close"
        asked = plane.engines[0].received
        if CASES[name].verdict(ROUTER).refuses:
            assert asked == []
        for request in asked:
            assert request.body == ROUTER.body
            names = {line.partition(b":")[0].lower() for line in request.head.split(b"\r\n")[1:]}
            assert not [
                name for name in names if name.startswith((b"x-forwarded", b"x-llmgw", b"forwarded", b"upgrade"))
            ]


@pytest.mark.trio
@pytest.mark.parametrize("name", names(ADMIN))
async def test_the_admin_port(admin: Running, name: str) -> None:
    calls = len(admin.control.calls)
    for piece in pieces(name, ADMIN):
        admin.control.catalog.clear()
        stream = await trio.open_tcp_stream("127.0.0.1", admin.port)
        async with stream:
            answers = await converse(RawClient(stream), CASES[name], ADMIN, piece=piece)
        _refused_at_once(name, ADMIN, answers)
    if CASES[name].verdict(ADMIN).refuses:
        assert admin.control.calls[calls:] == []


@pytest.mark.trio
@pytest.mark.parametrize("name", names(PUBLIC))
async def test_the_public_socket(public: Running, name: str) -> None:
    for piece in pieces(name, PUBLIC):
        stream = await trio.open_unix_socket(public.socket)
        async with stream:
            answers = await converse(RawClient(stream), CASES[name], PUBLIC, piece=piece)
        _refused_at_once(name, PUBLIC, answers)


def _refused_at_once(name: str, door: Door, answers: list[Answer]) -> None:
    """Not by a handler, which would have read it."""
    if CASES[name].verdict(door).refuses and CASES[name].verdict(door).closed:
        assert json.loads(answers[0].body)["code"] == "invalid"
        assert b"JSON" not in answers[0].body
        assert answers[0].headers["connection"] == "close"


@pytest.mark.trio
async def test_nothing_of_the_corpus_reaches_the_public_app_through_the_client_port(tmp_path: Path) -> None:
    """With the public app behind it, the client port passes on none of what it does not answer itself."""
    asked: list[bytes] = []

    async def handle(stream: trio.SocketStream) -> None:
        async with stream:
            asked.append(await stream.receive_some(65536))

    where = tmp_path / "public.sock"
    with trio.socket.socket(trio.socket.AF_UNIX) as sock:
        await sock.bind(str(where))
        sock.listen(64)
        async with trio.open_nursery() as nursery:
            await nursery.start(trio.serve_listeners, handle, [trio.SocketListener(sock)])
            async with running(answering(json_answer(ANSWER)), public_socket=where) as plane:
                for case in CASES.values():
                    client = await plane.connect()
                    async with client.stream:
                        await converse(client, case, ROUTER)
            nursery.cancel_scope.cancel()
    assert asked == []
