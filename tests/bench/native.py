"""The programs a benchmark needs beside Python: C engine and C client, compiled here, and `wrk`.

A missing one is a sentence.
"""

import contextlib
import json
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from tests.bench.load import BODY, PATH, LoadPlan, run_load

HERE = Path(__file__).parent
START_S = 10.0
STOP_S = 15.0

_LUA = """
wrk.method = "POST"
wrk.body = %(body)s
wrk.headers["Content-Type"] = "application/json"
%(key)s
done = function(summary, latency, requests)
  local e = summary.errors
  local errors = e.connect + e.read + e.write + e.status + e.timeout
  io.write(string.format('JSON {"requests":%%d,"us":%%d,"errors":%%d,"p50":%%d,"p99":%%d}\\n', summary.requests,
    summary.duration, errors, latency:percentile(50), latency:percentile(99)))
end
"""


class Missing(Exception):
    """A program is not installed; the message says which and where it comes from."""


@dataclass(frozen=True, kw_only=True)
class Burst:
    """What a load generator saw: whole answers, failed ones, seconds, and latency of whole streams."""

    requests: int
    errors: int
    seconds: float
    p50_ms: float
    p99_ms: float


@dataclass(frozen=True, kw_only=True)
class Timed:
    """What the C client saw: streams, and the median and 99th percentile of first token and whole stream."""

    right: int
    wrong: int
    why: str
    """Of the first wrong stream; empty when none was."""
    open_most: int
    seconds: float
    first_us: tuple[int, int]
    total_us: tuple[int, int]


def compile_engine(directory: Path) -> Path:
    """The C engine, built with the C compiler of the machine; raises Missing."""
    return _compile(directory, "engine")


def compile_client(directory: Path) -> Path:
    """The C load client; raises Missing."""
    return _compile(directory, "client")


def _compile(directory: Path, name: str) -> Path:
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        raise Missing("no C compiler here: install one (Debian, Ubuntu: apt install gcc libc6-dev)")
    program = directory / name
    built = subprocess.run(
        [compiler, "-O2", "-o", str(program), str(HERE / f"{name}.c")], capture_output=True, text=True, check=False
    )
    if built.returncode:
        raise Missing(f"{compiler} could not build tests/bench/{name}.c: {built.stderr.strip()[:400]}")
    return program


def client_argv(program: Path, plan: LoadPlan, *, spread_us: int) -> list[str]:
    """The C client's command line for a plan, its clients begun `spread_us` apart."""
    figures = (plan.port, plan.clients, plan.streams, round(plan.seconds * 1000), spread_us, plan.tokens)
    return [str(program), *map(str, figures), plan.key]


def timed(said: str) -> Timed:
    """The C client's last line."""
    return msgspec.json.decode(said.strip().splitlines()[-1], type=Timed)


def time_load(program: Path, plan: LoadPlan, *, spread_us: int) -> Timed:
    """Load by the C client; the token is that of the first event with text."""
    argv = client_argv(program, plan, spread_us=spread_us)
    return timed(subprocess.run(argv, capture_output=True, text=True, timeout=plan.seconds + 30, check=False).stdout)


@contextlib.contextmanager
def engine(program: Path, *, gap_us: int, tokens: int) -> Iterator[tuple[int, int]]:
    """A running C engine: its pid and port."""
    with child([str(program), "0", str(gap_us), str(tokens)], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        yield process.pid, int(process.stdout.readline().split()[1])


@contextlib.contextmanager
def child(
    argv: Sequence[str],
    *,
    stdin: int | None = None,
    stdout: int | None = subprocess.DEVNULL,
    stderr: Path | None = None,
    pass_fds: Sequence[int] = (),
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
) -> Iterator[subprocess.Popen[bytes]]:
    """A child process, ended by SIGTERM and then SIGKILL."""
    log = stderr.open("wb") if stderr is not None else None
    try:
        err = log or subprocess.DEVNULL
        process = subprocess.Popen(argv, stdin=stdin, stdout=stdout, stderr=err, pass_fds=pass_fds, cwd=cwd, env=env)
        try:
            yield process
        finally:
            process.terminate()
            try:
                process.wait(STOP_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    pipe.close()
    finally:
        if log is not None:
            log.close()


def load(directory: Path, plan: LoadPlan) -> Burst:
    """`plan.seconds` of load by wrk, else by our own generator (which also ends after `plan.streams`)."""
    wrk = shutil.which("wrk")
    if wrk is None:
        seen = run_load(plan)
        return Burst(
            requests=seen.requests,
            errors=sum(seen.wrong.values()),
            seconds=seen.seconds,
            p50_ms=seen.total_ms[0],
            p99_ms=seen.total_ms[1],
        )
    script = directory / "load.lua"
    key = f'wrk.headers["Authorization"] = "Bearer {plan.key}"' if plan.key else ""
    script.write_text(_LUA % {"body": f"[==[{BODY}]==]", "key": key})
    seconds = max(1, round(plan.seconds))
    argv = [wrk, "-t1", f"-c{plan.clients}", f"-d{seconds}s", "-s", str(script), f"{plan.origin}{PATH}"]
    said = subprocess.run(argv, capture_output=True, text=True, timeout=seconds + 30, check=True).stdout
    figures = json.loads(next(line for line in said.splitlines() if line.startswith("JSON ")).removeprefix("JSON "))
    return Burst(
        requests=figures["requests"],
        errors=figures["errors"],
        seconds=figures["us"] / 1e6,
        p50_ms=figures["p50"] / 1e3,
        p99_ms=figures["p99"] / 1e3,
    )
