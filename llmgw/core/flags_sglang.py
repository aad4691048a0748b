"""SGLang's flags: what a profile may give, and what the agent sets. Names and values are those of SGLang 0.5.23.

Left out on purpose is whatever names a file, a model, an address or code, and memory nobody reserved.
"""

from llmgw.core.flag_kinds import FLOAT, INT, WORD, choice, own, table

ALLOWED = table(
    whole=(
        INT,
        "--random-seed --max-running-requests --max-queued-requests --chunked-prefill-size --max-prefill-tokens "
        "--prefill-max-requests --page-size --num-continuous-decode-steps --stream-interval --tokenizer-worker-num "
        "--cuda-graph-max-bs-decode --torch-compile-max-bs --ep-size,--expert-parallel-size "
        "--speculative-num-steps --speculative-eagle-topk --speculative-num-draft-tokens",
    ),
    number=(FLOAT, "--schedule-conservativeness --swa-full-tokens-ratio --watchdog-timeout"),
    dtype=(choice("auto", "half", "float16", "bfloat16", "float", "float32"), "--dtype"),
    kv=(choice("auto", "bfloat16", "bf16", "fp8_e4m3", "fp8_e5m2", "mxfp8", "nvfp4"), "--kv-cache-dtype"),
    load=(choice("auto", "safetensors", "mistral", "dummy"), "--load-format"),
    implementation=(choice("auto", "sglang", "transformers"), "--model-impl"),
    tokenizer=(choice("auto", "slow"), "--tokenizer-mode"),
    policy=(choice("lpm", "random", "fcfs", "dfs-weight", "lof", "priority"), "--schedule-policy"),
    eviction=(choice("lru", "lfu", "slru"), "--radix-eviction-policy"),
    defaults=(choice("openai", "model"), "--sampling-defaults"),
    speculation=(choice("NGRAM", "NEXTN"), "--speculative-algorithm"),
    word=(
        WORD,
        "--quantization --attention-backend --prefill-attention-backend --decode-attention-backend "
        "--sampling-backend --grammar-backend --moe-runner-backend --moe-a2a-backend --tool-call-parser "
        "--reasoning-parser",
    ),
    switch=(
        None,
        "--disable-radix-cache --disable-overlap-schedule --disable-chunked-prefix-cache --disable-cuda-graph "
        "--disable-cuda-graph-padding --disable-custom-all-reduce --enable-mixed-chunk --enable-torch-compile "
        "--enable-dp-attention --enable-two-batch-overlap --enable-deterministic-inference --enable-fp32-lm-head "
        "--enable-priority-scheduling --enable-eplb --is-embedding --skip-server-warmup --sleep-on-idle "
        "--triton-attention-reduce-in-fp32 --disable-shared-experts-fusion",
    ),
)
"""Every spelling of every flag a profile may give."""

_CARDS = "set the profile's tp instead; the scheduler chooses the cards"
SETS_ITSELF = own(
    context=("set context_length instead", "--context-length"),
    name=("the model's name and aliases are set from the catalog", "--served-model-name"),
    model=("the model is the catalog entry's source", "--model-path --model --tokenizer-path --revision"),
    listen=("the agent chooses where the engine listens", "--host --port --nccl-port --grpc-port"),
    key=("the agent hands each engine its own key", "--api-key --admin-api-key"),
    cards=(
        _CARDS,
        "--tp-size --tensor-parallel-size --tp --pp-size --pipeline-parallel-size --pp --dp-size "
        "--data-parallel-size --dp --nnodes --node-rank --base-gpu-id --gpu-id-step --device",
    ),
    memory=(
        "the engine gets the memory the placement reserved, which follows context_length and slots",
        "--mem-fraction-static --max-total-tokens",
    ),
    metrics=("metrics are always on", "--enable-metrics"),
    usage=("cached tokens are always reported", "--enable-cache-report"),
    config=("it reads a file; write the flags themselves", "--config"),
)
"""Flags the agent sets, and what to write instead."""
