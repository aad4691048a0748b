"""Engines this node can start, one file each behind the `Engine` interface of `base.py`."""

from agent.config import AgentConfig
from agent.engines.base import Engine
from agent.engines.llamacpp import LlamaCpp
from agent.engines.sim import Sim


def known_engines(config: AgentConfig) -> dict[str, Engine]:
    """Every engine this version has an adapter for, by name, installed or not."""
    engines: tuple[Engine, ...] = (LlamaCpp(binary=config.llama_server), Sim())
    return {engine.name: engine for engine in engines}
