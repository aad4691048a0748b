"""One streamed answer on a connection of its own, for the parts whose requests come when they are due."""

import json
from collections.abc import Mapping
from dataclasses import dataclass

import trio

from tests.bench.load import PATH

ANSWER_S = 120.0


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What came of one request; times are trio's."""

    status: int = 0
    """0 where no answer came."""
    first_at: float = 0.0
    """When the first token came; 0 where none did."""
    whole: bool = False
    """Whether it was answered to the end."""
    why: str = ""
    """What came instead, where it was not answered whole."""


async def ask(port: int, key: str, document: Mapping[str, object]) -> Asked:
    """Ask for a stream of the model `bench`, with further fields of the body."""
    body = json.dumps({"model": "bench", "stream": True, **document}).encode()
    head = f"POST {PATH} HTTP/1.1\r\nhost: bench\r\nconnection: close\r\ncontent-type: application/json\r\n"
    head += f"authorization: Bearer {key}\r\n" if key else ""
    came, first_at = bytearray(), 0.0
    try:
        with trio.fail_after(ANSWER_S):
            async with await trio.open_tcp_stream("127.0.0.1", port) as stream:
                await stream.send_all(head.encode() + b"content-length: %d\r\n\r\n%b" % (len(body), body))
                while data := await stream.receive_some(65536):
                    came += data
                    if not first_at and b"\ndata: {" in came:
                        first_at = trio.current_time()
    except (OSError, trio.BrokenResourceError, trio.TooSlowError) as error:
        return Asked(why=f"an answer ended with {error!r}")
    status = int(came.split(b" ", 2)[1]) if came.startswith(b"HTTP/1.1 ") else 0
    whole = status == 200 and first_at > 0 and b"data: [DONE]" in came and b'"error"' not in came
    return Asked(
        status=status, first_at=first_at, whole=whole, why="" if whole else f"{status}: {bytes(came[-200:])!r}"
    )
