"""TensorRT-LLM's flags: what a profile may give, and what the agent sets. Names and values are trtllm-serve 1.3's.

They are spelled with underscores and read by click, which takes no other spelling of a name and completes none. Left
out on purpose is whatever names a file, a model, an address or code, memory nobody reserved, and a second way to serve.
"""

from llmgw.core.flag_kinds import FLOAT, INT, WORD, choice, own, table

ALLOWED = table(
    whole=(
        INT,
        "--max_batch_size --max_num_tokens --max_beam_width --num_postprocess_workers "
        "--ep_size,--moe_expert_parallel_size",
    ),
    number=(FLOAT, "--video_pruning_rate"),
    kv=(choice("auto", "fp8", "nvfp4"), "--kv_cache_dtype"),
    generation=(choice("auto", "trtllm"), "--generation-config"),
    level=(choice("error", "warning", "info", "verbose", "debug"), "--log_level"),
    word=(WORD, "--reasoning_parser --tool_parser"),
    switch=(None, "--enable_chunked_prefill --enable_attention_dp"),
)
"""Every spelling of every flag a profile may give."""

_FILE = "it reads a file; write the flags themselves"
_CODE = "it loads the code it names"
SETS_ITSELF = own(
    context=("set context_length instead", "--max-seq-len --max-input-len"),
    name=("the model's name and aliases are set from the catalog", "--served-model-name"),
    model=("the model is the catalog entry's source", "--tokenizer --revision --hf-revision --backend"),
    listen=("the agent chooses where the engine listens", "--host --port"),
    cards=(
        "set the profile's tp instead; the scheduler chooses the cards",
        "--tp-size --tensor-parallel-size --pp-size --pipeline-parallel-size --cp-size --context-parallel-size "
        "--gpus-per-node --cluster-size --moe-cluster-parallel-size",
    ),
    memory=(
        "the engine gets the memory the placement reserved, which follows context_length and slots",
        "--kv-cache-free-gpu-memory-fraction --free-gpu-memory-fraction",
    ),
    files=(_FILE, "--config --extra-llm-api-options --metadata-server-config-file --visual-gen-args"),
    code=(_CODE, "--custom-module-dirs --custom-tokenizer --post-processor-hook --middleware"),
    serving=(
        "a replica is one server that answers in HTTP by itself",
        "--grpc --server-role --disagg-cluster-uri --report-addr --num-serve-frontends --enable-visual-gen",
    ),
    home=("an engine calls nobody", "--telemetry --no-telemetry"),
)
"""Flags the agent sets, and what to write instead; written with dashes, as refusals compare them."""
