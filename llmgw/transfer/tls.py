"""TLS for receiving much: many records a call, where trio's own stream gives one, so that a large file costs few calls.

A client's side only, without a closing alert: who reads HTTP knows by the answer's length whether all of it came.
"""

import ssl
from typing import cast

import trio

RAW_BYTES = 256 * 1024
"""Read from the socket at once: sixteen full records."""


class TlsStream(trio.abc.Stream):
    """TLS over `transport`; `do_handshake` comes first. TLS's errors are trio.BrokenResourceError, with their cause."""

    def __init__(self, transport: trio.abc.Stream, context: ssl.SSLContext, *, server_hostname: str | None) -> None:
        self._transport = transport
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_hostname=server_hostname)

    async def do_handshake(self) -> None:
        """Agree on keys and check the certificate."""
        while True:
            try:
                self._tls.do_handshake()
            except ssl.SSLWantReadError:
                await self._flush()
                if not await self._fill():
                    raise trio.BrokenResourceError("the connection was closed within the TLS handshake") from None
            except ssl.SSLError as error:
                await self._flush()  # the alert that says why
                raise trio.BrokenResourceError from error
            else:
                await self._flush()
                return

    async def send_all(self, data: "bytes | bytearray | memoryview") -> None:
        """Send all of it."""
        left = memoryview(data)
        while left:
            try:
                left = left[self._tls.write(left) :]
            except ssl.SSLError as error:
                raise trio.BrokenResourceError from error
            await self._flush()

    async def wait_send_all_might_not_block(self) -> None:
        """As the socket's own."""
        await self._transport.wait_send_all_might_not_block()

    async def receive_some(self, max_bytes: int | None = None) -> bytearray:
        """What is there of up to `max_bytes`, waiting for the first; empty at the end."""
        buffer = bytearray(max_bytes or RAW_BYTES)
        await trio.lowlevel.checkpoint_if_cancelled()
        while True:
            got, ended = self._decrypt(memoryview(buffer))
            if self._outgoing.pending:
                await self._flush()
            if got or ended:
                del buffer[got:]
                return buffer
            if not await self._fill():
                self._incoming.write_eof()

    async def aclose(self) -> None:
        """Close the socket."""
        await self._transport.aclose()

    def _decrypt(self, space: memoryview) -> tuple[int, bool]:
        """Decrypt what has arrived into `space`; gives its bytes, and whether nothing follows."""
        got = 0
        try:
            while got < len(space):
                # Into a buffer it gives a count, which typeshed does not know.
                count = cast("int", self._tls.read(len(space) - got, space[got:]))
                if not count:
                    return got, True
                got += count
        except ssl.SSLWantReadError:
            pass
        except (ssl.SSLZeroReturnError, ssl.SSLEOFError):
            return got, True
        except ssl.SSLError as error:
            if not got:
                raise trio.BrokenResourceError from error
        return got, False

    async def _fill(self) -> bool:
        """Wait for more from the socket; false at its end."""
        data = await self._transport.receive_some(RAW_BYTES)
        if data:
            self._incoming.write(data)
        return bool(data)

    async def _flush(self) -> None:
        if self._outgoing.pending:
            await self._transport.send_all(self._outgoing.read())
