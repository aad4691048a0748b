"""A line as slow as one around the world: every byte arrives later, in its order, both ways; a test may hold it.

A server that is asked through it is asked at `port` of 127.0.0.1. Held, the line brings nothing more to the client,
so that a test says what happens while an answer is out without a look at a clock.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator

DELAY_S = 0.1
"""One way; there and back is 200 ms."""
CHUNK_BYTES = 64 * 1024


class SlowLine:
    """One listener in front of one server."""

    def __init__(self, port: int, *, delay_s: float = DELAY_S) -> None:
        self._server_port = port
        self._delay_s = delay_s
        self._open = asyncio.Event()
        self._open.set()
        self._ways: set[asyncio.Task[None]] = set()
        self.port = 0
        """Where it listens; 0 before it does."""
        self.there = 0
        """Bytes that reached the server."""
        self.back = 0
        """Bytes that reached the client."""

    def hold(self) -> None:
        """Bring nothing more to the client. What it sends goes on its way."""
        self._open.clear()

    def release(self) -> None:
        """Bring what was held, and what comes."""
        self._open.set()

    async def connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection; ends when either side has ended it."""
        task = asyncio.current_task()
        assert task is not None
        self._ways.add(task)
        try:
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._server_port)
            try:
                await asyncio.gather(
                    self._way(reader, far_writer, back=False), self._way(far_reader, writer, back=True)
                )
            finally:
                far_writer.close()
        except (ConnectionError, asyncio.CancelledError):
            pass
        finally:
            writer.close()
            self._ways.discard(task)

    async def end(self) -> None:
        """Break off every connection."""
        ways = list(self._ways)
        for way in ways:
            way.cancel()
        await asyncio.gather(*ways, return_exceptions=True)

    async def _way(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, back: bool) -> None:
        """One direction: bytes are read as they come, and written the delay after that."""
        clock = asyncio.get_running_loop().time
        on_the_way: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()

        async def read() -> None:
            data = b"."
            while data:
                data = await reader.read(CHUNK_BYTES)
                on_the_way.put_nowait((clock() + self._delay_s, data))

        reading = asyncio.ensure_future(read())
        try:
            while True:
                due, data = await on_the_way.get()
                await asyncio.sleep(max(0.0, due - clock()))
                if back:
                    await self._open.wait()
                if not data:
                    writer.write_eof()
                    return
                writer.write(data)
                await writer.drain()
                self.back += len(data) if back else 0
                self.there += 0 if back else len(data)
        finally:
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)


@contextlib.asynccontextmanager
async def slow_line(port: int, *, delay_s: float = DELAY_S) -> AsyncIterator[SlowLine]:
    """A line to the server at `port` of 127.0.0.1 while the context is open."""
    line = SlowLine(port, delay_s=delay_s)
    server = await asyncio.start_server(line.connect, "127.0.0.1", 0)
    line.port = server.sockets[0].getsockname()[1]
    try:
        yield line
    finally:
        server.close()
        await line.end()
        await server.wait_closed()
