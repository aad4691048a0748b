"""`https_proxy`: the request goes through a tunnel, TLS is with the goal, and the proxy sees nothing of it."""

import json
from pathlib import Path

import pytest
import trio

from llmgw.control.pki import Authority, client_context
from llmgw.mirror.app import serve
from llmgw.mirror.service import Mirror
from llmgw.transfer.errors import Refused
from llmgw.transfer.http import Remote, request
from tests.support.mirrors import TOKEN
from tests.support.rawhttp import Asked, head, raw_server


async def _pump(source: trio.SocketStream, goal: trio.SocketStream, seen: list[bytes]) -> None:
    try:
        while data := await source.receive_some(65536):
            seen.append(bytes(data))
            await goal.send_all(data)
        await goal.send_eof()
    except (trio.BrokenResourceError, trio.ClosedResourceError):
        pass


@pytest.mark.trio
async def test_a_tunnel_carries_tls_end_to_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    authority = Authority.open(tmp_path / "secrets", names=["127.0.0.1"])
    ca = tmp_path / "ca.crt"
    ca.write_bytes(authority.ca_pem)
    mirror = Mirror(tmp_path / "mirror")
    seen: list[bytes] = []

    async def tunnel(asked: Asked, stream: trio.SocketStream) -> None:
        host, port = asked.target.split(":")
        async with await trio.open_tcp_stream(host, int(port)) as goal, trio.open_nursery() as nursery:
            await stream.send_all(b"HTTP/1.1 200 Connection established\r\n\r\n")
            nursery.start_soon(_pump, stream, goal, seen)
            await _pump(goal, stream, seen)
            nursery.cancel_scope.cancel()

    async def api(*, task_status: trio.TaskStatus[list[trio.SocketListener]]) -> None:
        tls = authority.mirror_server_context()
        await serve(mirror, host="127.0.0.1", port=0, ssl_context=tls, token=TOKEN, task_status=task_status)

    async with raw_server(tunnel) as proxy, trio.open_nursery() as nursery:
        await nursery.start(mirror.run)
        listeners = await nursery.start(api)
        monkeypatch.setenv("https_proxy", proxy.url)
        monkeypatch.delenv("no_proxy", raising=False)
        monkeypatch.delenv("NO_PROXY", raising=False)
        url = f"https://127.0.0.1:{listeners[0].socket.getsockname()[1]}/v1/sets"
        remote = Remote(url=url, headers={"Authorization": f"Bearer {TOKEN}"}, tls=client_context(ca))
        async with request(remote, method="POST", body=b'{"source": "sim:"}') as response:
            assert response.status == 200
            assert json.loads(await response.read(10_000))["status"]["state"] == "ready"
        assert proxy.asked[0].method == "CONNECT"
        assert "authorization" not in proxy.asked[0].headers
        assert TOKEN.encode() not in b"".join(seen)
        nursery.cancel_scope.cancel()


@pytest.mark.trio
async def test_a_proxy_that_refuses_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    denied = head("407 Proxy Authentication Required", {"Content-Length": 0})
    async with raw_server(lambda _asked, stream: stream.send_all(denied)) as proxy:
        monkeypatch.setenv("https_proxy", proxy.url)
        with pytest.raises(Refused, match=r"the proxy 127\.0\.0\.1 refuses"):
            async with request(Remote(url="https://weights.invalid/m.gguf")):
                pass
    monkeypatch.setenv("https_proxy", "socks5://127.0.0.1:1")
    with pytest.raises(Refused, match="https_proxy"):
        async with request(Remote(url="https://weights.invalid/m.gguf")):
            pass
