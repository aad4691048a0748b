"""A control plane small enough for a benchmark: one model, one replica, one key, over the real feed protocol.

Everything a router can be asked to hold a request against is there, high enough never to refuse one: the key's and its
team's limits and budgets, and prices, so that each request is priced and counted in every one of them.
"""

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from llmgw.core.admission import Admission
from llmgw.core.frames import FrameDecoder, encode_frame
from llmgw.core.limits import MICROS, Budget, Limits, Period, ScopeKind, ScopeRecord, Spending, day_number, month_number
from llmgw.core.prices import Prices
from llmgw.core.routing import (
    Activity,
    ControlMessage,
    KeyAnswer,
    KeyAsk,
    KeyRecord,
    LoadTable,
    RoutedModel,
    RoutedReplica,
    RouterHello,
    RouterMessage,
    Routing,
    ScopeTable,
    Scoring,
    UsageBatch,
    UsageRow,
    UsageStored,
)
from llmgw.core.sockets import listen_unix

READ_BYTES = 256 * 1024
_POLL_S = 0.5
_LOADS_S = 1.0
TEAM = "bench-team"
PRICES = Prices(input=0.5, cached_input=0.1, output=1.5)
LIMITS = Limits(rpm=100_000_000, tpm=100_000_000_000, parallel=100_000)
BUDGETS = (Budget(amount_micros=900_000_000 * MICROS, period=Period.MONTH),)


class Feed:
    """Serves routers at a unix socket and counts what they report."""

    def __init__(
        self,
        *,
        engine_port: int,
        digest: str,
        others: Sequence[int] = (),
        scoring: Scoring | None = None,
        admission: Admission | None = None,
        keys: Mapping[str, KeyRecord] | None = None,
        loads: Callable[[], LoadTable] | None = None,
    ) -> None:
        """`others` are ports of further replicas, `keys` further keys by digest, `loads` what engines say by now."""
        self._keys = {digest: _key()} | dict(keys or {})
        self._loads = loads
        self._routing = Routing(
            revision="bench/1",
            models=(RoutedModel(name="bench", context_length=4096, max_output=4096, prices=PRICES),),
            replicas=tuple(
                RoutedReplica(id=f"r-bench-{n}", model="bench", endpoint=f"http://127.0.0.1:{port}")
                for n, port in enumerate((engine_port, *others))
            ),
            scoring=scoring or Scoring(),
            admission=admission or Admission(),
        )
        self.keep: list[UsageRow] | None = None
        """Where the rows that come are kept, while somebody wants them."""
        self.usage_rows = 0
        self.output_tokens = 0
        self.cost_micros = 0
        self.answered: dict[int, int] = {}
        """Requests each router answered since it started, by its index, as it last said."""
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self._threads: list[threading.Thread] = []

    @contextlib.contextmanager
    def serving(self, path: Path) -> Iterator[None]:
        """Serve at `path` in threads while the context is open."""
        listener = listen_unix(path)
        listener.settimeout(_POLL_S)
        self._begin(self._accept, listener)
        try:
            yield
        finally:
            self.close()
            listener.close()

    def close(self) -> None:
        """Leave the routers to themselves, for good; returns when no connection is open any more."""
        self._stop.set()
        for thread in list(self._threads):
            thread.join()

    def _begin(self, target: Callable[[socket.socket], None], connection: socket.socket) -> None:
        thread = threading.Thread(target=target, args=(connection,), daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self, listener: socket.socket) -> None:
        while not self._stop.is_set():
            with contextlib.suppress(TimeoutError):
                self._begin(self._serve, listener.accept()[0])

    def _serve(self, connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError):
            self._follow(connection)

    def _follow(self, connection: socket.socket) -> None:
        connection.settimeout(_POLL_S)
        frames, decoder, index = FrameDecoder(), msgspec.msgpack.Decoder(RouterMessage), -1
        self._send(connection, self._routing)
        self._send(connection, ScopeTable(scopes=(_team(),)))
        told_at = 0.0
        while not self._stop.is_set():
            if self._loads is not None and time.monotonic() - told_at >= _LOADS_S:
                told_at = time.monotonic()
                self._send(connection, self._loads())
            try:
                data = connection.recv(READ_BYTES)
            except TimeoutError:
                continue
            if not data:
                return
            for frame in frames.feed(data):
                message = decoder.decode(frame)
                if isinstance(message, RouterHello):
                    index = message.index
                self._answer(connection, index, message)

    def _answer(self, connection: socket.socket, index: int, message: RouterMessage) -> None:
        if isinstance(message, KeyAsk):
            self._send(connection, KeyAnswer(digest=message.digest, record=self._keys.get(message.digest)))
        elif isinstance(message, Activity):
            self.answered[index] = message.requests
        elif isinstance(message, UsageBatch):
            with self._lock:
                self.usage_rows += len(message.rows)
                self.output_tokens += sum(row.output_tokens for row in message.rows)
                self.cost_micros += sum(row.cost_micros for row in message.rows)
                if self.keep is not None:
                    self.keep += message.rows
            self._send(connection, UsageStored(seq=message.seq))

    @staticmethod
    def _send(connection: socket.socket, message: ControlMessage) -> None:
        connection.sendall(encode_frame(msgspec.msgpack.encode(message)))


def _spent() -> Spending:
    at = time.time()
    return Spending(day=day_number(at), day_micros=MICROS, month=month_number(at), month_micros=30 * MICROS)


def _key() -> KeyRecord:
    return KeyRecord(id="bench", name="bench", team=TEAM, limits=LIMITS, budgets=BUDGETS, spent=_spent())


def _team() -> ScopeRecord:
    return ScopeRecord(kind=ScopeKind.TEAM, id=TEAM, limits=LIMITS, budgets=BUDGETS, spent=_spent())
