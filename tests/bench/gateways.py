"""What is compared: nothing in between, nginx, and our router as the server would start it."""

import contextlib
import http.client
import os
import secrets
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from llmgw.core.layout import ServerLayout
from llmgw.core.secrets import CLUSTER_SECRET_BYTES, key_digest
from tests.bench.feed import Feed
from tests.bench.native import START_S, Missing, child
from tests.bench.proc import children

NGINX_CONF = """
{user}
worker_processes 1;
daemon off;
pid {directory}/nginx.pid;
error_log {directory}/nginx.log warn;
events {{ worker_connections 8192; }}
http {{
    access_log off;
    client_body_temp_path {directory}/body;
    proxy_temp_path {directory}/proxy;
    fastcgi_temp_path {directory}/fastcgi;
    uwsgi_temp_path {directory}/uwsgi;
    scgi_temp_path {directory}/scgi;
    keepalive_requests 10000000;
    upstream engine {{ server 127.0.0.1:{engine}; keepalive 512; keepalive_requests 10000000; }}
    server {{
        listen 127.0.0.1:{port} backlog=4096;
        location / {{
            proxy_pass http://engine;
            proxy_http_version 1.1;
            proxy_set_header Connection "";
            proxy_buffering off;
        }}
    }}
}}
"""


@dataclass(kw_only=True)
class Gateway:
    """Something that listens on `port` and passes requests to the engine."""

    name: str
    port: int
    pids: tuple[int, ...] = ()
    """Processes whose CPU is its cost."""
    key: str = ""
    feed: Feed | None = None
    notes: list[str] = field(default_factory=list)


def direct(stack: contextlib.ExitStack, directory: Path, engine_port: int) -> Gateway:
    """The engine itself."""
    return Gateway(name="direct", port=engine_port)


def nginx(stack: contextlib.ExitStack, directory: Path, engine_port: int) -> Gateway:
    """nginx with one worker, no buffering and kept upstream connections; raises Missing."""
    program = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin:/usr/local/sbin")
    if program is None:
        raise Missing("nginx is not installed (Debian, Ubuntu: apt install nginx-light)")
    directory.mkdir()
    port = free_port()
    conf = directory / "nginx.conf"
    user = "user root;" if os.geteuid() == 0 else ""
    conf.write_text(NGINX_CONF.format(directory=directory, engine=engine_port, port=port, user=user))
    argv = [program, "-p", str(directory), "-c", str(conf), "-e", str(directory / "nginx.log")]
    process = stack.enter_context(child(argv))
    wait_open(port, process, directory / "nginx.log")
    until(lambda: len(children(process.pid)) == 1, "nginx's worker")
    return Gateway(name="nginx", port=port, pids=(process.pid, *children(process.pid)))


def router(stack: contextlib.ExitStack, directory: Path, engine_port: int) -> Gateway:
    """Our router process, with a feed, a key to check and usage to report; raises Missing when it does not start."""
    layout = ServerLayout(data=directory)
    for made in (layout.data, layout.run, layout.secrets):
        made.mkdir(mode=0o700)
    secret = secrets.token_bytes(CLUSTER_SECRET_BYTES)
    layout.cluster_secret.touch(mode=0o600)
    layout.cluster_secret.write_bytes(secret)
    key = "sk-" + secrets.token_urlsafe(32)
    feed = Feed(engine_port=engine_port, digest=key_digest(secret, key.encode()))
    stack.enter_context(feed.serving(layout.feed_socket))
    listener = stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_STREAM))
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    listener.bind(("127.0.0.1", 0))
    listener.listen(4096)
    port = listener.getsockname()[1]
    argv = [sys.executable, "-m", "llmgw.router.process"]
    argv += ["--index", "0", "--data", str(directory), "--fd", str(listener.fileno()), "--drain-s", "1"]
    log = directory / "router.log"
    process = stack.enter_context(child(argv, stderr=log, pass_fds=(listener.fileno(),)))
    # As long as this process had it open, connections could wait here for nobody.
    listener.close()
    until(lambda: answers(port, key), "the router", process, log)
    return Gateway(name="llmgw router", port=port, pids=(process.pid,), key=key, feed=feed)


GATEWAYS: dict[str, Callable[[contextlib.ExitStack, Path, int], Gateway]] = {
    "direct": direct,
    "nginx": nginx,
    "router": router,
}


def free_port() -> int:
    """A port nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def wait_open(port: int, process: subprocess.Popen[bytes], log: Path) -> None:
    """Wait until something listens on `port`; raises Missing."""

    def connects() -> bool:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            return False
        return True

    until(connects, f"port {port}", process, log)


def answers(port: int, key: str) -> bool:
    """Whether the router knows its model and the key."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request("GET", "/v1/models", headers={"Authorization": f"Bearer {key}"})
        response = connection.getresponse()
        return response.status == 200 and b"bench" in response.read()
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def until(
    condition: Callable[[], bool],
    what: str,
    process: subprocess.Popen[bytes] | None = None,
    log: Path | None = None,
) -> None:
    """Wait for it; raises Missing with the end of the log when the process ends or START_S is over."""
    deadline = time.monotonic() + START_S
    while not condition():
        ended = process is not None and process.poll() is not None
        if ended or time.monotonic() > deadline:
            tail = log.read_text(errors="replace")[-600:].strip() if log is not None and log.exists() else ""
            raise Missing(f"{what} did not come up{' and ended' if ended else ''}: {tail or 'it said nothing'}")
        time.sleep(0.02)


@contextlib.contextmanager
def gateways(names: list[str], directory: Path, engine_port: int) -> Iterator[tuple[list[Gateway], dict[str, str]]]:
    """Those of `names` that start, all in front of one engine, and a sentence for each that does not."""
    running, skipped = [], {}
    with contextlib.ExitStack() as stack:
        for name in names:
            with contextlib.ExitStack() as own:
                try:
                    running.append(GATEWAYS[name](own, directory / name, engine_port))
                except Missing as error:
                    skipped[name] = str(error)
                else:
                    stack.enter_context(own.pop_all())
        yield running, skipped
