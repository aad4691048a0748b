"""Simulated visitors: a few clients that ask the fleet's models through the router, so that there is traffic to see.

They use a key of their own, which says what they are; the real model is never asked. A failure is a visitor's bad luck.
"""

import contextlib
import json
import random
import ssl
from collections.abc import Sequence

import trio

from llmgw.demo.files import HOST

KEY_NAME = "simulated-visitors"
VISITORS = 6
"""Visitors at most; each reads one answer at a time."""
PAUSE_S = (0.5, 9.0)
"""A visitor thinks for so long between two questions."""
TOKENS = (60, 600)
ANSWER_S = 120.0
"""A visitor gives up after this long."""
READ_BYTES = 65_536


async def run(port: int, key: str, models: Sequence[str], tls: ssl.SSLContext | None = None) -> None:
    """Ask until cancelled."""
    async with trio.open_nursery() as nursery:
        for number in range(VISITORS):
            nursery.start_soon(_visit, port, tls, key, models, random.Random(number))


async def _visit(port: int, tls: ssl.SSLContext | None, key: str, models: Sequence[str], chance: random.Random) -> None:
    while True:
        await trio.sleep(chance.uniform(*PAUSE_S))
        # The first models are asked most, as everywhere.
        model = models[min(chance.randrange(len(models)), chance.randrange(len(models)))]
        with contextlib.suppress(OSError, trio.BrokenResourceError), trio.move_on_after(ANSWER_S):
            await _ask(port, tls, key, model, chance.randint(*TOKENS))


async def _ask(port: int, tls: ssl.SSLContext | None, key: str, model: str, tokens: int) -> None:
    """One streamed answer, read to its end."""
    body = json.dumps(
        {
            "model": model,
            "stream": True,
            "max_tokens": tokens,
            "messages": [{"role": "user", "content": "Tell me something long."}],
            "sim": {"tokens": tokens},
        }
    ).encode()
    head = (
        f"POST /v1/chat/completions HTTP/1.1\r\nHost: {HOST}:{port}\r\nAuthorization: Bearer {key}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    )
    stream: trio.abc.Stream
    if tls is None:
        stream = await trio.open_tcp_stream(HOST, port)
    else:
        stream = await trio.open_ssl_over_tcp_stream(HOST, port, ssl_context=tls, https_compatible=True)
    async with stream:
        await stream.send_all(head.encode() + body)
        while await stream.receive_some(READ_BYTES):
            pass
