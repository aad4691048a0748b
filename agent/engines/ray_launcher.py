"""A head's shard: Ray's head, and the engine that finds its cards through it. One ends, and so does the other.

    python -m agent.engines.ray_launcher HOST:PORT --- ray start … --- vllm serve …

It outlives the agent, as every engine does; its children bear the shard's mark and are ended by it, whatever becomes
of this process.
"""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence

BETWEEN = "---"
LISTENS_WITHIN_S = 120.0
"""Ray's head takes a few seconds; on a cold disk longer."""
POLL_S = 0.1
END_GRACE_S = 10.0
"""What is left has so long after SIGTERM when the other has ended."""


class _Pair:
    """The two programs, of which neither outlives the other."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._environment = environment
        self._running: list[subprocess.Popen[bytes]] = []
        self.ending = False

    def start(self, argv: Sequence[str], **more: str) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(argv, env={**self._environment, **more}, stdin=subprocess.DEVNULL)
        self._running.append(process)
        return process

    def end(self) -> None:
        self.ending = True
        for process in self._running:
            if process.poll() is None:
                process.terminate()

    def ended(self) -> subprocess.Popen[bytes] | None:
        return next((process for process in self._running if process.poll() is not None), None)

    def end_all(self) -> None:
        """Return when none is left."""
        self.end()
        deadline = time.monotonic() + END_GRACE_S
        for process in self._running:
            try:
                process.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def run(argv: Sequence[str]) -> int:
    """Run both until one ends, or this process is told to; the exit code."""
    where, *rest = argv
    cut = rest.index(BETWEEN, 1)
    runtime, engine = rest[1:cut], rest[cut + 1 :]
    # What this program runs from is not what they run from.
    pair = _Pair({name: value for name, value in os.environ.items() if name != "PYTHONPATH"})
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: pair.end())
    # Whoever runs on Ray needs no key to the engine's door.
    started = pair.start(runtime, VLLM_API_KEY="")
    deadline = time.monotonic() + LISTENS_WITHIN_S
    while not _listens(where) and pair.ended() is None and not pair.ending:
        if time.monotonic() > deadline:
            print(f"Ray's head did not listen at {where} within {LISTENS_WITHIN_S:.0f} s", file=sys.stderr, flush=True)
            pair.end_all()
            return 1
        time.sleep(POLL_S)
    if pair.ended() is None and not pair.ending:
        pair.start(engine, RAY_ADDRESS=where)
    while (first := pair.ended()) is None:
        time.sleep(POLL_S)
    if not pair.ending:
        which = "Ray's head" if first is started else "the engine"
        print(f"{which} ended with {first.returncode}, and the other with it", file=sys.stderr, flush=True)
    pair.end_all()
    return 0 if pair.ending and first.returncode in (0, -signal.SIGTERM) else first.returncode or 1


def _listens(where: str) -> bool:
    host, _, port = where.rpartition(":")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), timeout=1.0):
            return True
    except OSError:
        return False


if __name__ == "__main__":
    sys.exit(run(sys.argv[1:]))
