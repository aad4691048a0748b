"""What is read from engines' metrics pages: each engine's own names, and nothing that it does not say."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.engines.loads import LLAMACPP, MOST_SERIES, SGLANG, TENSORRT_LLM, VLLM, LoadMetrics, read_load
from llmgw.core.figures import EngineLoad
from llmgw.sim.metrics import Counters, metrics_text
from llmgw.sim.options import parse_options

LLAMACPP_NOW = """\
# HELP llamacpp:prompt_tokens_total Number of prompt tokens processed.
# TYPE llamacpp:prompt_tokens_total counter
llamacpp:prompt_tokens_total 1844
# HELP llamacpp:requests_processing Number of requests processing.
# TYPE llamacpp:requests_processing gauge
llamacpp:requests_processing 4
# HELP llamacpp:requests_deferred Number of requests deferred.
# TYPE llamacpp:requests_deferred gauge
llamacpp:requests_deferred 2
# HELP llamacpp:n_busy_slots_per_decode Average number of busy slots per llama_decode() call
# TYPE llamacpp:n_busy_slots_per_decode counter
llamacpp:n_busy_slots_per_decode 2.21429
"""
LLAMACPP_ONCE = LLAMACPP_NOW + "# TYPE llamacpp:kv_cache_usage_ratio gauge\nllamacpp:kv_cache_usage_ratio 0.613\n"
VLLM_NOW = """\
# HELP vllm:num_requests_running Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="meta/llama, 70B \\"x\\""} 17.0
vllm:num_requests_running{engine="1",model_name="meta/llama, 70B \\"x\\""} 15.0
# HELP vllm:num_requests_waiting Number of requests waiting to be processed.
# TYPE vllm:num_requests_waiting gauge
vllm:num_requests_waiting{engine="0",model_name="m"} 3.0
vllm:num_requests_waiting{engine="1",model_name="m"} 0.0
vllm:num_requests_waiting_by_reason{engine="0",model_name="m",reason="capacity"} 3.0
# TYPE vllm:kv_cache_usage_perc gauge
vllm:kv_cache_usage_perc{engine="0",model_name="m"} 0.9412
vllm:kv_cache_usage_perc{engine="1",model_name="m"} 0.5
# TYPE vllm:time_to_first_token_seconds histogram
vllm:time_to_first_token_seconds_bucket{engine="0",le="0.001",model_name="m"} 0.0
"""
VLLM_ONCE = """\
vllm:num_requests_running{model_name="m"} 1.0
vllm:num_requests_waiting{model_name="m"} 0.0
vllm:num_requests_swapped{model_name="m"} 9.0
vllm:gpu_cache_usage_perc{model_name="m"} 0.02
vllm:cpu_cache_usage_perc{model_name="m"} 0.7
"""
VLLM_BETWEEN = VLLM_ONCE + 'vllm:kv_cache_usage_perc{model_name="m"} 0.03\n'
SGLANG_PAGE = """\
# TYPE sglang:num_running_reqs gauge
sglang:num_running_reqs{dp_rank="0",engine_type="unified",model_name="q",pp_rank="0",priority="",tp_rank="0"} 6.0
sglang:num_running_reqs{dp_rank="0",engine_type="unified",model_name="q",pp_rank="0",priority="",tp_rank="1"} 5.0
sglang:num_running_reqs{dp_rank="1",engine_type="unified",model_name="q",pp_rank="0",priority="",tp_rank="0"} 2.0
sglang:num_running_reqs{dp_rank="0",engine_type="unified",model_name="q",pp_rank="0",priority="5",tp_rank="0"} 4.0
# TYPE sglang:num_queue_reqs gauge
sglang:num_queue_reqs{dp_rank="0",engine_type="unified",model_name="q",pp_rank="0",priority="",tp_rank="0"} 1.0
# TYPE sglang:token_usage gauge
sglang:token_usage{dp_rank="0",engine_type="unified",model_name="q",pp_rank="0",tp_rank="0"} 0.28
"""
TENSORRT_LLM_PAGE = """\
# TYPE trtllm_num_requests_running gauge
trtllm_num_requests_running{engine_type="pytorch",model_name="m"} 7.0
trtllm_num_requests_waiting{engine_type="pytorch",model_name="m"} 2.0
trtllm_num_requests_completed_total{engine_type="pytorch",model_name="m"} 99.0
trtllm_max_num_active_requests{engine_type="pytorch",model_name="m"} 256.0
trtllm_kv_cache_hit_rate{engine_type="pytorch",model_name="m"} 0.5
trtllm_kv_cache_utilization{engine_type="pytorch",model_name="m"} 0.62
"""


@pytest.mark.parametrize(
    ("metrics", "page", "expected"),
    [
        (LLAMACPP, LLAMACPP_NOW, EngineLoad(running=4, waiting=2, slots=8)),
        (LLAMACPP, LLAMACPP_ONCE, EngineLoad(running=4, waiting=2, slots=8, kv_used=0.61)),
        (VLLM, VLLM_NOW, EngineLoad(running=32, waiting=3, slots=8, kv_used=0.72)),
        (VLLM, VLLM_ONCE, EngineLoad(running=1, waiting=0, slots=8, kv_used=0.02)),
        (VLLM, VLLM_BETWEEN, EngineLoad(running=1, waiting=0, slots=8, kv_used=0.03)),
        (SGLANG, SGLANG_PAGE, EngineLoad(running=8, waiting=1, slots=8, kv_used=0.28)),
        (TENSORRT_LLM, TENSORRT_LLM_PAGE, EngineLoad(running=7, waiting=2, slots=256, kv_used=0.62)),
    ],
    ids=["llamacpp", "llamacpp-older", "vllm", "vllm-older", "vllm-both-names", "sglang", "trtllm"],
)
def test_every_engine_is_read_under_its_own_names(metrics: LoadMetrics, page: str, expected: EngineLoad) -> None:
    assert read_load(page, metrics, slots=8) == expected
    assert read_load(page.replace("\n", "\r\n"), metrics, slots=8) == expected, "lines may end as they like"


def test_what_is_not_said_is_none_and_never_zero() -> None:
    assert read_load("", VLLM, slots=0) == EngineLoad()
    assert read_load(LLAMACPP_NOW, VLLM, slots=0) == EngineLoad(), "another engine's page says nothing"
    assert read_load("llamacpp:requests_deferred 0\n", LLAMACPP, slots=4) == EngineLoad(waiting=0, slots=4)


@pytest.mark.parametrize("value", ["NaN", "-1", "+Inf", "1e300", "nothing", "", "0x10"])
def test_a_figure_that_cannot_be_is_none_and_spoils_no_other(value: str) -> None:
    page = f'vllm:num_requests_running{{engine="0"}} {value}\nvllm:num_requests_waiting 3\n'
    load = read_load(page + 'vllm:num_requests_running{engine="1"} nan\n', VLLM, slots=0)
    assert load == EngineLoad(waiting=3)
    assert read_load(f"vllm:kv_cache_usage_perc {value}\n", VLLM, slots=0).kv_used is None


def test_a_share_over_the_whole_is_rounding_or_a_lie() -> None:
    assert read_load("sglang:token_usage 1.004\n", SGLANG, slots=0).kv_used == 1.0
    assert read_load("sglang:token_usage 61\n", SGLANG, slots=0).kv_used is None


def test_a_page_of_nothing_but_its_names_is_read_up_to_a_limit() -> None:
    page = "".join(f'vllm:num_requests_running{{engine="{i}"}} 1\n' for i in range(2 * MOST_SERIES))
    assert read_load(page, VLLM, slots=0).running == MOST_SERIES


def test_the_sim_engine_is_read_as_itself_and_as_vllm() -> None:
    options = parse_options(["--slots", "4", "--ctx-size", "1000", "--model", 'a "name"\n'], environment={})
    page = metrics_text(Counters(running=3, kv_tokens=2440), options, waiting=5).decode()
    expected = EngineLoad(running=3, waiting=5, slots=4, kv_used=0.61)
    assert read_load(page, LLAMACPP, slots=4) == expected
    assert read_load(page, VLLM, slots=4) == expected


@given(st.text(max_size=400), st.integers(0, 3))
def test_no_page_is_more_than_a_load(noise: str, where: int) -> None:
    """Whatever stands before, between and after, what is read is a load that can be."""
    lines = SGLANG_PAGE.split("\n")
    page = "\n".join([*lines[: where * 3], noise, *lines[where * 3 :]])
    load = read_load(page, SGLANG, slots=0)
    for requests in (load.running, load.waiting, load.slots):
        assert requests is None or requests >= 0
    assert load.kv_used is None or (0 <= load.kv_used <= 1 and math.isfinite(load.kv_used))
