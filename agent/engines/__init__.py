"""Engines this node can start, one file each behind the `Engine` interface of `base.py`."""

from agent.config import AgentConfig
from agent.engines.base import Engine
from agent.engines.comfyui import ComfyUi
from agent.engines.freetoken import FreeToken
from agent.engines.llamacpp import LlamaCpp
from agent.engines.ray import Ray
from agent.engines.sglang import Sglang
from agent.engines.sim import Sim
from agent.engines.strata import Strata
from agent.engines.trtllm import TrtLlm
from agent.engines.vllm import Vllm
from agent.provision.service import Provisions


def known_engines(config: AgentConfig, provisions: Provisions | None = None) -> dict[str, Engine]:
    """Every engine this version has an adapter for, by name, installed or not."""
    vllm = Vllm(configured=config.engine_paths.get("vllm", ""), provisions=provisions)
    engines: tuple[Engine, ...] = (
        LlamaCpp(binary=config.llama_server, provisions=provisions),
        Sim(),
        vllm,
        Ray(vllm),
        Sglang(configured=config.engine_paths.get("sglang", ""), provisions=provisions),
        FreeToken(
            configured=config.engine_paths.get("freetoken", ""),
            provisions=provisions,
            machine=provisions.machine if provisions is not None else None,
        ),
        Strata(
            configured=config.engine_paths.get("strata", ""),
            machine=provisions.machine if provisions is not None else None,
        ),
        TrtLlm(configured=config.engine_paths.get("trtllm", "")),
        ComfyUi(configured=config.engine_paths.get("comfyui", ""), opened=config.comfyui_open),
    )
    return {engine.name: engine for engine in engines}
