"""A bare HTTP/2 client over TLS, blocking, that does what no gRPC library would."""

import contextlib
import ssl
import struct
from types import TracebackType

import h2.config
import h2.connection
import h2.events
import h2.exceptions

from tests.support.agentport import tls_socket

CONNECT = "/llmgw.v1.Agents/Connect"
ENROLL = "/llmgw.v1.Agents/Enroll"


def frame(body: bytes) -> bytes:
    """A gRPC frame."""
    return struct.pack(">BI", 0, len(body)) + body


class H2Peer:
    """One connection. Every read has the socket's timeout of 5 s."""

    def __init__(self, port: int, context: ssl.SSLContext) -> None:
        context.set_alpn_protocols(["h2"])
        self.socket = tls_socket(port, context)
        self.h2 = h2.connection.H2Connection(
            h2.config.H2Configuration(client_side=True, header_encoding="utf-8", validate_outbound_headers=False)
        )
        self.h2.initiate_connection()
        self.flush()
        self.headers: dict[int, dict[str, str]] = {}
        self.data: dict[int, bytes] = {}
        self.ended: set[int] = set()
        self.closed = False

    def __enter__(self) -> "H2Peer":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.socket.close()

    def flush(self) -> None:
        """Send what the state machine has."""
        self.raw(self.h2.data_to_send())

    def raw(self, data: bytes) -> None:
        """Send any bytes; a connection the server cut already is no error."""
        with contextlib.suppress(OSError):
            self.socket.sendall(data)

    def call(self, path: str, body: bytes = b"", *, end: bool = False, without: str = "") -> int:
        """Start a call, leaving out one header; its stream's id."""
        stream = self.h2.get_next_available_stream_id()
        headers = [
            (":method", "POST"),
            (":scheme", "https"),
            (":path", path),
            (":authority", "localhost"),
            ("te", "trailers"),
            ("content-type", "application/grpc"),
        ]
        self.h2.send_headers(stream, [(name, value) for name, value in headers if name != without])
        if body or end:
            self.send(stream, body, end=end)
        self.flush()
        return stream

    def send(self, stream: int, body: bytes, *, end: bool = False) -> None:
        """Send bytes as far as the window allows; the rest is not sent."""
        while body:
            window = min(self.h2.local_flow_control_window(stream), self.h2.max_outbound_frame_size, len(body))
            if window <= 0:
                return
            self.h2.send_data(stream, body[:window])
            body = body[window:]
        if end:
            self.h2.end_stream(stream)
        self.flush()

    def read(self) -> bool:
        """Take in what the server sends next; False when the connection is closed."""
        try:
            data = self.socket.recv(65536)
        except (ssl.SSLError, ConnectionError):
            data = b""
        if not data:
            self.closed = True
            return False
        with contextlib.suppress(h2.exceptions.ProtocolError):
            for event in self.h2.receive_data(data):
                self._take(event)
        self.flush()
        return True

    def _take(self, event: h2.events.Event) -> None:
        if isinstance(event, h2.events.ResponseReceived | h2.events.TrailersReceived):
            assert event.stream_id is not None
            assert event.headers is not None
            self.headers.setdefault(event.stream_id, {}).update({str(k): str(v) for k, v in event.headers})
        elif isinstance(event, h2.events.DataReceived):
            assert event.stream_id is not None
            self.data[event.stream_id] = self.data.get(event.stream_id, b"") + (event.data or b"")
        elif isinstance(event, h2.events.StreamEnded | h2.events.StreamReset):
            assert event.stream_id is not None
            self.ended.add(event.stream_id)

    def status(self, stream: int) -> tuple[int, str]:
        """Wait for a call's end: its gRPC status and message. -1 when the connection was closed first."""
        while "grpc-status" not in self.headers.get(stream, {}):
            if not self.read():
                return -1, "connection closed"
        headers = self.headers[stream]
        return int(headers["grpc-status"]), headers.get("grpc-message", "")

    def wait_closed(self) -> None:
        """Read until the server closes the connection; raises TimeoutError after 5 s of nothing."""
        while self.read():
            pass
