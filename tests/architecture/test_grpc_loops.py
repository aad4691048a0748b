"""Both ends of the gRPC seam work whatever is imported first."""

import subprocess
import sys

import pytest


@pytest.mark.parametrize("first", ["grpclib.server", "grpclib.client", "llmgw.wire.llmgw.v1", "trio_asyncio"])
@pytest.mark.parametrize("seam", ["llmgw.agents.bridge", "agent.link_rpc"])
def test_grpclib_asks_trio_asyncio_for_the_current_task(first: str, seam: str) -> None:
    code = (
        f"import {first}; import {seam}; import asyncio, grpclib.utils; "
        "assert grpclib.utils._current_task is asyncio.current_task; "
        "assert asyncio.current_task.__module__.startswith('trio_asyncio')"
    )
    subprocess.run([sys.executable, "-W", "ignore", "-c", code], check=True, timeout=60)
