"""A process that holds an embedded PostgreSQL, for tests that kill it: `python -m … DATA [--uid=N]`.

Prints `ready PID` and runs until SIGTERM; then it stops PostgreSQL, releases the lock and exits 0.
"""

import os
import signal
import sys
from pathlib import Path

import trio

from llmgw.core.layout import ServerLayout
from llmgw.store import lock
from llmgw.store.embedded import EmbeddedPostgres


async def serve(data: Path) -> None:
    """Start, say so, wait for SIGTERM, stop."""
    data.mkdir(mode=0o700, parents=True, exist_ok=True)
    held = lock.acquire(data / "lock")
    postgres = EmbeddedPostgres(ServerLayout(data=data))
    with trio.open_signal_receiver(signal.SIGTERM) as signals:
        await postgres.start()
        print("ready", postgres.pid, flush=True)
        async for _ in signals:
            break
    await postgres.stop()
    held.release()


def main() -> None:
    """Become the wanted user (everything is imported by then) and serve."""
    for argument in sys.argv[2:]:
        uid = int(argument.removeprefix("--uid="))
        os.setgroups([])
        os.setgid(uid)
        os.setuid(uid)
    trio.run(serve, Path(sys.argv[1]))


if __name__ == "__main__":
    main()
