"""What a profile may give an engine, and the reason for everything it may not."""

import string

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llmgw.core.engine_flags import ALLOWED
from llmgw.core.engine_rules import check_args, check_env
from llmgw.core.errors import InvalidInput

OWN_FLAGS = ("--host", "--port", "--model", "-m", "--api-key", "--api-key-file", "--ctx-size", "-c", "--alias")


def test_flags_come_out_in_one_spelling() -> None:
    given_args = ["-t", "4", "--flash-attn=on", "-ngl", "-1", "--embeddings", "--tensor-split", "3,1"]
    assert check_args("llamacpp", given_args) == (
        *("--threads", "4", "--flash-attn", "on", "--n-gpu-layers", "-1", "--embedding", "--tensor-split", "3,1"),
    )
    assert check_args("sim", ["--rate=40", "--fault", "drop:3,no-usage"]) == (
        "--rate",
        "40",
        "--fault",
        "drop:3,no-usage",
    )
    assert check_args("sim", []) == ()


@pytest.mark.parametrize("engine", ["llamacpp", "sim"])
@pytest.mark.parametrize("flag", OWN_FLAGS)
@pytest.mark.parametrize("spelling", ["{}=x", "{}"])
def test_what_the_agent_sets_is_refused_in_every_spelling(engine: str, flag: str, spelling: str) -> None:
    with pytest.raises(InvalidInput, match="is refused for"):
        check_args(engine, [spelling.format(flag), "x"])


@pytest.mark.parametrize(
    ("args", "reason"),
    [
        (["--api-key=x"], "its own key"),
        (["--api_key", "x"], "its own key"),
        (["--allowed-local-media-p=/"], "protection"),
        (["--trust-remote"], "protection"),
        (["--chat-template-file", "x"], "files"),
        (["--log-file", "x"], "files"),
        (["--slot-save-path", "/"], "files"),
        (["--hf-repo", "a/b"], "fetches"),
        (["--model-url", "http://x"], "fetches"),
        (["--rpc", "host:1"], "connects"),
        (["--mmproj", "x"], "further model files"),
        (["--lora", "x"], "further model files"),
        (["--hf-overrides", "{}"], "fetches"),
        (["--ssl-key-file", "x"], "file"),
        (["--config", "f.yaml"], "not one of the flags"),
        (["@file"], "file with arguments"),
        (["--", "--x"], "by its name"),
        (["-"], "by its name"),
        (["\u2014\u2014threads", "4"], "printable ASCII"),
        (["\u2010t", "4"], "printable ASCII"),
        (["--threads\n", "4"], "printable ASCII"),
        (["4"], "begin with a dash"),
        (["--threads"], "needs a value"),
        (["--threads", "--host"], "expected a whole number"),
        (["--threads", "/etc/passwd"], "expected a whole number"),
        (["--threads", "\u0664"], "expected a whole number"),
        (["--threads", "4\n"], "expected a whole number"),
        (["--mlock=1"], "takes no value"),
        (["--cache-ram", "-1"], "expected a whole number of MiB"),  # no limit: memory that nobody reserved
        (["--cache-type-k", "@f"], "expected one of"),
        (["--mlock"] * 65, "more than 64"),
    ],
)
def test_an_argument_is_refused_with_its_reason(args: list[str], reason: str) -> None:
    with pytest.raises(InvalidInput, match=reason):
        check_args("llamacpp", args)


def test_an_unknown_engine_takes_no_flags() -> None:
    assert check_args("nowhere", []) == ()
    with pytest.raises(InvalidInput, match="takes no flags"):
        check_args("nowhere", ["--anything"])


@given(st.lists(st.text(max_size=12) | st.sampled_from([*ALLOWED["llamacpp"], "on", "3", "@x", "--"]), max_size=6))
@settings(max_examples=300)
def test_whatever_is_accepted_is_flags_and_typed_values_only(args: list[str]) -> None:
    try:
        accepted = check_args("llamacpp", args)
    except InvalidInput:
        return
    long_names = {flag.name for flag in ALLOWED["llamacpp"].values()}
    harmless = set(string.ascii_letters + string.digits + "_-.,/")
    for word in accepted:
        assert word in long_names or (set(word) <= harmless and not word.startswith(("/", "--")))
    assert check_args("llamacpp", accepted) == accepted


@pytest.mark.parametrize(
    "name",
    ["OMP_NUM_THREADS", "CUDA_MODULE_LOADING", "NCCL_DEBUG", "NCCL_SOCKET_IFNAME", "VLLM_ATTENTION_BACKEND",
     "PYTHONHASHSEED", "PYTHONUNBUFFERED", "HF_HUB_OFFLINE", "TOKENIZERS_PARALLELISM", "GGML_CUDA_FORCE_MMQ",
     "FREETOKEN_PIN_BUDGET_GB"],
)  # fmt: skip
def test_a_variable_of_a_family_may_be_set(name: str) -> None:
    check_env({name: "1"})


@pytest.mark.parametrize(
    "name",
    ["LD_PRELOAD", "LD_LIBRARY_PATH", "PATH", "PYTHONPATH", "VLLM_PLUGINS", "HF_ENDPOINT", "HF_HOME", "HF_TOKEN",
     "SSL_CERT_FILE", "CUDA_INJECTION64_PATH", "NVTE_LIB", "NCCL_NET_PLUGIN", "NCCL_TOPO_FILE", "TRITON_CACHE_DIR",
     "TRITON_LIBCUDA_PATH", "VLLM_API_KEY", "LLAMA_ARG_MODEL", "LLAMA_API_KEY", "CUDA_VISIBLE_DEVICES",
     "NVIDIA_VISIBLE_DEVICES", "FREETOKEN_API_KEY", "FREETOKEN_HOST", "FREETOKEN_API_LOG_DIR", "GLOO_SOCKET_ADDR",
     "VLLM_HOST_IP", "VLLM_PORT", "VLLM_ALLOW_INSECURE_SERIALIZATION", "cuda_x", "TZ=", "CUDA_X=", "", "OMP_\u0130",
     "CUDAX", "CUDA_LOGFILE", "HTTP_PROXY", "TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD", "VLLM_ALLOW_RUNTIME_LORA_UPDATING",
     "VLLM_USE_MODELSCOPE", "SGLANG_USE_MODELSCOPE"],
)  # fmt: skip
def test_any_other_variable_is_refused(name: str) -> None:
    with pytest.raises(InvalidInput, match="is refused"):
        check_env({name: "1"})


@pytest.mark.parametrize("value", ["a\nb", "a\0b", "/etc/passwd", "http://x/", "x" * 5000])
def test_a_value_that_is_a_path_or_hides_something_is_refused(value: str) -> None:
    with pytest.raises(InvalidInput):
        check_env({"VLLM_MODE": value})


@pytest.mark.parametrize("name", ["HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "VLLM_NO_USAGE_STATS"])
def test_no_profile_lets_an_engine_call_home(name: str) -> None:
    check_env({name: "1"})
    for value in ("0", "", "false", "off"):
        with pytest.raises(InvalidInput, match="calls nobody"):
            check_env({name: value})


def test_a_time_zone_is_a_name() -> None:
    check_env({"TZ": "Europe/Berlin"})
    check_env({"TZ": "UTC"})
    for value in (":/etc/passwd", "/etc/passwd", "../x", ""):
        with pytest.raises(InvalidInput):
            check_env({"TZ": value})
