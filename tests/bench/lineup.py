"""The gateways by the names the command line knows."""

from functools import partial
from pathlib import Path

from tests.bench.gateways import Maker
from tests.bench.ours import choosing, router
from tests.bench.rivals import direct, litellm, nginx, vllm_router
from tests.support.certificates import TestAuthority

GATEWAYS: dict[str, Maker] = {
    "direct": direct,
    "nginx": nginx,
    "router": router,
    "choosing": choosing,
    "vllm-router": vllm_router,
    "litellm": litellm,
}
USUAL = ("direct", "nginx", "router", "choosing", "vllm-router")
"""Measured unless others are named: LiteLLM takes 116 packages and ten seconds to start, and is asked for by name."""


def makers(names: list[str]) -> dict[str, Maker]:
    """Those of the names, in this order."""
    return {name: GATEWAYS[name] for name in names}


def secured(directory: Path) -> dict[str, Maker]:
    """nginx and our router with the same certificate, made in the directory: clients speak TLS, the engine does not."""
    leaf = TestAuthority(directory).leaf("127.0.0.1", "localhost")
    shown = (leaf.certificate, leaf.key)
    return {"nginx": partial(nginx, certificate=shown), "router": partial(router, certificate=shown)}
