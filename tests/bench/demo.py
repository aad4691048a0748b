"""How long `llmgw demo` takes to READY with its model cached, and what each of its processes holds in memory."""

import contextlib
import os
import select
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tests.bench.gateways import free_port
from tests.bench.native import Missing
from tests.bench.proc import Memory, family, memory

FIRST_READY_S = 300.0
"""The first start fetches the model."""
READY_S = 90.0
STOP_S = 60.0
START = "import sys; from llmgw.cli.main import main; sys.exit(main())"
KINDS = (
    ("router", "router"),
    ("postgres", "postgres"),
    ("simulated fleet", " sim-fleet "),
    ("llmgw server", " server "),
    ("llmgw agent", " agent "),
    ("sim engine", "llmgw.sim.engine"),
    ("llama.cpp", "llamacpp"),
    ("llama.cpp", "llama-server"),
    ("demo supervisor", " demo "),
)
"""Process kinds by what their command lines hold, tried in order."""


@dataclass(kw_only=True)
class DemoFigures:
    """One model's figures."""

    model: str
    first_ready_s: float
    """Start with an empty data directory: PostgreSQL made, model fetched."""
    ready_s: list[float] = field(default_factory=list)
    """Starts with everything there."""
    memory: dict[str, Memory] = field(default_factory=dict)
    """By kind of process, at rest after READY."""

    @property
    def median_ready_s(self) -> float:
        """Median of the starts with everything there."""
        return statistics.median(self.ready_s)


def measure_demo(model: str, directory: Path, rounds: int) -> DemoFigures:
    """Start and stop the demo `rounds` + 1 times on one data directory; raises Missing when it does not get ready."""
    data = directory / f"demo-{model}"
    figures = DemoFigures(model=model, first_ready_s=_once(model, data, FIRST_READY_S, None))
    for _ in range(rounds):
        figures.ready_s.append(_once(model, data, READY_S, figures.memory))
    return figures


def _once(model: str, data: Path, limit_s: float, held: dict[str, Memory] | None) -> float:
    with running(model, data, limit_s) as started:
        if held is not None:
            held.update(_memory_by_kind(str(data)))
    return started.ready_s


@dataclass(frozen=True, kw_only=True)
class Started:
    """A demo that is READY."""

    ready_s: float
    """After its process began."""
    said: dict[str, str]
    """Its line, by name: `url`, `key`, `admin`, `model`."""


@contextlib.contextmanager
def running(model: str, data: Path, limit_s: float, *options: str) -> Iterator[Started]:
    """The demo on a data directory; raises Missing when it does not get ready or leaves something behind."""
    ports = ["--port", str(free_port()), "--admin-port", str(free_port())]
    argv = [sys.executable, "-c", START, "demo", "--no-console", "--data", str(data), "--model", model]
    log = data.with_suffix(".log")
    with log.open("wb") as errors:
        began = time.monotonic()
        process = subprocess.Popen(
            [*argv, *ports, *options], stdout=subprocess.PIPE, stderr=errors, start_new_session=True
        )
        try:
            yield _wait_ready(process, log, began, limit_s)
        finally:
            left = _stop(process, str(data))
    if process.returncode or left:
        raise Missing(f"llmgw demo ended with {process.returncode} and left {left} behind")


def _wait_ready(process: subprocess.Popen[bytes], log: Path, began: float, limit_s: float) -> Started:
    assert process.stdout is not None
    said = b""
    while time.monotonic() - began < limit_s:
        if select.select([process.stdout], [], [], 0.5)[0]:
            part = os.read(process.stdout.fileno(), 65536)
            said += part
            for line in said.decode("utf-8", "replace").split("\n")[:-1]:
                if line.startswith("READY "):
                    words = (word.partition("=") for word in line.split()[1:])
                    return Started(ready_s=time.monotonic() - began, said={name: value for name, _, value in words})
            if not part:
                break
    tail = (said + log.read_bytes())[-500:].decode("utf-8", "replace").strip()
    raise Missing(f"llmgw demo was not READY after {time.monotonic() - began:.0f} s: {tail or 'it said nothing'}")


def _memory_by_kind(data: str) -> dict[str, Memory]:
    held: dict[str, Memory] = {}
    for pid, line in family(data).items():
        kind = next((name for name, mark in KINDS if mark in f" {line} "), "other")
        held[kind] = held.get(kind, Memory()) + memory([pid])
    return held


def _stop(process: subprocess.Popen[bytes], data: str) -> list[str]:
    """End the demo; the command lines of what did not end with it, which is killed: all name our own data directory."""
    process.terminate()
    try:
        process.wait(STOP_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    if process.stdout is not None:
        process.stdout.close()
    left = family(data)
    for pid in left:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return list(left.values())
