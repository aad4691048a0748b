"""A control plane small enough for a benchmark: one model, one replica, one key, over the real feed protocol."""

import contextlib
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import msgspec

from llmgw.core.frames import FrameDecoder, encode_frame
from llmgw.core.routing import (
    ControlMessage,
    KeyAnswer,
    KeyAsk,
    KeyRecord,
    RoutedModel,
    RoutedReplica,
    RouterMessage,
    Routing,
    UsageBatch,
    UsageStored,
)
from llmgw.core.sockets import listen_unix

READ_BYTES = 256 * 1024
_POLL_S = 0.5


class Feed:
    """Serves routers at a unix socket and counts the usage they report."""

    def __init__(self, *, engine_port: int, digest: str) -> None:
        self._digest = digest
        self._routing = Routing(
            revision="bench/1",
            models=(RoutedModel(name="bench", context_length=4096, max_output=4096),),
            replicas=(RoutedReplica(id="r-bench", model="bench", endpoint=f"http://127.0.0.1:{engine_port}"),),
        )
        self.usage_rows = 0
        self.output_tokens = 0
        self._stop = threading.Event()

    @contextlib.contextmanager
    def serving(self, path: Path) -> Iterator[None]:
        """Serve at `path` in a thread while the context is open."""
        listener = listen_unix(path)
        listener.settimeout(_POLL_S)
        thread = threading.Thread(target=self._accept, args=(listener,), daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._stop.set()
            thread.join()
            listener.close()

    def _accept(self, listener: socket.socket) -> None:
        while not self._stop.is_set():
            with contextlib.suppress(TimeoutError):
                connection, _ = listener.accept()
                with connection, contextlib.suppress(OSError):
                    self._follow(connection)

    def _follow(self, connection: socket.socket) -> None:
        connection.settimeout(_POLL_S)
        frames, decoder = FrameDecoder(), msgspec.msgpack.Decoder(RouterMessage)
        self._send(connection, self._routing)
        while not self._stop.is_set():
            try:
                data = connection.recv(READ_BYTES)
            except TimeoutError:
                continue
            if not data:
                return
            for frame in frames.feed(data):
                self._answer(connection, decoder.decode(frame))

    def _answer(self, connection: socket.socket, message: RouterMessage) -> None:
        if isinstance(message, KeyAsk):
            record = KeyRecord(id="bench", name="bench") if message.digest == self._digest else None
            self._send(connection, KeyAnswer(digest=message.digest, record=record))
        elif isinstance(message, UsageBatch):
            self.usage_rows += len(message.rows)
            self.output_tokens += sum(row.output_tokens for row in message.rows)
            self._send(connection, UsageStored(seq=message.seq))

    @staticmethod
    def _send(connection: socket.socket, message: ControlMessage) -> None:
        connection.sendall(encode_frame(msgspec.msgpack.encode(message)))
