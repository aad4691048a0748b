"""The tables behind `engine_rules`: flags a profile may give each engine, and why others are refused.

A flag's long name comes first; its other spellings map to the same entry, and engines are given the long name only.
"""

import re
from collections.abc import Mapping

from llmgw.core import flags_comfyui, flags_freetoken, flags_sglang, flags_strata, flags_trtllm, flags_vllm
from llmgw.core.flag_kinds import FLOAT, FLOATS, INT, Flag, choice, own, table

_FAULTS = (re.compile(r"[a-z0-9.:,-]{1,200}"), "faults such as hang or drop:3,no-usage")
_MEBIBYTES = (re.compile(r"[0-9]{1,8}"), "a whole number of MiB")
_KV_TYPES = choice("f32", "f16", "bf16", "q8_0", "q4_0", "q4_1", "iq4_nl", "q5_0", "q5_1")

LLAMACPP = table(
    whole=(
        INT,
        "--threads,-t --threads-batch,-tb --threads-http --batch-size,-b --ubatch-size,-ub "
        "--n-gpu-layers,-ngl,--gpu-layers --n-cpu-moe,-ncmoe --main-gpu,-mg --predict,-n,--n-predict --keep "
        "--cache-reuse --seed,-s --top-k --repeat-last-n --yarn-orig-ctx --timeout,-to",
    ),
    number=(
        FLOAT,
        "--temp --top-p --min-p --repeat-penalty --presence-penalty --frequency-penalty --rope-freq-base "
        "--rope-freq-scale --yarn-ext-factor --yarn-attn-factor --yarn-beta-slow --yarn-beta-fast "
        "--slot-prompt-similarity,-sps",
    ),
    numbers=(FLOATS, "--tensor-split,-ts"),
    prompts=(_MEBIBYTES, "--cache-ram,-cram"),
    kv=(_KV_TYPES, "--cache-type-k,-ctk --cache-type-v,-ctv"),
    attention=(choice("on", "off", "auto"), "--flash-attn,-fa"),
    split=(choice("none", "layer", "row"), "--split-mode,-sm"),
    pooling=(choice("none", "mean", "cls", "last", "rank"), "--pooling"),
    rope=(choice("none", "linear", "yarn"), "--rope-scaling"),
    reasoning=(choice("none", "auto", "deepseek", "deepseek-legacy"), "--reasoning-format"),
    numa=(choice("distribute", "isolate", "numactl"), "--numa"),
    switch=(
        None,
        "--embedding,--embeddings --reranking,--rerank --mlock --no-mmap --no-kv-offload,-nkvo --swa-full "
        "--kv-unified,-kvu --cpu-moe,-cmoe --jinja --no-jinja --no-warmup --context-shift --no-context-shift "
        "--check-tensors --no-op-offload --cont-batching,-cb --no-cont-batching,-nocb",
    ),
)

SIM = table(
    number=(FLOAT, "--rate --prefill-ms --prefill-per-token-us --jitter --start-delay --exit-after --keep-alive"),
    whole=(INT, "--queue --seed --chunk --answer-tokens --loading-code --prefix-cache-kb"),
    faults=(_FAULTS, "--fault"),
    switch=(None, "--crash-on-start --ignore-term"),
)

ALLOWED: Mapping[str, Mapping[str, Flag]] = {
    "llamacpp": LLAMACPP,
    "sim": SIM,
    "vllm": flags_vllm.ALLOWED,
    "sglang": flags_sglang.ALLOWED,
    "freetoken": flags_freetoken.ALLOWED,
    "strata": flags_strata.ALLOWED,
    "trtllm": flags_trtllm.ALLOWED,
    "comfyui": flags_comfyui.ALLOWED,
}
"""By engine: every spelling of every flag a profile may give."""


_OWN = own(
    context=("set context_length instead", "--ctx-size -c"),
    slots=("set the profile's slots instead", "--parallel -np --slots"),
    name=("the model's name and aliases are set from the catalog", "--alias -a --model-name"),
    model=("the model is the catalog entry's source", "--model -m"),
    listen=("the agent chooses where the engine listens", "--host --port"),
    key=("the agent hands each engine its own key", "--api-key --api-key-file"),
    metrics=("metrics are always on", "--metrics"),
)
SETS_ITSELF: Mapping[str, Mapping[str, str]] = {
    "llamacpp": _OWN,
    "sim": _OWN,
    "vllm": flags_vllm.SETS_ITSELF,
    "sglang": flags_sglang.SETS_ITSELF,
    "freetoken": flags_freetoken.SETS_ITSELF,
    "strata": flags_strata.SETS_ITSELF,
    "trtllm": flags_trtllm.SETS_ITSELF,
    "comfyui": flags_comfyui.SETS_ITSELF,
}
"""By engine: flags the agent sets, and what to write instead."""

REFUSED: tuple[tuple[re.Pattern[str], str], ...] = tuple(
    (re.compile(pattern), reason)
    for pattern, reason in (
        (r"^--api-k|^--key|-token$|^-hft$", "it is a credential; the agent hands each engine its own key"),
        (r"^--ssl|^--cert", "it reads a file, and engines speak plain HTTP to routers"),
        (
            r"^--hf|^-hf|^--docker|-url$|^-mu$|^--model-u|^--rpc|-repo$",
            "it fetches or connects; weights come by source",
        ),
        (r"^--mm|^-mm|^--lora|^--control-vector|^--model|^-md$", "it reads further model files"),
        (
            r"-file$|-path$|-dir$|^--path|^--log(-|$)|^-f$|^-bf$|^--media|^--slot-save|^--lookup",
            "it reads or writes files",
        ),
        (
            r"^--chat-template|^--tools|^--mcp|^--grammar|^-j$|^--json-schema|^--override",
            "it can load or run what it names",
        ),
        (
            r"[a-z]-config$|-overrides?$|-override-args$|-args$|-kwargs$|-json$",
            "it takes JSON that can name files and code",
        ),
        (
            r"-plugin$|-cls$|processors?$|^--middleware|-adapters?$|^--tool-server|^--warmups",
            "it loads the code it names",
        ),
        (r"^--allowed|^--trust|^--allow-|^--insecure|^--cors|^--disable-fastapi", "it switches a protection off"),
        (r"-address$|-addr$|-endpoint$|-host$|-port$|-url-|-ip$|^--otlp", "it connects or listens somewhere else"),
        (r"^--device|^-dev$|^--list-devices", "the scheduler chooses the cards"),
        (r"^--props|^--slots|^--ui|^--webui|^--api-prefix|^--reuse-port|^--tags", "it changes which addresses answer"),
    )
)
"""Reasons for well-known families, by pattern over the flag with dashes; anything else is simply not on the list."""
