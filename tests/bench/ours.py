"""Our router, as the server would start it, with everything on that it can be asked to do for a request."""

import contextlib
import secrets
import socket
import sys
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

import msgspec

from llmgw.core.admission import Admission, Band
from llmgw.core.layout import ServerLayout
from llmgw.core.routing import KeyRecord, LoadTable, ReplicaLoad, Scoring
from llmgw.core.secrets import CLUSTER_SECRET_BYTES, key_digest
from llmgw.router.front_tls import ClientTlsFiles
from llmgw.router.token_pass import describe
from tests.bench.feed import Feed
from tests.bench.gateways import Gateway, gets, until
from tests.bench.native import child

DOES = "checks the key and its limits, its team's and both budgets; prices, usage, metrics"
BACKLOG = 4096
REPLICAS = 3
BANDS = Admission(bands=(Band(name="gold", priority=10), Band(name="bronze", priority=-10)))
ASKED_BEFORE = 40
"""Connections made before anything is measured, so that every router process has had its share and knows the key."""


def router(
    stack: contextlib.ExitStack,
    directory: Path,
    engine_port: int,
    *,
    processes: int = 1,
    name: str = "llmgw router",
    certificate: tuple[Path, Path] | None = None,
    others: tuple[int, ...] = (),
    scoring: Scoring | None = None,
    admission: Admission | None = None,
    keys: Mapping[str, KeyRecord] | None = None,
    loads: Callable[[], LoadTable] | None = None,
) -> Gateway:
    """Router processes with a feed, a key to check and usage to report; TLS with a certificate and its key.

    `others` are ports of further engines of the same model, `scoring` is how they are chosen. `admission` says who
    waits, `keys` are further API keys with whose they are, `loads` says how engines are.

    Raises Missing when they do not start.
    """
    layout = ServerLayout(data=directory)
    for made in (layout.data, layout.run, layout.secrets):
        made.mkdir(mode=0o700)
    secret = secrets.token_bytes(CLUSTER_SECRET_BYTES)
    layout.cluster_secret.touch(mode=0o600)
    layout.cluster_secret.write_bytes(secret)
    if certificate is not None:
        files = ClientTlsFiles(certificate=str(certificate[0]), key=str(certificate[1]))
        layout.client_tls.write_bytes(msgspec.json.encode(files))
    key, tls = "sk-" + secrets.token_urlsafe(32), certificate is not None
    digest = key_digest(secret, key.encode())
    feed = Feed(
        engine_port=engine_port,
        digest=digest,
        others=others,
        scoring=scoring,
        admission=admission,
        keys={key_digest(secret, name.encode()): record for name, record in (keys or {}).items()},
        loads=loads,
    )
    stack.enter_context(feed.serving(layout.feed_socket))
    port, pids = 0, []
    for index in range(processes):
        port, pid = _process(stack, directory, index, port, key, tls)
        pids.append(pid)
    until(lambda: len(feed.answered) == processes, "the routers' reports")
    for _ in range(ASKED_BEFORE):
        gets(port, "/v1/models", key, tls=tls)
    return Gateway(name=name, port=port, roots=tuple(pids), key=key, feed=feed, tls=tls, does=f"{DOES}; {describe()}")


def choosing(stack: contextlib.ExitStack, directory: Path, engine_port: int) -> Gateway:
    """Our router with what concerns several replicas on top: it hears how they are, lets in by bands, and chooses.

    All three are the one engine, which never says that it is busy.
    """
    gateway = router(
        stack,
        directory,
        engine_port,
        name="llmgw, choosing",
        others=(engine_port,) * (REPLICAS - 1),
        admission=BANDS,
        loads=_never_busy,
    )
    gateway.does += f"; bands; one of {REPLICAS} replicas by session, prefix and load"
    return gateway


def _never_busy() -> LoadTable:
    load = ReplicaLoad(running=1, waiting=0, slots=4096, kv_used=0.1, at=time.time())
    return LoadTable(loads={f"r-bench-{n}": load for n in range(REPLICAS)}, whole=True)


def _process(
    stack: contextlib.ExitStack, directory: Path, index: int, port: int, key: str, tls: bool
) -> tuple[int, int]:
    """One router process with a socket of its own, on `port` or a free one; its port and pid once it answers."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        listener.bind(("127.0.0.1", port))
        listener.listen(BACKLOG)
        bound: int = listener.getsockname()[1]
        argv = [sys.executable, "-m", "llmgw.router.process"]
        argv += ["--index", str(index), "--data", str(directory), "--fd", str(listener.fileno()), "--drain-s", "1"]
        process = stack.enter_context(child(argv, pass_fds=(listener.fileno(),)))
    # As long as this process had the socket open, connections could wait here for nobody.
    log = ServerLayout(data=directory).log / f"router-{index}.log"
    until(partial(gets, bound, "/v1/models", key, holds=b"bench", tls=tls), "the router", process, log)
    return bound, process.pid
