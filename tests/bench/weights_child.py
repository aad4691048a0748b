"""A mirror, a node or a hash in a process of its own, for `tests.bench.weights`.

`mirror ROOT SOURCE` serves over mutual TLS and prints its address once it has the source; `node ROOT URL KEYS SOURCE`
fetches and prints the seconds of each phase; `hash FILE…` hashes the files, four at once, and prints their sums.
"""

import hashlib
import json
import sys
import time
from functools import partial
from pathlib import Path

import trio

from agent.weights.cache import Cache
from llmgw.control.pki import Authority, client_context
from llmgw.core.cluster import FetchProgress
from llmgw.core.weights import SetState
from llmgw.mirror.app import serve
from llmgw.mirror.service import Mirror
from llmgw.transfer.hashing import hash_step, open_binary
from llmgw.transfer.parallel import each
from tests.support.nodes import node_credentials

AT_ONCE = 4


async def mirror(root: Path, source: str) -> None:
    """Serve until killed."""
    authority = Authority.open(root / "secrets", names=["127.0.0.1"])
    (root / "ca.crt").write_bytes(authority.ca_pem)
    node_credentials(authority, root, "node")
    changed = trio.Event()
    held = Mirror(root / "mirror", on_change=lambda _source: changed.set())
    tls = authority.mirror_server_context()
    async with trio.open_nursery() as nursery:
        await nursery.start(held.run)
        serving = partial(serve, held, host="127.0.0.1", port=0, ssl_context=tls, token="unused")
        listeners: list[trio.SocketListener] = await nursery.start(serving)
        while (status := held.ensure(source)).state is not SetState.READY:
            if status.state is SetState.FAILED:
                raise RuntimeError(status.message)
            changed = trio.Event()
            await changed.wait()
        print(f"https://127.0.0.1:{listeners[0].socket.getsockname()[1]}/v1/sets/{status.id}/files", flush=True)


async def node(root: Path, url: str, keys: Path, source: str) -> None:
    """Fetch once."""
    context = client_context(keys / "ca.crt", keys / "node.crt", keys / "node.key")
    context.check_hostname = True
    seen: dict[str, list[float]] = {}

    def hear(progress: FetchProgress) -> None:
        seen.setdefault(progress.phase, []).append(time.monotonic())

    cache = Cache(root, mirror_url=url.partition("/v1/")[0], tls=context)
    async with trio.open_nursery() as nursery:
        await nursery.start(cache.run)
        await cache.fetch(source, hear)
        nursery.cancel_scope.cancel()
    print(json.dumps({phase: times[-1] - times[0] for phase, times in seen.items()}), flush=True)


async def sums(paths: list[Path]) -> None:
    """Hash files as a check does."""

    async def one(path: Path) -> None:
        digest = hashlib.sha256()
        with await trio.to_thread.run_sync(open_binary, path) as stream:
            while await trio.to_thread.run_sync(hash_step, stream, digest):
                pass
        print(f"{digest.hexdigest()}  {path}", flush=True)

    await each(AT_ONCE, paths, one)


if __name__ == "__main__":
    _, what, *rest = sys.argv
    if what == "mirror":
        trio.run(mirror, Path(rest[0]), rest[1])
    elif what == "node":
        trio.run(node, Path(rest[0]), rest[1], Path(rest[2]), rest[3])
    else:
        trio.run(sums, [Path(path) for path in rest])
