"""Readiness over real sockets: what counts as ready, and that no engine can make the agent read or wait for ever."""

import contextlib
import json
from collections.abc import AsyncIterator, Mapping

import pytest
import trio

from agent.readiness import (
    HEALTH_MAX_BYTES,
    MODELS_MAX_BYTES,
    NOT_READY_STATUSES,
    NoAnswer,
    Target,
    get,
    why_not_alive,
    why_not_ready,
)

MODELS = json.dumps({"data": [{"id": "other"}, {"id": "m"}]}).encode()


def http(status: int, body: bytes, *, headers: bytes = b"") -> bytes:
    """An answer with a length."""
    return b"HTTP/1.1 %d X\r\nContent-Length: %d\r\n%s\r\n" % (status, len(body), headers) + body


@contextlib.asynccontextmanager
async def engine(answers: Mapping[str, bytes], *, key: str = "", then_hang: bool = False) -> AsyncIterator[Target]:
    """A server that says `answers` by path, whatever they are, to whoever has the key."""
    sent: list[int] = []

    async def serve(stream: trio.SocketStream) -> None:
        head = b""
        while b"\r\n\r\n" not in head:
            chunk = await stream.receive_some(4096)
            if not chunk:
                return
            head += chunk
        path = head.split(b" ")[1].decode()
        allowed = not key or f"Authorization: Bearer {key}\r\n".encode() in head
        with contextlib.suppress(trio.BrokenResourceError):
            answer = answers[path] if allowed else http(401, b"{}")
            for start in range(0, len(answer), 4096):
                await stream.send_all(answer[start : start + 4096])
                sent.append(4096)
            if then_hang:
                await trio.sleep_forever()
            await stream.aclose()

    (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
    port = listener.socket.getsockname()[1]
    async with trio.open_nursery() as nursery:
        nursery.start_soon(trio.serve_listeners, serve, [listener])
        yield Target(host="127.0.0.1", port=port, key=key)
        nursery.cancel_scope.cancel()


async def verdict(health: bytes, models: bytes = MODELS) -> str:
    """Why an engine with these answers is not ready."""
    async with engine({"/health": health, "/v1/models": http(200, models)}) as target:
        return await why_not_ready(target, health_path="/health", names=("m",))


@pytest.mark.trio
@pytest.mark.parametrize(
    "body", [b"", b"OK", b"loading", b'"loading"', b"{}", b'{"status": "ok"}', b'{"status": 3}', b"[1]", b"{broken"]
)
async def test_200_is_healthy_whatever_a_text_body_says(body: bytes) -> None:
    assert await verdict(http(200, body)) == ""


@pytest.mark.trio
@pytest.mark.parametrize("status", sorted(NOT_READY_STATUSES))
async def test_a_status_in_the_body_means_not_yet(status: str) -> None:
    assert status in await verdict(http(200, json.dumps({"status": status.upper()}).encode()))


@pytest.mark.trio
@pytest.mark.parametrize("code", [204, 301, 401, 404, 500, 503])
async def test_only_200_is_healthy(code: int) -> None:
    assert str(code) in await verdict(http(code, b'{"status":"ok"}' if code != 204 else b""))


@pytest.mark.trio
@pytest.mark.parametrize(
    "models", [b"{}", b"[]", b"m", b'{"data": "m"}', b'{"data": [{"name": "m"}]}', b'{"data": [{"id": "mm"}, 3, null]}']
)
async def test_the_model_must_be_listed_by_name(models: bytes) -> None:
    assert "not m" in await verdict(http(200, b"OK"), models)


@pytest.mark.trio
async def test_the_key_is_sent_with_every_question() -> None:
    answers = {"/health": http(200, b"OK"), "/v1/models": http(200, MODELS)}
    async with engine(answers, key="ek-secret") as target:
        assert await why_not_ready(target, health_path="/health", names=("m",)) == ""
        bare = Target(host=target.host, port=target.port, key="")
        assert "401" in await why_not_ready(bare, health_path="/health", names=("m",))


@pytest.mark.trio
async def test_endless_bodies_are_read_to_a_limit() -> None:
    endless = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + b"10000\r\n" + b"x" * 0x10000 + b"\r\n"
    flood = endless + (b"10000\r\n" + b"x" * 0x10000 + b"\r\n") * 64
    async with engine({"/health": flood, "/v1/models": flood}, then_hang=True) as target:
        assert await why_not_alive(target, health_path="/health") == ""
        answer = await get(target, "/health", max_bytes=HEALTH_MAX_BYTES)
        assert (len(answer.body), answer.cut) == (HEALTH_MAX_BYTES, True)
        assert f"more than {MODELS_MAX_BYTES}" in await why_not_ready(target, health_path="/health", names=("m",))


@pytest.mark.trio
@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (b"", "closed the connection"),
        (b"hello\r\n", "does not answer in HTTP"),
        (b"HTTP/1.1 200 OK\r\n" + b"X-Long: " + b"x" * 200_000, "headers"),
    ],
)
async def test_what_is_no_answer_is_told_in_words(answer: bytes, words: str) -> None:
    async with engine({"/health": answer}) as target:
        reason = await why_not_alive(target, health_path="/health")
        assert words in reason


@pytest.mark.trio
@pytest.mark.parametrize("answer", [b"", b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nOK"])
async def test_an_engine_that_goes_silent_is_given_up(answer: bytes) -> None:
    async with engine({"/health": answer}, then_hang=True) as target:
        with pytest.raises(NoAnswer, match=r"within 0\.2 s"):
            await get(target, "/health", max_bytes=10, timeout_s=0.2)


@pytest.mark.trio
async def test_nobody_listening_is_told_in_words() -> None:
    async with engine({}) as target:
        pass
    assert "refused" in await why_not_alive(target, health_path="/health")
