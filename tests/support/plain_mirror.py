"""A mirror that has one set and answers for its file exactly what a test scripts, byte for byte."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec
import trio

from llmgw.core.sources import parse_source, source_id
from llmgw.core.weights import Manifest, SetAnswer, SetFile, SetState, SetStatus
from tests.support.rawhttp import Asked, RawServer, Script, head, raw_server

SOURCE = "https://h.example/m.gguf"


@asynccontextmanager
async def plain_mirror(size: int, sha256: str | None, script: Script) -> AsyncIterator[RawServer]:
    """Serves the set of `SOURCE`: its manifest, and its file as `script` answers; remembers what was asked of that."""
    set_id = source_id(parse_source(SOURCE))
    manifest = Manifest(
        id=set_id,
        source=SOURCE,
        files=(SetFile(name="m.gguf", bytes=size, sha256=sha256),),
        main="m.gguf",
        complete=True,
    )
    status = SetStatus(id=set_id, source=SOURCE, state=SetState.READY, done_bytes=size, total_bytes=size, files=1)
    body = msgspec.json.encode(SetAnswer(status=status, manifest=manifest))
    answer = head("200 OK", {"Content-Type": "application/json", "Content-Length": len(body)}) + body

    async def both(asked: Asked, stream: trio.SocketStream) -> None:
        if asked.method == "POST":
            server.asked.remove(asked)
            await stream.send_all(answer)
        else:
            await script(asked, stream)

    async with raw_server(both) as server:
        yield server
