"""Whom a request is counted for when a proxy stands in between, and that nobody else can say so."""

import json
from pathlib import Path

import pytest
import trio

from llmgw.control.told_files import tell, tell_nothing
from llmgw.core.layout import ServerLayout
from llmgw.router import front_proxies, service
from llmgw.router.front_proxies import ClientProxies, FrontProxies
from llmgw.router.process import _data_plane
from tests.integration.test_router_front import PAGE, public_app
from tests.support.router_plane import DEADLINE_S, KEY, chat, get, post, running, settled
from tests.support.scripted_engine import never, streaming

PROXY = "127.0.0.2"
STRANGER = "127.0.0.3"
UNKNOWN = b"sk-nobodys-0123456789"


def told(directory: Path, *trusted: str) -> Path:
    """The file a control plane writes."""
    path = directory / "client-proxies.json"
    tell(path, ClientProxies(trusted=trusted))
    return path


def named(*addresses: str) -> bytes:
    """Header lines that name clients."""
    return b"".join(f"X-Forwarded-For: {address}\r\n".encode() for address in addresses)


def chat_for(*addresses: str, key: bytes = KEY) -> bytes:
    return post(chat(True), key=key, headers=named(*addresses))


@pytest.mark.trio
@pytest.mark.parametrize(
    ("peer", "addresses", "client"),
    [
        (PROXY, ["203.0.113.9"], "203.0.113.9"),
        (PROXY, ["6.6.6.6, 203.0.113.9"], "203.0.113.9"),
        (PROXY, ["6.6.6.6", "203.0.113.9, 10.0.0.5"], "203.0.113.9"),
        (PROXY, ["[2001:db8::7]:443"], "2001:db8::7"),
        (PROXY, ["127.0.0.1"], "127.0.0.1"),
        (PROXY, [], PROXY),
        (PROXY, ["unknown"], PROXY),
        (STRANGER, ["203.0.113.9"], STRANGER),
        (STRANGER, [PROXY], STRANGER),
        ("127.0.0.1", ["203.0.113.9"], "127.0.0.1"),
    ],
)
async def test_guesses_are_counted_for_whom_a_trusted_proxy_names(
    tmp_path: Path, peer: str, addresses: list[str], client: str
) -> None:
    async with running(client_proxies=told(tmp_path, PROXY, "10.0.0.0/24")) as plane:
        connection = await plane.connect(peer)
        for raw in (chat_for(*addresses, key=UNKNOWN), get("/v1/models", key=UNKNOWN)):
            head, _, body = raw.partition(b"\r\n\r\n")
            lines = b"" if b"X-Forwarded-For" in head else named(*addresses)
            await connection.send(head + b"\r\n" + lines + b"\r\n" + body)
            assert (await connection.answer()).status == 401
        assert plane.state.asked_by == [client, client]


@pytest.mark.trio
@pytest.mark.promise("A15")
async def test_a_clients_share_holds_behind_a_proxy_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "MAX_CONNECTIONS_PER_ADDRESS", 2)
    async with running(never, client_proxies=told(tmp_path, PROXY)) as plane:
        held = [await plane.connect(PROXY) for _ in range(2)]
        for client in held:
            await client.send(chat_for("203.0.113.9"))
        with trio.fail_after(DEADLINE_S):
            while len(plane.engines[0].received) < 2:  # noqa: ASYNC110 - a plain counter
                await trio.sleep(0.005)
        other = await plane.connect(PROXY)
        await other.send(chat_for("203.0.113.9"))
        refused = await other.answer()
        assert (refused.status, refused.error["code"]) == (429, "too_many_connections")
        assert refused.headers["retry-after"] == "1"
        # The proxy's connection goes on, for others.
        await other.send(_live("203.0.113.8"))
        assert (await other.answer()).status == 200
        await held[0].stream.aclose()
        with trio.fail_after(DEADLINE_S):
            while True:
                await other.send(_live("203.0.113.9"))
                if (await other.answer()).status == 200:
                    break
        await held[1].stream.aclose()
        await settled(plane)


def _live(address: str) -> bytes:
    return b"GET /live HTTP/1.1\r\nHost: gw\r\n" + named(address) + b"\r\n"


@pytest.mark.trio
@pytest.mark.promise("A15")
async def test_a_trusted_proxy_may_hold_more_than_one_clients_share(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "MAX_CONNECTIONS_PER_ADDRESS", 2)
    async with running(client_proxies=told(tmp_path, PROXY)) as plane:
        many = [await plane.connect(PROXY) for _ in range(6)]
        for number, client in enumerate(many):
            await client.send(_live(f"203.0.113.{number}"))
            assert (await client.answer()).status == 200
        strangers = [await plane.connect(STRANGER) for _ in range(3)]
        for client in strangers[:2]:
            await client.send(_live("203.0.113.9"))
            assert (await client.answer()).status == 200
        assert (await strangers[2].answer()).status == 429


@pytest.mark.trio
async def test_routers_follow_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(front_proxies, "LOOK_S", 0.02)
    path = tmp_path / "client-proxies.json"
    async with running(client_proxies=path) as plane:
        connection = await plane.connect(PROXY)

        async def asked_by(expected: str) -> None:
            with trio.fail_after(DEADLINE_S):
                while True:
                    await connection.send(chat_for("203.0.113.9", key=UNKNOWN))
                    assert (await connection.answer()).status == 401
                    if plane.state.asked_by[-1] == expected:
                        return

        await asked_by(PROXY)
        told(tmp_path, PROXY)
        await asked_by("203.0.113.9")
        told(tmp_path)
        await asked_by(PROXY)


@pytest.mark.parametrize("raw", [b"{", b"[]", b'{"trusted":["nobody"]}', b'{"trusted":7}', b"\xff"])
def test_a_file_that_cannot_be_used_changes_nothing(tmp_path: Path, raw: bytes) -> None:
    path = told(tmp_path, PROXY)
    proxies = FrontProxies(path)
    path.write_bytes(raw)
    proxies.look()
    assert proxies.trusted.trusts(PROXY)
    tell_nothing(path)
    proxies.look()
    assert not proxies.trusted
    path.write_bytes(raw)
    assert not FrontProxies(path).trusted
    assert not FrontProxies(None).trusted


def test_a_router_is_started_with_the_file_its_server_writes(tmp_path: Path) -> None:
    layout = ServerLayout(data=tmp_path)
    keywords = getattr(_data_plane(layout), "keywords")  # noqa: B009 - it is a partial
    assert keywords["client_proxies"] == layout.client_proxies == tmp_path / "run" / "client-proxies.json"
    layout.run.mkdir()
    tell(layout.client_proxies, ClientProxies(trusted=("fd00::/64",)))
    assert json.loads(layout.client_proxies.read_text()) == {"trusted": ["fd00::/64"]}
    assert layout.client_proxies.stat().st_mode & 0o777 == 0o600


FORGED = (
    b"X-LLMGW-Actor: root\r\nForwarded: for=6.6.6.6\r\nX-Real-IP: 6.6.6.6\r\nTrue-Client-IP: 6.6.6.6\r\n"
    b"X-Forwarded-Proto: https\r\nX-Forwarded-Host: gw.example\r\nX-Forwarded-User: root\r\n"
    b"X-Forwarded-For: 6.6.6.6\r\n"
)


@pytest.mark.trio
@pytest.mark.parametrize("trusted", [False, True])
async def test_the_public_app_hears_of_a_client_what_is_known(tmp_path: Path, trusted: bool) -> None:
    heads: list[bytes] = []
    where = tmp_path / "public.sock"
    proxies = told(tmp_path, PROXY)
    async with public_app(where, PAGE, heads), running(public_socket=where, client_proxies=proxies) as plane:
        client = await plane.connect(PROXY if trusted else STRANGER)
        await client.send(b"GET /portal HTTP/1.1\r\nHost: gw\r\n" + FORGED + named("203.0.113.9") + b"\r\n")
        assert (await client.answer()).status == 200
    (head,) = heads
    lines = head.lower().split(b"\r\n")
    internal = [
        line for line in lines if line.startswith((b"x-forwarded", b"forwarded", b"x-llmgw", b"x-real", b"true"))
    ]
    if trusted:
        proxied = [b"x-forwarded-proto: https", b"x-forwarded-host: gw.example"]
        assert internal == [*proxied, b"x-forwarded-for: 203.0.113.9"]
    else:
        assert internal == [b"x-forwarded-for: 127.0.0.3"]


@pytest.mark.trio
@pytest.mark.parametrize("source", [PROXY, STRANGER])
async def test_engines_hear_nothing_of_clients(tmp_path: Path, source: str) -> None:
    async with running(streaming(["a"]), client_proxies=told(tmp_path, PROXY)) as plane:
        client = await plane.connect(source)
        await client.send(post(chat(True), headers=FORGED + b"Cookie: a=b\r\nReferer: x\r\nUser-Agent: y\r\n"))
        assert (await client.answer()).status == 200
        (request,) = plane.engines[0].received
    names = {line.partition(b":")[0].lower() for line in request.head.split(b"\r\n")[1:]}
    assert names <= {
        b"host", b"authorization", b"content-type", b"content-length", b"accept", b"x-request-id", b"connection",
        b"user-agent", b"accept-encoding",
    }  # fmt: skip
    assert request.header(b"user-agent") != b"y"
    assert KEY not in request.head


@pytest.mark.trio
async def test_who_asks_is_known_anew_for_each_request(tmp_path: Path) -> None:
    """A proxy's connection carries many clients' requests: none is taken for the one before."""
    async with running(client_proxies=told(tmp_path, PROXY)) as plane:
        client = await plane.connect(PROXY)
        for addresses in (["203.0.113.9"], [], ["203.0.113.8"]):
            await client.send(chat_for(*addresses, key=UNKNOWN))
            assert (await client.answer()).status == 401
        assert plane.state.asked_by == ["203.0.113.9", PROXY, "203.0.113.8"]
