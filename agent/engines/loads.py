"""How engines say how busy they are: the names on their metrics pages, and what is read there. Absent is never zero.

Names are those of the engines' own documentation: llama.cpp's server README, vLLM's and SGLang's production metrics,
TensorRT-LLM's `trtllm-serve`.
"""

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice

from agent.discovery.exposition import MAX_LINE_CHARS, Sample, parse_line
from llmgw.core.figures import EngineLoad

MOST_REQUESTS = 1e6
"""More requests than this at one engine are none of this world."""
MOST_SERIES = 4096
"""Lines of a page that are read; one with more of these names is an engine's joke."""
MOST_OF_KV = 1.01
"""A share that is rounded may come out a little over 1."""


@dataclass(frozen=True, kw_only=True)
class LoadMetrics:
    """Where one kind of engine says how busy it is.

    Of the names of a figure the first that is on the page counts: newer versions' names come first.
    """

    path: str = "/metrics"
    running: tuple[str, ...]
    """Requests it works on."""
    waiting: tuple[str, ...]
    """Requests in its own queue."""
    kv_used: tuple[str, ...] = ()
    """Share of its KV cache that is taken."""
    slots: tuple[str, ...] = ()
    """Requests it works on at once, at most; what the profile says holds where it does not say."""
    copies: frozenset[str] = frozenset()
    """Labels of ranks that work on the same requests, and each say so: one of them counts."""
    parts: frozenset[str] = frozenset()
    """Labels whose series are parts of the one in which they are empty: only that counts."""


LLAMACPP = LoadMetrics(
    running=("llamacpp:requests_processing",),
    waiting=("llamacpp:requests_deferred",),
    kv_used=("llamacpp:kv_cache_usage_ratio",),
)
VLLM = LoadMetrics(
    running=("vllm:num_requests_running",),
    waiting=("vllm:num_requests_waiting",),
    kv_used=("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc"),
)
SGLANG = LoadMetrics(
    running=("sglang:num_running_reqs",),
    waiting=("sglang:num_queue_reqs",),
    kv_used=("sglang:token_usage",),
    copies=frozenset({"tp_rank", "pp_rank", "moe_ep_rank"}),
    parts=frozenset({"priority"}),
)
TENSORRT_LLM = LoadMetrics(
    # Its `/metrics` is a list of JSON documents that is emptied by reading it.
    path="/prometheus/metrics",
    running=("trtllm_num_requests_running",),
    waiting=("trtllm_num_requests_waiting",),
    kv_used=("trtllm_kv_cache_utilization",),
    slots=("trtllm_max_num_active_requests",),
)


def read_load(text: str, metrics: LoadMetrics, *, slots: int) -> EngineLoad:
    """What the page says, `slots` being what the profile says (0: nothing). What cannot be counts as not said."""
    found: dict[str, list[Sample]] = {}
    for sample in _named(text, (*metrics.running, *metrics.waiting, *metrics.kv_used, *metrics.slots)):
        if not any(sample.labels.get(label) for label in metrics.parts):
            found.setdefault(sample.name, []).append(sample)
    return EngineLoad(
        running=_count(_series(found, metrics.running, metrics.copies)),
        waiting=_count(_series(found, metrics.waiting, metrics.copies)),
        slots=_count(_series(found, metrics.slots, metrics.copies)) or slots or None,
        kv_used=_share(_series(found, metrics.kv_used, metrics.copies)),
    )


def _named(text: str, names: tuple[str, ...]) -> Iterator[Sample]:
    """Samples of those names. Pages have thousands of lines, most of them histograms': those are not even parsed."""
    named = (line for line in text.split("\n") if line.startswith(names) and len(line) <= MAX_LINE_CHARS)
    for line in islice(named, MOST_SERIES):
        sample = parse_line(line)
        if sample is not None and sample.name in names:
            yield sample


def _series(found: Mapping[str, Iterable[Sample]], names: Iterable[str], copies: frozenset[str]) -> list[float]:
    """Values of the first name that is there, one for all copies: the largest, as ranks are read one after another."""
    name = next((name for name in names if name in found), None)
    if name is None:
        return []
    values: dict[tuple[tuple[str, str], ...], float] = {}
    for sample in found[name]:
        labels = tuple(sorted((key, text) for key, text in sample.labels.items() if key not in copies))
        known = values.get(labels, -math.inf)
        # A figure that is no number stays none, whichever rank says it.
        values[labels] = sample.value if math.isnan(sample.value) or sample.value > known else known
    return list(values.values())


def _count(values: list[float]) -> int | None:
    """All series together; none when one of them cannot be, for a part of the sum would pass for the whole."""
    if not values or not all(0 <= value <= MOST_REQUESTS for value in values):
        return None
    return round(sum(values))


def _share(values: list[float]) -> float | None:
    """The mean, in whole percent, so that every token is no news; none when one of them cannot be."""
    if not values or not all(0 <= value <= MOST_OF_KV for value in values):
        return None
    return round(min(1.0, sum(values) / len(values)), 2)
