"""vLLM's flags: what a profile may give, and what the agent sets. Names and values are those of vLLM 0.30.

Left out on purpose is whatever takes JSON with models, classes or addresses in it, memory nobody reserved (offloading
to the host), and loaders that read pickles.
"""

import re

from llmgw.core.flag_kinds import FLOAT, INT, WORD, choice, own, table

_PER_PROMPT = (
    re.compile(r'\{("(image|video|audio)": ?[0-9]{1,3}(, ?(?="))?){1,3}\}'),
    'counts such as {"image": 2, "video": 0}',
)

ALLOWED = table(
    whole=(
        INT,
        "--seed --max-logprobs --block-size --max-num-seqs --max-num-batched-tokens --max-num-queued-reqs "
        "--max-num-queued-tokens --long-prefill-token-threshold --stream-interval --max-cudagraph-capture-size "
        "--max-parallel-loading-workers --num-gpu-blocks-override --mm-processor-cache-gb --spec-tokens",
    ),
    number=(FLOAT, "--video-pruning-rate"),
    dtype=(choice("auto", "half", "float16", "bfloat16", "float", "float32"), "--dtype"),
    kv=(
        choice("auto", "float16", "bfloat16", "fp8", "fp8_e4m3", "fp8_e5m2", "fp8_ds_mla", "nvfp4"),
        "--kv-cache-dtype",
    ),
    tokenizer=(choice("auto", "hf", "slow", "mistral", "deepseek_v32", "deepseek_v4"), "--tokenizer-mode"),
    load=(choice("auto", "safetensors", "mistral", "dummy"), "--load-format"),
    strategy=(choice("lazy", "eager", "prefetch"), "--safetensors-load-strategy"),
    implementation=(choice("auto", "vllm", "transformers"), "--model-impl"),
    runner=(choice("auto", "generate", "pooling"), "--runner"),
    convert=(choice("auto", "none", "embed", "classify"), "--convert"),
    logprobs=(
        choice("raw_logits", "raw_logprobs", "processed_logits", "processed_logprobs"),
        "--logprobs-mode",
    ),
    generation=(choice("auto", "vllm"), "--generation-config"),
    policy=(choice("fcfs", "priority"), "--scheduling-policy"),
    speculation=(choice("ngram", "ngram_gpu", "mtp", "suffix"), "--spec-method"),
    placement=(choice("linear", "round_robin"), "--expert-placement-strategy"),
    word=(
        WORD,
        "--quantization,-q --attention-backend --moe-backend --linear-backend --all2all-backend --tool-call-parser "
        "--reasoning-parser",
    ),
    per_prompt=(_PER_PROMPT, "--limit-mm-per-prompt"),
    switch=(
        None,
        "--enforce-eager --no-enforce-eager --enable-prefix-caching --no-enable-prefix-caching "
        "--enable-chunked-prefill --no-enable-chunked-prefill --enable-expert-parallel,-ep "
        "--async-scheduling --no-async-scheduling --disable-sliding-window --disable-cascade-attn "
        "--disable-custom-all-reduce --disable-hybrid-kv-cache-manager --no-disable-hybrid-kv-cache-manager "
        "--disable-chunked-mm-input --language-model-only --skip-mm-profiling --kv-sharing-fast-prefill "
        "--enable-flashinfer-autotune --no-enable-flashinfer-autotune --enable-auto-tool-choice --enable-eplb "
        "--enable-dbo --use-fp64-gumbel",
    ),
)
"""Every spelling of every flag a profile may give."""

_CARDS = "set the profile's tp, pp and nodes instead; the scheduler chooses the cards"
SETS_ITSELF = own(
    context=("set context_length instead", "--max-model-len"),
    name=("the model's name and aliases are set from the catalog", "--served-model-name"),
    model=("the model is the catalog entry's source", "--model --tokenizer --revision --tokenizer-revision"),
    listen=("the agent chooses where the engine listens", "--host --port --uds"),
    key=("the agent hands each engine its own key", "--api-key"),
    cards=(
        _CARDS,
        "--tensor-parallel-size -tp --pipeline-parallel-size -pp --data-parallel-size -dp --device-ids "
        "--distributed-executor-backend --nnodes -n --node-rank -r",
    ),
    memory=(
        "the engine gets the memory the placement reserved, which follows context_length and slots",
        "--gpu-memory-utilization --kv-cache-memory-bytes",
    ),
    usage=("cached tokens are always reported", "--enable-prompt-tokens-details --no-enable-prompt-tokens-details"),
)
"""Flags the agent sets, and what to write instead."""
