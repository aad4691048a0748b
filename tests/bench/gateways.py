"""What is compared: something that listens on a port and passes requests to the engine; how it is waited for."""

import contextlib
import http.client
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.bench.feed import Feed
from tests.bench.load import any_certificate
from tests.bench.native import START_S, Missing


@dataclass(kw_only=True)
class Gateway:
    """Something that listens on `port` and passes requests to the engine."""

    name: str
    port: int
    roots: tuple[int, ...] = ()
    """Processes whose CPU and memory, with those of all below them, are its cost."""
    key: str = ""
    feed: Feed | None = None
    tls: bool = False
    does: str = ""
    """For each request beside passing it on, in words."""
    few: bool = False
    """So slow that it is given few clients, so that a round of it ends within seconds."""


ASK_S = 10.0
"""For an answer to one request before anything is measured."""
FEW_CLIENTS = 4
"""What a slow gateway is given at most: at four requests a second these are a second's."""

Maker = Callable[[contextlib.ExitStack, Path, int], Gateway]
"""Starts a gateway, to be ended by the stack, with its files in a directory it makes, before an engine's port."""


def clients_for(gateway: Gateway, clients: int) -> int:
    """How many of a mode's clients a gateway is given."""
    return min(clients, FEW_CLIENTS) if gateway.few else clients


def free_port() -> int:
    """A port nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def connects(port: int) -> bool:
    """Whether something listens on `port`."""
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True


def gets(port: int, path: str, key: str = "", *, holds: bytes = b"", tls: bool = False) -> bool:
    """Whether a GET of the path is answered 200 with a body that holds the bytes."""
    try:
        with _asking(port, "GET", path, None, key, tls) as response:
            return response.status == 200 and holds in response.read()
    except (OSError, http.client.HTTPException):
        return False


def head_of_post(port: int, path: str, body: str, key: str, *, tls: bool = False) -> dict[str, str]:
    """Headers of the answer to a POST, names in lower case; raises OSError or HTTPException when there is none."""
    with _asking(port, "POST", path, body, key, tls) as response:
        response.read()
        return {name.lower(): value for name, value in response.getheaders()}


@contextlib.contextmanager
def _asking(
    port: int, method: str, path: str, body: str | None, key: str, tls: bool
) -> Iterator[http.client.HTTPResponse]:
    headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {key}"} if key else {})
    if tls:
        connection: http.client.HTTPConnection = http.client.HTTPSConnection(
            "127.0.0.1", port, timeout=ASK_S, context=any_certificate()
        )
    else:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=ASK_S)
    with contextlib.closing(connection):
        connection.request(method, path, body, headers)
        yield connection.getresponse()


def until(
    condition: Callable[[], bool],
    what: str,
    process: subprocess.Popen[bytes] | None = None,
    log: Path | None = None,
    *,
    within_s: float = START_S,
) -> None:
    """Wait for it; raises Missing with the end of the log when the process ends or the time is over."""
    deadline = time.monotonic() + within_s
    while not condition():
        ended = process is not None and process.poll() is not None
        if ended or time.monotonic() > deadline:
            tail = log.read_text(errors="replace")[-600:].strip() if log is not None and log.exists() else ""
            raise Missing(f"{what} did not come up{' and ended' if ended else ''}: {tail or 'it said nothing'}")
        time.sleep(0.02)


@contextlib.contextmanager
def gateways(
    makers: Mapping[str, Maker], directory: Path, engine_port: int
) -> Iterator[tuple[list[Gateway], dict[str, str]]]:
    """Those that start, all in front of one engine, and a sentence for each that does not."""
    running, skipped = [], {}
    with contextlib.ExitStack() as stack:
        for name, make in makers.items():
            with contextlib.ExitStack() as own:
                try:
                    running.append(make(own, directory / name, engine_port))
                except Missing as error:
                    skipped[name] = str(error)
                else:
                    stack.enter_context(own.pop_all())
        yield running, skipped
