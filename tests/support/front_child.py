"""A router's data plane as a process of its own, so that what it holds can be measured from outside.

`python -m tests.support.front_child ENGINE_PORT CLIENT_STALL_S` prints its port, and ends with its standard input.
"""

import contextlib
import os
import resource
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import trio

from llmgw.core.routing import RoutedReplica, Routing, Timeouts
from llmgw.router.process import _settle_memory
from llmgw.router.service import serve
from tests.support.router_plane import MODEL, OTHER, MemoryState

BACKLOG = 4096
KIB = 1024
START_S = 30.0


@dataclass(frozen=True)
class FrontChild:
    """The running process."""

    pid: int
    port: int

    def status_kib(self, name: str) -> int:
        """A figure of `/proc/PID/status`: `VmRSS`, or `VmHWM`, the most since `forget_peak`."""
        for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith(name + ":"):
                return int(line.split()[1])
        raise AssertionError(name)

    def forget_peak(self) -> int:
        """Begin `VmHWM` anew; resident KiB now."""
        Path(f"/proc/{self.pid}/clear_refs").write_text("5")
        return self.status_kib("VmRSS")

    def descriptors(self) -> int:
        """Open ones."""
        return len(os.listdir(f"/proc/{self.pid}/fd"))


@contextlib.contextmanager
def front_child(engine_port: int = 1, *, client_stall_s: float = 120.0) -> Iterator[FrontChild]:
    """The process, in front of an engine on loopback."""
    command = [sys.executable, "-m", "tests.support.front_child", str(engine_port), str(client_stall_s)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        yield FrontChild(process.pid, int(process.stdout.readline()))
        assert process.poll() is None, "it did not survive"
    finally:
        assert process.stdin is not None
        process.stdin.close()
        try:
            process.wait(START_S)
        finally:
            process.kill()
            process.wait()
            assert process.stdout is not None
            process.stdout.close()


async def _main(engine_port: int, client_stall_s: float) -> None:
    replica = RoutedReplica(id="r0", model="m", endpoint=f"http://127.0.0.1:{engine_port}")
    timeouts = Timeouts(client_stall=client_stall_s)
    state = MemoryState(Routing(revision="1/1", models=(MODEL, OTHER), replicas=(replica,), timeouts=timeouts))
    listener = socket.create_server(("127.0.0.1", 0), backlog=BACKLOG)
    port = listener.getsockname()[1]
    listener.setblocking(False)
    async with trio.open_nursery() as nursery:

        async def run(*, task_status: trio.TaskStatus[None]) -> None:
            await serve(listener, state, public_socket=Path("/nonexistent/public.sock"), task_status=task_status)

        await nursery.start(run)
        _settle_memory()
        print(port, flush=True)
        async with trio.lowlevel.FdStream(os.dup(0)) as told:
            await told.receive_some(1)
        nursery.cancel_scope.cancel()


if __name__ == "__main__":
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    trio.run(_main, int(sys.argv[1]), float(sys.argv[2]))
