"""A load generator that checks every stream: so many clients, until so many streams or so many seconds are over.

    python -m tests.bench.load --port 8080 --clients 64 --streams 2000 --tokens 64 [--seconds 30] [--key sk-…]

One thread over epoll and raw sockets. It is the check of a gateway's answers in every benchmark, and the load itself
where `wrk` is not installed.
"""

import argparse
import json
import select
import socket
import ssl
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field

READ_BYTES = 256 * 1024
POLL_S = 0.2
MAX_CLIENTS = 4096
MAX_STREAMS = 1_000_000
MAX_SECONDS = 600.0
LAST_CHUNK = b"0\r\n\r\n"
TOKEN = b'"content":" tok'
"""In every token event and no other, also of a gateway that writes the engine's events anew."""
PATH = "/v1/chat/completions"
BODY = json.dumps(
    {"model": "bench", "messages": [{"role": "user", "content": "Count to sixty-four, please."}], "stream": True}
)


@dataclass(kw_only=True)
class LoadResult:
    """What a run saw."""

    requests: int = 0
    """Streams that were whole and right."""
    wrong: dict[str, int] = field(default_factory=dict)
    """Streams that were not, by reason."""
    seconds: float = 0.0
    first_byte_ms: tuple[float, float] = (0.0, 0.0)
    """Median and 99th percentile."""
    total_ms: tuple[float, float] = (0.0, 0.0)


@dataclass(kw_only=True)
class LoadPlan:
    """What to send, and how much at most."""

    port: int
    clients: int
    streams: int
    """No more are begun after so many."""
    seconds: float
    """Nor after so long; what is open is left."""
    tokens: int
    """Token events a right stream has."""
    key: str = ""
    tls: bool = False
    """Whether the gateway is spoken to over TLS; whose certificate it shows is not looked at."""

    @property
    def origin(self) -> str:
        """Scheme, host and port."""
        return f"{'https' if self.tls else 'http'}://127.0.0.1:{self.port}"


class _Client:
    """One connection with one stream at a time."""

    def __init__(self, port: int, tls: ssl.SSLContext | None) -> None:
        self.sock = socket.create_connection(("127.0.0.1", port), timeout=5)
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if tls is not None:
            self.sock = tls.wrap_socket(self.sock)
        self.sock.setblocking(False)
        self.began = self.first = 0.0
        self.received = bytearray()

    def ask(self, request: bytes) -> None:
        self.received.clear()
        self.began, self.first = time.perf_counter(), 0.0
        if self.sock.send(request) != len(request):
            raise OSError("a request did not fit the socket's buffer")

    def done(self, data: bytes) -> bool:
        if not self.received:
            self.first = time.perf_counter()
        self.received += data
        return self.received.endswith(LAST_CHUNK)


def run_load(plan: LoadPlan) -> LoadResult:
    """Run it; raises OSError when nothing listens."""
    request = request_bytes(plan.key)
    tls = any_certificate() if plan.tls else None
    clients = {c.sock.fileno(): c for c in (_Client(plan.port, tls) for _ in range(min(plan.clients, plan.streams)))}
    result, firsts, totals = LoadResult(), [], []
    begun, start = len(clients), time.perf_counter()
    with select.epoll() as poll:
        for number, client in clients.items():
            poll.register(number, select.EPOLLIN)
            client.ask(request)
        while clients and time.perf_counter() - start < plan.seconds:
            for number, _ in poll.poll(POLL_S):
                client = clients[number]
                state = _read(client, plan.tokens)
                if state is None:
                    continue
                if state:
                    result.wrong[state] = result.wrong.get(state, 0) + 1
                else:
                    result.requests += 1
                    firsts.append((client.first - client.began) * 1e3)
                    totals.append((time.perf_counter() - client.began) * 1e3)
                if state or begun >= plan.streams:
                    del clients[number]
                    client.sock.close()
                else:
                    begun += 1
                    client.ask(request)
    for client in clients.values():
        client.sock.close()
    result.seconds = time.perf_counter() - start
    result.first_byte_ms, result.total_ms = percentiles(firsts), percentiles(totals)
    return result


def request_bytes(key: str) -> bytes:
    """The request every client sends."""
    lines = [f"POST {PATH} HTTP/1.1", "Host: 127.0.0.1", "Content-Type: application/json"]
    lines += [f"Content-Length: {len(BODY)}", *([f"Authorization: Bearer {key}"] if key else [])]
    return ("\r\n".join(lines) + "\r\n\r\n" + BODY).encode()


def check_stream(answer: bytes, tokens: int) -> str:
    """What is wrong with a whole answer; empty is nothing."""
    head, _, body = answer.partition(b"\r\n\r\n")
    if not head.startswith(b"HTTP/1.1 200 "):
        return head.partition(b"\r\n")[0][:40].decode("latin-1")
    got = body.count(TOKEN)
    if got != tokens:
        return f"{got} tokens"
    if body.count(b"data: [DONE]\n\n") != 1:
        return "no [DONE]"
    return "usage that nobody asked for" if b'"usage"' in body else ""


def percentiles(values: list[float]) -> tuple[float, float]:
    """Median and 99th percentile; zeros of nothing."""
    if not values:
        return 0.0, 0.0
    ordered = sorted(values)
    return ordered[len(ordered) // 2], ordered[min(len(ordered) - 1, len(ordered) * 99 // 100)]


def any_certificate() -> ssl.SSLContext:
    """TLS with whoever is there: the benchmark made the certificate itself, on loopback."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def _read(client: _Client, tokens: int) -> str | None:
    """None: not whole yet; else what is wrong with the stream."""
    try:
        data = client.sock.recv(READ_BYTES)
        while isinstance(client.sock, ssl.SSLSocket) and client.sock.pending():
            data += client.sock.recv(READ_BYTES)
    except (BlockingIOError, ssl.SSLWantReadError):
        return None
    except OSError as error:
        return type(error).__name__
    if not data:
        return "closed early" if client.received else "closed without an answer"
    if not client.done(data):
        # An error has a length and no last chunk: its head is enough.
        status_ok = client.received[:13] == b"HTTP/1.1 200 "
        return None if status_ok or b"\r\n\r\n" not in client.received else check_stream(bytes(client.received), 0)
    return check_stream(bytes(client.received), tokens)


def main(argv: Sequence[str] | None = None) -> int:
    """Print the result as JSON; 1 when a stream was wrong."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.load", description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--streams", type=int, default=2000)
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--key", default="")
    flags = parser.parse_args(argv)
    result = run_load(
        LoadPlan(
            port=flags.port,
            clients=max(1, min(flags.clients, MAX_CLIENTS)),
            streams=max(1, min(flags.streams, MAX_STREAMS)),
            seconds=min(flags.seconds, MAX_SECONDS),
            tokens=flags.tokens,
            key=flags.key,
        )
    )
    print(json.dumps(asdict(result)))
    return 1 if result.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
