"""Simulated engines as the parts start them that load several at once, and what these say of their work."""

import contextlib
import http.client
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence

from llmgw.core.routing import LoadTable, ReplicaLoad
from tests.bench.native import Missing, child

ANSWER_S = 5.0
TAKEN = ("llamacpp:requests_processing", "sim:requests_finished_total", "sim:requests_left_total")


@contextlib.contextmanager
def sim_engine(*flags: str, slots: int) -> Iterator[int]:
    """A simulated engine of the model `bench` with an empty cache; its port. Raises Missing."""
    argv = [sys.executable, "-m", "llmgw.sim.engine", "--model", "bench", "--slots", str(slots), *flags]
    with child(argv, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        said = process.stdout.readline().split()
        if len(said) < 3:
            raise Missing("the simulated engine did not start")
        yield int(said[2].rpartition(b":")[2])


def taken(port: int) -> int:
    """Requests an engine has taken, whatever became of them."""
    said = _said(port)
    return sum(int(said.get(name, 0.0)) for name in TAKEN)


def loads(ports: Sequence[int], slots: int) -> LoadTable:
    """What the engines say of their work, as a control plane passes it on."""
    return LoadTable(loads={f"r-bench-{n}": _load(port, slots) for n, port in enumerate(ports)}, whole=True)


def _load(port: int, slots: int) -> ReplicaLoad:
    said = _said(port)
    return ReplicaLoad(
        running=int(said["llamacpp:requests_processing"]),
        waiting=int(said["llamacpp:requests_deferred"]),
        slots=slots,
        kv_used=said["llamacpp:kv_cache_usage_ratio"],
        at=time.time(),
    )


def _said(port: int) -> dict[str, float]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=ANSWER_S)
    with contextlib.closing(connection):
        connection.request("GET", "/metrics")
        lines = [line.split() for line in connection.getresponse().read().decode().splitlines()]
    return {line[0]: float(line[1]) for line in lines if len(line) == 2 and line[0] != "#"}
