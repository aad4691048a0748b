"""TensorRT-LLM, installed by the operator: `trtllm-serve serve`, on one card or several of one node.

It knows no key: whoever reaches its port is answered. It listens where routers reach it all the same, so its ports are
the operator's to keep closed to everybody else.
"""

from pathlib import Path

from agent.engines.base import Command, Launch, key_config_of
from agent.engines.loads import TENSORRT_LLM
from agent.engines.python_engine import QUIET, PythonEngine, directory_of
from llmgw.core.config_facts import config_facts, read_config
from llmgw.core.errors import InvalidInput
from llmgw.core.fit import estimate

MAX_CONFIG_BYTES = 4 * 1024 * 1024
MAX_FRACTION = 0.97
"""Of what is free; the driver and whatever draws on the card need the rest."""
MIN_FRACTION = 0.001
SAYS_HOW_BUSY = "return_perf_metrics: true\nenable_iter_perf_stats: true\n"
"""Without these two it has no page of figures, and no flag sets them."""


class TrtLlm(PythonEngine):
    """Adapter of `trtllm-serve`."""

    name = "trtllm"
    program = "trtllm-serve"
    package = "tensorrt_llm"
    quiet = {**QUIET, "TRTLLM_NO_USAGE_STATS": "1"}  # noqa: RUF012 - read only, as the base class declares
    load_metrics = TENSORRT_LLM

    def command(self, launch: Launch) -> Command:
        """The command line; raises InvalidInput when it is not installed or the weights are nothing it loads."""
        spec, here, weights = launch.spec, self.installed(), directory_of(launch, self.name)
        fraction = cache_fraction(launch, weights)
        own = [
            *(str(here.program), "serve", str(weights)),
            *("--served_model_name", spec.model),
            *("--host", launch.host),
            *("--port", str(launch.port)),
            *("--max_seq_len", str(spec.context_length)),
            *("--tp_size", str(max(1, spec.tp))),
            *(("--kv_cache_free_gpu_memory_fraction", fraction) if fraction else ()),
            *("--extra_llm_api_options", str(key_config_of(launch))),
        ]
        return Command(
            argv=(*own, *self.check_args(spec.args, spec.env)),
            env=self.environment(here),
            key_text=SAYS_HOW_BUSY,
        )


def cache_fraction(launch: Launch, weights: Path) -> str:
    """The part of the memory that is free once weights and buffers are in place which its cache may take.

    What was reserved holds the weights, what it computes in, and the cache. Weights and buffers counted as placement
    counted them, the cache gets what is left of the reservation, told as a part of what is left of the card: buffers
    smaller than the estimate, or others on the card, make the sum smaller than the reservation and never larger.
    Empty where the card does not tell its memory.
    """
    spec = launch.spec
    if not launch.card_bytes or not spec.memory_bytes:
        return ""
    tp = max(1, spec.tp)
    need = estimate(
        config_facts(_config(weights), sum(file.stat().st_size for file in weights.glob("*.safetensors"))),
        engine=TrtLlm.name,
        context_length=max(1, spec.context_length),
        slots=max(1, spec.slots),
        tp=tp,
        args=spec.args,
    )
    before = need.per_card_bytes - -(-need.kv_bytes // tp)
    left = launch.card_bytes - before
    fraction = (spec.memory_bytes - before) / left if left > 0 else 0.0
    return f"{min(MAX_FRACTION, max(MIN_FRACTION, fraction)):.5f}"


def _config(weights: Path) -> dict[str, object]:
    try:
        with (weights / "config.json").open("rb") as stream:
            return read_config(stream.read(MAX_CONFIG_BYTES))
    except OSError as error:
        raise InvalidInput(f"config.json cannot be read: {error}", field="source") from error
