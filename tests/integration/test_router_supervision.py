"""Routers as processes: whoever is killed, the port goes on being served, and a clean stop leaves nothing."""

import contextlib
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
import trio

from llmgw.control.feed import FeedServer
from llmgw.control.routers import RouterSupervisor
from llmgw.core.errors import Conflict, InvalidInput
from llmgw.core.layout import ServerLayout
from llmgw.core.limits import Limits
from llmgw.core.processes import start_time
from llmgw.core.routing import KeyRecord
from llmgw.core.secrets import key_digest
from llmgw.router.counter_file import SLOT_WORDS, SLOTS_AT, WORD
from llmgw.router.counters import R_OPEN, Counters
from llmgw.router.handover import RouterRecord, read_record, write_record
from tests.support.limits import chain_of, key
from tests.support.routers_host import COMMAND
from tests.support.waiting import until_sync

SECRET = b"s" * 32
KEY = "sk-somebodys-key-1234"


class Host:
    """A data directory, and the processes that supervise its routers one after another."""

    def __init__(self, data: Path) -> None:
        self.layout = ServerLayout(data=data)
        self.layout.secrets.mkdir()
        self.layout.cluster_secret.write_bytes(SECRET)
        self.port = 0
        self.process: subprocess.Popen[bytes] | None = None
        (data / "keys.json").write_text(json.dumps({key_digest(SECRET, KEY.encode()): "alice"}))

    def start(self, count: int = 1, version: str = "1") -> None:
        """Supervise `count` routers, on the same port as before; returns when they serve."""
        arguments = [str(self.layout.data), str(count), version, str(self.port)]
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.routers_host", *arguments], stdout=subprocess.PIPE
        )
        assert self.process.stdout is not None
        self.port = int(self.process.stdout.readline())

    def kill(self) -> None:
        """End the supervisor without a chance to do anything."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()

    def stop(self) -> None:
        """The clean stop."""
        assert self.process is not None
        self.process.terminate()
        assert self.process.wait(timeout=20) == 0
        assert self.process.stdout is not None
        self.process.stdout.close()

    def pid(self, index: int = 0) -> int:
        """Pid on record of router `index`; 0 without one."""
        record = read_record(self.layout, index)
        return record.pid if record is not None else 0

    def get(self, path: str, *, key: str | None = None, timeout_s: float = 15.0) -> tuple[int, str]:
        """Status and body of one request."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout_s)
        try:
            connection.request("GET", path, headers={"Authorization": f"Bearer {key}"} if key else {})
            answer = connection.getresponse()
            return answer.status, answer.read().decode()
        finally:
            connection.close()

    def stored(self) -> list[str]:
        """Ids of usage rows the store has."""
        with contextlib.suppress(FileNotFoundError):
            return (self.layout.data / "stored").read_text().split()
        return []


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Host]:
    """A data directory, its name with a space; whatever serves from it is ended afterwards."""
    data = tmp_path / "data dir"
    data.mkdir(mode=0o700)
    host = Host(data)
    yield host
    if host.process is not None and host.process.poll() is None:
        host.process.kill()
        host.process.wait()
    if host.process is not None and host.process.stdout is not None:
        host.process.stdout.close()
    for path in host.layout.run.glob("router-*.json"):
        record = read_record(host.layout, int(path.stem.removeprefix("router-")))
        if record is not None and start_time(record.pid) == record.start_time:
            os.kill(record.pid, signal.SIGKILL)


def test_a_killed_router_is_back_on_the_same_socket_and_nobody_is_reset(host: Host) -> None:
    """Connections made while no process serves are answered by the next."""
    host.start()
    old = host.pid()
    os.kill(old, signal.SIGKILL)
    began = time.monotonic()
    bodies = [host.get("/pid", timeout_s=5.0)[1] for _ in range(3)]
    assert time.monotonic() - began < 4.0
    assert set(bodies) == {str(host.pid())}
    assert host.pid() != old
    host.stop()


def test_routers_outlive_a_killed_server_and_the_next_adopts_them(host: Host) -> None:
    """Same pids, streams unbroken, known keys served meanwhile, unknown ones 503, no usage lost."""
    host.start(count=2)
    pids = {host.pid(0), host.pid(1)}
    # Each router learns the key: which one answers is the kernel's choice.
    until_sync(lambda: host.get("/auth", key=KEY) == (200, "alice") and _seen(host) == pids)
    for _ in range(20):
        assert host.get("/auth", key=KEY) == (200, "alice")
    with socket.create_connection(("127.0.0.1", host.port), timeout=20) as stream:
        stream.sendall(b"GET /slow/2 HTTP/1.1\r\n\r\n")
        host.kill()
        for number in range(10):
            assert host.get("/auth", key=KEY) == (200, "alice")
            assert host.get(f"/use/u{number}")[0] == 200
        until_sync(lambda: host.get("/auth", key="sk-unknown-key")[0] == 503, deadline_s=5.0)
        assert b"200" in stream.recv(1000)
    host.start(count=2)
    assert {host.pid(0), host.pid(1)} == pids
    assert _seen(host) <= pids
    until_sync(lambda: len(host.stored()) >= 10)
    assert Counter(host.stored()) == {f"u{number}": 1 for number in range(10)}
    assert host.get("/auth", key="sk-unknown-key")[0] == 401
    host.stop()


def test_routers_of_another_version_give_way_without_a_refused_connection(host: Host) -> None:
    """And one too many ends; what they had open is finished."""
    host.start(count=2, version="1")
    old = {host.pid(0), host.pid(1)}
    host.kill()
    with socket.create_connection(("127.0.0.1", host.port), timeout=20) as stream:
        stream.sendall(b"GET /slow/1.5 HTTP/1.1\r\n\r\n")
        host.start(count=1, version="2")
        assert host.pid(0) not in old
        assert b"200" in stream.recv(1000)
    until_sync(lambda: not any(start_time(pid) for pid in old))
    assert read_record(host.layout, 1) is None
    assert _seen(host) == {host.pid(0)}
    host.stop()


@pytest.mark.promise("A8")
def test_a_hung_router_is_replaced_at_adoption(host: Host) -> None:
    """One that is alive but answers nothing does not keep the port."""
    host.start()
    old = host.pid()
    host.kill()
    os.kill(old, signal.SIGSTOP)
    host.start()
    assert start_time(old) is None
    assert host.get("/pid") == (200, str(host.pid()))
    host.stop()


@pytest.mark.promise("A5")
def test_a_reused_pid_is_never_touched(host: Host) -> None:
    """A record of a dead router whose pid another process has now."""
    with subprocess.Popen(["sleep", "60"]) as stranger:
        try:
            host.layout.run.mkdir()
            boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
            began = (start_time(stranger.pid) or 0) - 1
            write_record(
                host.layout,
                RouterRecord(pid=stranger.pid, start_time=began, boot_id=boot, port=1, version="0", index=0),
            )
            host.start()
            host.stop()
            assert stranger.poll() is None
        finally:
            stranger.kill()


def test_a_clean_stop_leaves_nothing(host: Host) -> None:
    """No process, socket, record or row; the port is free at once, and a second start is as good as the first."""
    for _ in range(2):
        host.start(count=2)
        pids = [host.pid(0), host.pid(1)]
        host.get("/use/last")
        host.stop()
        assert not any(start_time(pid) for pid in pids)
        assert not list(host.layout.run.glob("router-*")) + list(host.layout.run.glob("*.sock"))
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(("127.0.0.1", host.port))
    assert set(host.stored()) == {"last"}
    assert not list(host.layout.spool.glob("*/*"))


def test_a_router_inherits_only_what_it_needs(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    """No descriptor of the server's, none of its secrets, and a session of its own."""
    monkeypatch.setenv("PGPASSWORD", "canary")
    host.start()
    pid = host.pid()
    files = [os.readlink(entry) for entry in Path(f"/proc/{pid}/fd").iterdir()]
    assert sum(name.startswith("pipe:") for name in files) == 0
    assert b"canary" not in Path(f"/proc/{pid}/environ").read_bytes()
    assert os.getsid(pid) == pid
    host.stop()


async def _lookup(_: str) -> KeyRecord | None:
    return None


async def _store(_: object) -> None:
    return None


def _supervisor(layout: ServerLayout, host: str, port: int, count: int = 1) -> tuple[FeedServer, RouterSupervisor]:
    feed = FeedServer(layout, version="1", lookup=_lookup, store_usage=_store)
    return feed, RouterSupervisor(layout, (host, port), count, feed, command=COMMAND, stop_s=2.0)


@pytest.mark.trio
async def test_a_port_in_use_is_a_conflict_that_names_it(tmp_path: Path) -> None:
    """Even when its owner would share it (SO_REUSEPORT)."""
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        _, supervisor = _supervisor(ServerLayout(data=tmp_path), "127.0.0.1", port)
        with pytest.raises(Conflict, match=f"127.0.0.1:{port}: another program listens there"):
            await supervisor.run()


@pytest.mark.trio
@pytest.mark.case("C29")
@pytest.mark.parametrize(("host", "port"), [("127.0.0.1", 99999), ("no such host", 80), ("192.0.2.77", 0)])
async def test_an_address_that_cannot_be_is_refused(tmp_path: Path, host: str, port: int) -> None:
    """With the address in the sentence."""
    _, supervisor = _supervisor(ServerLayout(data=tmp_path), host, port)
    with pytest.raises(InvalidInput, match=f"cannot listen on {host}"):
        await supervisor.run()


@pytest.mark.trio
async def test_ipv6_and_a_long_data_directory(tmp_path: Path) -> None:
    """Unix socket paths over the kernel's limit, and a bracketed address."""
    layout = ServerLayout(data=tmp_path / ("d" * 120))
    layout.secrets.mkdir(parents=True)
    layout.cluster_secret.write_bytes(SECRET)
    feed, supervisor = _supervisor(layout, "::1", 0)
    async with trio.open_nursery() as outer:
        await outer.start(feed.run)
        async with trio.open_nursery() as inner:
            port = await inner.start(supervisor.run)
            stream = await trio.open_tcp_stream("::1", port)
            await stream.send_all(b"GET /pid HTTP/1.1\r\n\r\n")
            assert b"200" in await stream.receive_some()
            [info] = feed.routers()
            assert (info.port, info.pid) == (port, read_record(layout, 0).pid)  # type: ignore[union-attr]
            await stream.aclose()
            inner.cancel_scope.cancel()
        outer.cancel_scope.cancel()
    assert not list(layout.run.glob("router-*"))


@pytest.mark.case("C11")
def test_what_a_killed_router_had_open_is_counted_no_more(host: Host) -> None:
    host.start(2)
    counters = Counters.open(host.layout.counters)
    chain = chain_of(key(limits=Limits(parallel=2)))
    base = counters.find(chain.scopes[0].hash, budgeted=False, now=0)
    assert base is not None
    slot_of = {counters.words[SLOTS_AT + slot * SLOT_WORDS]: slot for slot in range(2)}
    victim, other = host.pid(0), host.pid(1)
    for pid, open_requests in ((victim, 2), (other, 1)):
        counters.words[base // WORD + R_OPEN + slot_of[pid]] = open_requests
    assert counters.open_requests(base) == 3
    os.kill(victim, signal.SIGKILL)
    until_sync(lambda: counters.open_requests(base) == 1)
    until_sync(lambda: host.pid(0) not in (0, victim))
    assert counters.words[base // WORD + R_OPEN + slot_of[other]] == 1
    counters.close()
    host.stop()


def _seen(host: Host) -> set[int]:
    """Pids that answer now, of many connections."""
    return {int(host.get("/pid")[1]) for _ in range(30)}
