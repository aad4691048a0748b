"""The sim engine's counters, and their text under llama.cpp's and vLLM's names, so that any reader finds its own."""

from dataclasses import dataclass

from llmgw.sim.options import EngineOptions


@dataclass(kw_only=True)
class Counters:
    """What the engine has done and is doing."""

    running: int = 0
    """Requests that hold a slot."""
    prompt_tokens: int = 0
    cached_tokens: int = 0
    """Part of `prompt_tokens` that was not computed again."""
    generated_tokens: int = 0
    kv_tokens: int = 0
    """Tokens of the requests that hold a slot, prompt and answer so far."""
    finished: int = 0
    left: int = 0
    """Generations that ended because their client left."""
    refused: int = 0
    """Requests that found the queue full."""


def kv_used(counters: Counters, options: EngineOptions) -> float:
    """Share of the KV cache that is taken."""
    return min(1.0, counters.kv_tokens / (options.slots * options.ctx_size))


def metrics_text(counters: Counters, options: EngineOptions, waiting: int) -> bytes:
    """Prometheus text."""
    kv_usage = kv_used(counters, options)
    lines: list[str] = []

    def metric(name: str, kind: str, value: float, labels: str = "") -> None:
        lines.extend((f"# TYPE {name} {kind}", f"{name}{labels} {value}"))

    metric("llamacpp:requests_processing", "gauge", counters.running)
    metric("llamacpp:requests_deferred", "gauge", waiting)
    metric("llamacpp:kv_cache_usage_ratio", "gauge", kv_usage)
    metric("llamacpp:kv_cache_tokens", "gauge", counters.kv_tokens)
    metric("llamacpp:prompt_tokens_total", "counter", counters.prompt_tokens)
    metric("llamacpp:tokens_predicted_total", "counter", counters.generated_tokens)
    escaped = options.names[0].replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    labels = f'{{model_name="{escaped}"}}'
    metric("vllm:num_requests_running", "gauge", counters.running, labels)
    metric("vllm:num_requests_waiting", "gauge", waiting, labels)
    metric("vllm:kv_cache_usage_perc", "gauge", kv_usage, labels)
    metric("vllm:prompt_tokens_total", "counter", counters.prompt_tokens, labels)
    metric("vllm:generation_tokens_total", "counter", counters.generated_tokens, labels)
    metric("vllm:prefix_cache_queries_total", "counter", counters.prompt_tokens, labels)
    metric("vllm:prefix_cache_hits_total", "counter", counters.cached_tokens, labels)
    metric("sim:requests_finished_total", "counter", counters.finished)
    metric("sim:requests_left_total", "counter", counters.left)
    metric("sim:requests_refused_total", "counter", counters.refused)
    return ("\n".join(lines) + "\n").encode()
