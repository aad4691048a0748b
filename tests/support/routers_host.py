"""A process that supervises stand-in routers, to be killed.

`python -m tests.support.routers_host DATA COUNT [VERSION] [PORT]`.
Keys are in DATA/keys.json (digest → name; absent file: the store is away); stored usage ids are appended to
DATA/stored. Prints the port once all serve. SIGTERM is the clean stop.
"""

import json
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

import trio

from llmgw.control.feed import FeedServer
from llmgw.control.routers import RouterSupervisor
from llmgw.core.errors import Unavailable
from llmgw.core.layout import ServerLayout
from llmgw.core.routing import KeyRecord, RoutedModel, Routing, UsageRow

COMMAND = (sys.executable, "-m", "tests.support.standin_router")


def key_file_lookup(data: Path, digest: str) -> KeyRecord | None:
    """The record of `digest` in DATA/keys.json; raises Unavailable without the file."""
    try:
        keys: dict[str, str] = json.loads((data / "keys.json").read_text())
    except FileNotFoundError as error:
        raise Unavailable("the store is away") from error
    return KeyRecord(id=digest[:8], name=keys[digest]) if digest in keys else None


async def _host(data: Path, count: int, version: str, port: int) -> None:
    async def lookup(digest: str) -> KeyRecord | None:
        return key_file_lookup(data, digest)

    async def store(rows: Sequence[UsageRow]) -> None:
        with open(data / "stored", "a") as stored:
            stored.writelines(f"{row.id}\n" for row in rows)

    layout = ServerLayout(data=data)
    feed = FeedServer(layout, version=version, lookup=lookup, store_usage=store)
    feed.publish(Routing(revision="t/1", models=(RoutedModel(name="m"),)))
    routers = RouterSupervisor(
        layout, ("127.0.0.1", port), count, feed, version=version, command=COMMAND, stop_s=2.0, drain_s=5.0
    )
    async with trio.open_nursery() as outer:
        await outer.start(feed.run)
        async with trio.open_nursery() as inner:
            with trio.open_signal_receiver(signal.SIGTERM) as signals:
                print(await inner.start(routers.run), flush=True)
                await anext(signals)
            inner.cancel_scope.cancel()
        outer.cancel_scope.cancel()


if __name__ == "__main__":
    trio.run(
        _host,
        Path(sys.argv[1]),
        int(sys.argv[2]),
        sys.argv[3] if len(sys.argv) > 3 else "1",
        int(sys.argv[4]) if len(sys.argv) > 4 else 0,
    )
