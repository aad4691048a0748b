"""A llama.cpp release on loopback: a listing as GitHub's, and archives that may go wrong on their way."""

import hashlib
import io
import json
import tarfile
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from random import Random

import trio

from tests.support.faulty import FaultyFile
from tests.support.rawhttp import Asked, RawServer, head, raw_server

TAG = "b100"
SERVER = """#!/bin/sh
case "$1" in
--version) echo "loaded {note}"; echo "version: {version} (0abcdef)" ;;
--list-devices) echo "Available devices:"; {devices} ;;
esac
"""


def server_program(*, version: int = 100, devices: Sequence[str] = (), note: str = "") -> bytes:
    """A program that says its version and names cards."""
    lines = "; ".join(f"echo '  {device}'" for device in devices) or ":"
    return SERVER.format(version=version, devices=lines, note=note).encode()


def member(name: str, data: bytes = b"", *, mode: int = 0o644, kind: bytes = tarfile.REGTYPE, goal: str = "") -> object:
    """One entry of an archive and what is in it."""
    info = tarfile.TarInfo(name)
    info.size, info.mode, info.type, info.linkname = len(data), mode, kind, goal
    return info, data


def archive(*members: object) -> bytes:
    """A `.tar.gz` of them, as they are."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz", compresslevel=1) as tar:
        for entry in members:
            assert isinstance(entry, tuple)
            info, data = entry
            tar.addfile(info, io.BytesIO(data))
    return out.getvalue()


def release_archive(program: bytes | None = None, *, padding: int = 300_000, folder: str = f"llama-{TAG}") -> bytes:
    """As a release has it: the program beside its libraries, which are links to one another."""
    return archive(
        member(folder, kind=tarfile.DIRTYPE, mode=0o755),
        member(f"{folder}/llama-server", program or server_program(), mode=0o755),
        member(f"{folder}/libllama.so", kind=tarfile.SYMTYPE, goal="libllama.so.0"),
        member(f"{folder}/libllama.so.0", Random(7).randbytes(padding)),
    )


@dataclass
class Release:
    """What the server has."""

    files: dict[str, FaultyFile]
    digests: dict[str, str | None] = field(default_factory=dict)
    """Published in place of the true ones."""
    tag: str = TAG
    server: RawServer | None = None

    @property
    def releases(self) -> str:
        """For `llamacpp_releases`."""
        assert self.server is not None
        return f"{self.server.url}/releases/tags"

    def listing(self) -> bytes:
        """The release's JSON."""
        assert self.server is not None
        assets = [
            {
                "name": name,
                "size": len(file.data),
                "digest": self.digests.get(name, f"sha256:{hashlib.sha256(file.data).hexdigest()}"),
                "browser_download_url": f"{self.server.url}/download/{name}",
                "uploader": {"login": "somebody"},
            }
            for name, file in self.files.items()
        ]
        return json.dumps({"tag_name": self.tag, "prerelease": False, "assets": assets}).encode()

    async def script(self, asked: Asked, stream: trio.SocketStream) -> None:
        """For `raw_server`."""
        name = asked.target.rpartition("/")[2]
        if asked.target == f"/releases/tags/{self.tag}":
            body = self.listing()
            await stream.send_all(head("200 OK", {"Content-Length": len(body)}) + body)
        elif name in self.files:
            await self.files[name].script(asked, stream)
        else:
            await stream.send_all(head("404 Not Found", {"Content-Length": 0}))


@asynccontextmanager
async def release_server(archives: dict[str, bytes], *, seed: int = 1) -> AsyncIterator[Release]:
    """Serve the archives by name until the block ends."""
    dice = Random(seed)
    release = Release(files={name: FaultyFile(data, dice, share=2.0) for name, data in archives.items()})
    async with raw_server(release.script) as server:
        release.server = server
        yield release
