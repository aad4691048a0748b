"""Request logs as routers write them, and all pages of one as a client asks for them."""

from collections.abc import Sequence
from pathlib import Path

import msgspec

from llmgw.api.request_types import RequestPage, RequestQuery
from llmgw.control.requests import RequestReader
from llmgw.core.requests import RequestLine
from llmgw.router.request_files import RequestFiles

BEGAN = 1_767_225_600.0
MOST_PAGES = 2000


def a_line(number: int, **more: object) -> RequestLine:
    """The request that ended `number` tenths of a second after BEGAN."""
    at, model = BEGAN + number / 10, ("m", "n")[number % 2]
    told = RequestLine(id=f"req-{number:x}", at=at, status=200, end="complete", model=model, key_id="k1")
    return msgspec.structs.replace(told, **more)


def encoded(lines: Sequence[RequestLine]) -> bytes:
    """As they stand in a file."""
    return b"".join(msgspec.json.encode(line) + b"\n" for line in lines)


def write(
    directory: Path, lines: Sequence[RequestLine], *, index: int = 0, most_bytes: int = 1 << 30, kept: int = 9
) -> None:
    """As routers do, a few lines at a time."""
    files = RequestFiles(directory, index)
    for at in range(0, len(lines), 10):
        files.write(encoded(lines[at : at + 10]), most_bytes=most_bytes, kept=kept)
    files.close()


async def pages(reader: RequestReader, query: RequestQuery) -> list[RequestPage]:
    """All of them, from the query's on."""
    found = [await reader.page(query)]
    while (cursor := found[-1].cursor) is not None:
        found.append(await reader.page(msgspec.structs.replace(query, cursor=cursor)))
        assert len(found) < MOST_PAGES, "pages without end"
    return found
