"""FreeToken's flags: what a profile may give, and what the agent sets. Names and values are those of FreeToken 0.2.1.

Left out on purpose is whatever names a file, a model, an address or a card, and the memory of others.
"""

import re
from collections.abc import Sequence

from llmgw.core.beside import value_of
from llmgw.core.flag_kinds import FLOAT, INT, WORD, choice, own, table

_LAYERS = (re.compile(r"auto|[0-9]{1,4}(\.[0-9]{1,6})?(,[0-9]{1,4}){0,255}"), "layers such as 3,7,11, a count, or auto")
_KERNELS = (
    re.compile(r"[a-z0-9_.]{1,40}=[a-z0-9_]{1,40}(,[a-z0-9_.]{1,40}=[a-z0-9_]{1,40}){0,15}"),
    "entries such as moe.nvfp4=triton",
)
_ATTENTION = (re.compile(r"[a-z0-9_]{1,40}(,[a-z0-9_]{1,40})?"), "a backend, or one for prompts and one for answers")

ALLOWED = table(
    whole=(
        INT,
        "--max-running-requests --max-seq-len-override --max-output-tokens --max-prefill-length "
        "--cuda-graph-max-bs,--graph --decode-log-interval --num-pages --num-tokens --page-size --moe-cache-size "
        "--kv-reserve-tokens --moe-cpu-threads --moe-hybrid-max-fetch --image-min-tokens --image-max-tokens",
    ),
    number=(FLOAT, "--moe-cache-rate"),
    dtype=(choice("auto", "float16", "bfloat16", "float32"), "--dtype"),
    strategy=(choice("auto", "fused", "offload", "cpu", "hybrid"), "--moe-strategy"),
    cache=(choice("radix", "naive"), "--cache-type"),
    kv=(choice("auto", "bf16", "fp8"), "--kv-cache-dtype"),
    defaults=(choice("model", "none"), "--sampling-defaults"),
    layers=(_LAYERS, "--moe-cpu-layers"),
    kernels=(_KERNELS, "--quant-backend"),
    attention=(_ATTENTION, "--attention-backend,--attn"),
    word=(WORD, "--tool-call-parser --reasoning-parser"),
    switch=(
        None,
        "--moe-cache-auto --moe-prefill-hit-d2d --disable-moe-prefill-overlap --enable-cache-report --text-model-only",
    ),
)
"""Every spelling of every flag a profile may give."""

_CARD = "it runs on the one card the scheduler chose"
SETS_ITSELF = own(
    name=("the model's name and aliases are set from the catalog", "--served-model-name"),
    model=("the model is the catalog entry's source", "--model --model-path --model-source"),
    listen=("the agent chooses where the engine listens", "--host --port --dist-port"),
    key=("the agent hands each engine its own key", "--api-key"),
    card=(_CARD, "--gpu --tensor-parallel-size --tp-size --moe-cache-split"),
    files=("it reads further model files", "--mmproj --mm-encoder-weights"),
    media=("it switches a protection off", "--allowed-local-media-path --allowed-media-domains"),
    overrides=("it takes JSON that can name files and code", "--hf-overrides"),
    memory=("the engine has its card to itself, and sizes its caches by what is free there", "--memory-ratio"),
)
"""Flags that are refused with what to do instead, and under every abbreviation."""

CONTEXT = "--max-seq-len-override"


def other_context(args: Sequence[str], context_length: int | None) -> str:
    """Why a context among the flags cannot be: it is not the model's, which clients are told; empty where it may."""
    told = value_of(args, (CONTEXT,))
    if not told or told == str(context_length):
        return ""
    return f"{CONTEXT} {told[:40]} is not the model's context_length: leave the flag out, it follows that"
