"""A real cluster of one for tests: `llmgw demo` as a person starts it, with what tests ask of it.

Everything it starts is told apart by its data directory on the command line or in the environment, and only that is
ever signalled.
"""

import contextlib
import json
import os
import selectors
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from llmgw.api.client import AdminClient
from llmgw.api.targets import ServerTarget
from llmgw.api.types import ClusterStatus, ModelInfo, ReplicaInfo

READY_S = 240.0
"""A first start fetches the model; a slow index is no failure of ours."""
STOP_S = 60.0


def free_port() -> int:
    """A port that was free a moment ago."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


def llmgw(*arguments: str) -> list[str]:
    """The command line of this checkout's `llmgw`."""
    return [str(Path(sys.executable).with_name("llmgw")), *arguments]


def wait_for(what: str, condition: Any, *, within_s: float = 30.0, every_s: float = 0.05) -> Any:
    """The first true value of `condition()`; an AssertionError naming `what` after `within_s`."""
    deadline = time.monotonic() + within_s
    while time.monotonic() < deadline:
        value = condition()
        if value:
            return value
        time.sleep(every_s)
    raise AssertionError(f"not within {within_s:.0f} s: {what}")


@dataclass
class DemoCluster:
    """A running demo."""

    data: Path
    port: int
    admin_port: int
    model: str
    process: "subprocess.Popen[str]"
    ready: str = ""

    @property
    def key(self) -> str:
        """The demo's API key."""
        return (self.data / "demo.key").read_text().strip()

    @property
    def url(self) -> str:
        """Base of the client API."""
        return f"http://127.0.0.1:{self.port}/v1"

    @property
    def admin(self) -> AdminClient:
        """Its admin API."""
        return AdminClient(ServerTarget(socket=self.data / "admin.sock"))

    def status(self) -> ClusterStatus:
        """All that runs."""
        return self.admin.status()

    def quiet_status(self) -> ClusterStatus | None:
        """All that runs, or nothing while the server is away."""
        with contextlib.suppress(Exception):
            return self.admin.status()
        return None

    def server_pid(self) -> int:
        """Pid of the server."""
        return self.status().servers[0].pid

    def replica(self, model: str | None = None) -> ReplicaInfo:
        """The one Ready replica of the model."""
        found: ReplicaInfo = wait_for(
            f"a ready replica of {model or self.model}", lambda: self._ready(model), within_s=60
        )
        return found

    def _ready(self, model: str | None) -> ReplicaInfo | None:
        status = self.quiet_status()
        if status is None:
            return None
        return next((r for r in status.replicas if r.model == (model or self.model) and r.state == "ready"), None)

    def model_info(self, name: str | None = None) -> ModelInfo:
        """A catalog entry."""
        return self.admin.model(name or self.model)

    def ctl(self, *arguments: str, check: bool = True) -> "subprocess.CompletedProcess[str]":
        """Run `llmgw ctl` on this cluster."""
        done = subprocess.run(
            llmgw("ctl", "--server", f"unix:{self.data}/admin.sock", *arguments),
            capture_output=True,
            text=True,
            timeout=60,
            stdin=subprocess.DEVNULL,
        )
        if check:
            assert done.returncode == 0, (arguments, done.stdout, done.stderr)
        return done

    def ctl_json(self, *arguments: str) -> Any:
        """What a verb prints with --json."""
        return json.loads(self.ctl(*arguments, "--json").stdout)

    def processes(self) -> list[psutil.Process]:
        """Every process that belongs to this data directory."""
        return processes_of(self.data)

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        """End the demo; its exit code."""
        if self.process.poll() is None:
            self.process.send_signal(number)
        try:
            return self.process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise


def processes_of(data: Path) -> list[psutil.Process]:
    """Processes whose command line or environment names the directory, or something in it."""
    found: list[psutil.Process] = []
    mark = str(data)
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            if process.pid == os.getpid() or process.status() == psutil.STATUS_ZOMBIE:
                continue
            named = any(mark in part for part in process.cmdline())
            if named or process.cwd().startswith(mark) or any(mark in f.path for f in process.open_files()):
                found.append(process)
    return found


def start_demo(
    data: Path,
    *,
    model: str,
    port: int | None = None,
    admin_port: int | None = None,
    wait: bool = True,
    options: Sequence[str] = (),
) -> DemoCluster:
    """Start a demo and wait for its READY line; `options` are further ones of `llmgw demo`."""
    port, admin_port = port or free_port(), admin_port or free_port()
    said = data.parent / f"demo-{port}.err"
    with said.open("w") as log:
        process = subprocess.Popen(
            llmgw(
                *("demo", "--no-console", "--data", str(data), "--model", model),
                *("--port", str(port), "--admin-port", str(admin_port)),
                *options,
            ),
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            stdin=subprocess.DEVNULL,
        )
    cluster = DemoCluster(data=data, port=port, admin_port=admin_port, model=model, process=process)
    if wait:
        try:
            cluster.ready = _ready_line(process)
        except BaseException:
            print("the demo said:", said.read_text()[-4000:])
            _print_logs(data)
            process.kill()
            process.wait()
            raise
    return cluster


def _ready_line(process: "subprocess.Popen[str]") -> str:
    assert process.stdout is not None
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        assert selector.select(READY_S), f"no READY within {READY_S:.0f} s"
    line = process.stdout.readline().strip()
    assert line.startswith("READY "), f"the demo ended ({process.poll()}): {line!r}"
    return line


def _print_logs(data: Path) -> None:
    for path in sorted(data.rglob("*.log")) + sorted(data.rglob("*.out")):
        print(f"--- {path.name}\n{path.read_text(errors='replace')[-2000:]}")


@contextlib.contextmanager
def running_demo(data: Path, *, model: str, options: Sequence[str] = ()) -> Iterator[DemoCluster]:
    """A demo for the length of the context; whatever happened in it, nothing of it is left running."""
    cluster = start_demo(data, model=model, options=options)
    try:
        yield cluster
    finally:
        try:
            if cluster.process.poll() is None:
                cluster.stop()
        finally:
            if cluster.process.stdout is not None:
                cluster.process.stdout.close()
            for process in processes_of(data):
                with contextlib.suppress(psutil.Error):
                    process.kill()
