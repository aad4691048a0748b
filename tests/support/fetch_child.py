"""A process that fetches one source and ends; tests kill it.

`mirror ROOT SOURCE [HUB [BYTES_S]]`, `node ROOT SOURCE URL`.
"""

import sys
from functools import partial
from pathlib import Path

import trio

from agent.weights.cache import Cache
from llmgw.core.weights import SetState
from llmgw.mirror.service import Mirror
from llmgw.mirror.source import MirrorConfig
from tests.support.weights import quick


async def _mirror(root: Path, source: str, hub: str = "", bytes_s: str = "0") -> None:
    over = trio.Event()
    config = MirrorConfig(policy=quick(), hf_endpoint=hub)
    config.policy.limit.set(int(bytes_s))
    mirror = Mirror(root, config=config, on_change=lambda _source: over.set())
    async with trio.open_nursery() as nursery:
        await nursery.start(mirror.run)
        while mirror.ensure(source).state not in (SetState.READY, SetState.FAILED):
            over = trio.Event()
            await over.wait()
        print(mirror.ensure(source).state, flush=True)
        nursery.cancel_scope.cancel()


async def _node(root: Path, source: str, url: str) -> None:
    cache = Cache(root, mirror_url=url, policy=quick())
    async with trio.open_nursery() as nursery:
        await nursery.start(cache.run)
        await cache.fetch(source)
        print("ready", flush=True)
        nursery.cancel_scope.cancel()


if __name__ == "__main__":
    if sys.argv[1] == "mirror":
        trio.run(partial(_mirror, Path(sys.argv[2]), *sys.argv[3:]))
    else:
        trio.run(_node, Path(sys.argv[2]), sys.argv[3], sys.argv[4])
