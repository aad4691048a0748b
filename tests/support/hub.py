"""A Hugging Face hub on loopback with the real one's header shapes, and a content network on another port."""

import hashlib
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from urllib.parse import unquote

import trio

from tests.support.rawhttp import Asked, RawServer, Script, files, head, raw_server

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@dataclass
class Hub:
    """One repository, `org/model`, of a hub."""

    server: RawServer
    cdn: RawServer
    contents: Mapping[str, bytes]
    commit: str = COMMIT
    token: str | None = None
    """Without it the repository is gated."""
    page: int = 1000
    published: dict[str, str] = field(default_factory=dict)
    """sha256 to publish in place of the true one."""

    @property
    def url(self) -> str:
        """For `hf_endpoint`."""
        return self.server.url

    @property
    def resolved(self) -> int:
        """How often the revision was asked for."""
        return sum("/revision/" in asked.target for asked in self.server.asked)


def _entry(hub: Hub, path: str) -> dict[str, object]:
    data = hub.contents[path]
    git = hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()
    entry: dict[str, object] = {"type": "file", "oid": git, "size": len(data), "path": path}
    if path.endswith((".gguf", ".safetensors", ".bin")):
        sha = hub.published.get(path, hashlib.sha256(data).hexdigest())
        entry["lfs"] = {"oid": sha, "size": len(data), "pointerSize": 134}
    return entry


def _tree(hub: Hub, target: str) -> bytes:
    start = int(target.partition("cursor=")[2] or 0)
    names = sorted(hub.contents)
    folders: list[dict[str, object]] = [{"type": "directory", "oid": "0" * 40, "size": 0, "path": "original"}]
    body = json.dumps(folders + [_entry(hub, name) for name in names[start : start + hub.page]]).encode()
    headers: dict[str, str | int] = {"Content-Type": "application/json", "Content-Length": len(body)}
    if start + hub.page < len(names):
        path = target.partition("?")[0]
        headers["Link"] = f'<{hub.url}{path}?recursive=true&cursor={start + hub.page}>; rel="next"'
    return head("200 OK", headers) + body


def _resolve(hub: Hub, name: str) -> bytes:
    if name not in hub.contents:
        return head("404 Not Found", {"X-Error-Code": "EntryNotFound", "Content-Length": 0})
    data = hub.contents[name]
    common: dict[str, str | int] = {"X-Repo-Commit": hub.commit, "Accept-Ranges": "bytes"}
    entry = _entry(hub, name)
    if "lfs" in entry:
        sha = hashlib.sha256(data).hexdigest()
        linked: dict[str, str | int] = {"X-Linked-Size": len(data), "X-Linked-Etag": f'"{sha}"', "Content-Length": 0}
        return head("302 Found", {**common, **linked, "Location": f"{hub.cdn.url}/{name}?sig=s3cret"})
    return head("200 OK", {**common, "ETag": f'"{entry["oid"]}"', "Content-Length": len(data)}) + data


def _answer(hub: Hub, asked: Asked) -> bytes:
    if hub.token is not None and asked.headers.get("authorization") != f"Bearer {hub.token}":
        known = "authorization" in asked.headers
        error: dict[str, str | int] = {
            "X-Error-Code": "GatedRepo",
            "X-Error-Message": "Access is restricted.",
            "Content-Length": 0,
        }
        return head("403 Forbidden" if known else "401 Unauthorized", error)
    path = unquote(asked.target.partition("?")[0])
    if path in ("/api/models/org/model/revision/main", f"/api/models/org/model/revision/{hub.commit}"):
        body = json.dumps({"id": "org/model", "sha": hub.commit, "gated": bool(hub.token), "private": False}).encode()
        return head("200 OK", {"Content-Type": "application/json", "Content-Length": len(body)}) + body
    if path.startswith("/api/models/org/model/revision/"):
        return head("404 Not Found", {"X-Error-Code": "RevisionNotFound", "Content-Length": 0})
    if path == f"/api/models/org/model/tree/{hub.commit}":
        return _tree(hub, asked.target)
    prefix = f"/org/model/resolve/{hub.commit}/"
    if path.startswith(prefix):
        return _resolve(hub, path.removeprefix(prefix))
    return head("404 Not Found", {"X-Error-Code": "RepoNotFound", "Content-Length": 0})


@asynccontextmanager
async def hub_server(contents: Mapping[str, bytes], *, cdn_script: Script | None = None) -> AsyncIterator[Hub]:
    """Serve `contents` as `org/model` until the block ends; `cdn_script` answers in the content network's place."""
    on_cdn = {f"/{name}?sig=s3cret": data for name, data in contents.items()}
    async with raw_server(cdn_script or files(on_cdn)) as cdn:
        found: list[Hub] = []

        async def script(asked: Asked, stream: trio.SocketStream) -> None:
            await stream.send_all(_answer(found[0], asked))

        async with raw_server(script) as server:
            found.append(Hub(server=server, cdn=cdn, contents=contents))
            yield found[0]
