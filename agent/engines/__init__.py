"""Engines this node can start, one file each behind the `Engine` interface of `base.py`."""

from agent.config import AgentConfig
from agent.engines.base import Engine
from agent.engines.llamacpp import LlamaCpp
from agent.engines.sglang import Sglang
from agent.engines.sim import Sim
from agent.engines.vllm import Vllm
from agent.provision.service import Provisions


def known_engines(config: AgentConfig, provisions: Provisions | None = None) -> dict[str, Engine]:
    """Every engine this version has an adapter for, by name, installed or not."""
    engines: tuple[Engine, ...] = (
        LlamaCpp(binary=config.llama_server),
        Sim(),
        Vllm(configured=config.engine_paths.get("vllm", ""), provisions=provisions),
        Sglang(configured=config.engine_paths.get("sglang", ""), provisions=provisions),
    )
    return {engine.name: engine for engine in engines}
