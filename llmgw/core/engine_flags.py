"""The tables behind `engine_rules`: flags a profile may give each engine, and why others are refused.

A flag's long name comes first; its other spellings map to the same entry, and engines are given the long name only.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Flag:
    """One flag an engine may be given."""

    name: str
    """Long spelling, which the engine is given."""
    pattern: re.Pattern[str]
    """What a value must match whole; empty pattern for a switch."""
    kind: str
    """The value in words; empty for a switch."""

    @property
    def takes_value(self) -> bool:
        """Whether a value follows the name."""
        return bool(self.kind)

    def describe(self) -> str:
        """What the value must be, in words."""
        return self.kind


_INT = (re.compile(r"-?[0-9]{1,9}"), "a whole number")
_FLOAT = (re.compile(r"-?[0-9]{1,12}(\.[0-9]{1,12})?"), "a number")
_FLOATS = (re.compile(r"[0-9]{1,6}(\.[0-9]{1,6})?([,/][0-9]{1,6}(\.[0-9]{1,6})?){0,63}"), "numbers with commas between")
_FAULTS = (re.compile(r"[a-z0-9.:,-]{1,200}"), "faults such as hang or drop:3,no-usage")


def _choice(*values: str) -> tuple[re.Pattern[str], str]:
    return re.compile("|".join(map(re.escape, values))), "one of " + ", ".join(values)


def _table(**kinds: tuple[tuple[re.Pattern[str], str] | None, str]) -> Mapping[str, Flag]:
    """From groups of `kind, "--long,-short --other,…"` to a table by every spelling."""
    table: dict[str, Flag] = {}
    for kind, text in kinds.values():
        for spellings in text.split():
            names = spellings.split(",")
            pattern, words = kind or (re.compile(""), "")
            flag = Flag(name=names[0], pattern=pattern, kind=words)
            table |= dict.fromkeys(names, flag)
    return table


_KV_TYPES = _choice("f32", "f16", "bf16", "q8_0", "q4_0", "q4_1", "iq4_nl", "q5_0", "q5_1")

LLAMACPP = _table(
    whole=(
        _INT,
        "--threads,-t --threads-batch,-tb --threads-http --batch-size,-b --ubatch-size,-ub "
        "--n-gpu-layers,-ngl,--gpu-layers --main-gpu,-mg --predict,-n,--n-predict --keep --cache-ram,-cram "
        "--cache-reuse --seed,-s --top-k --repeat-last-n --yarn-orig-ctx --timeout,-to",
    ),
    number=(
        _FLOAT,
        "--temp --top-p --min-p --repeat-penalty --presence-penalty --frequency-penalty --rope-freq-base "
        "--rope-freq-scale --yarn-ext-factor --yarn-attn-factor --yarn-beta-slow --yarn-beta-fast "
        "--slot-prompt-similarity,-sps",
    ),
    numbers=(_FLOATS, "--tensor-split,-ts"),
    kv=(_KV_TYPES, "--cache-type-k,-ctk --cache-type-v,-ctv"),
    attention=(_choice("on", "off", "auto"), "--flash-attn,-fa"),
    split=(_choice("none", "layer", "row"), "--split-mode,-sm"),
    pooling=(_choice("none", "mean", "cls", "last", "rank"), "--pooling"),
    rope=(_choice("none", "linear", "yarn"), "--rope-scaling"),
    reasoning=(_choice("none", "auto", "deepseek", "deepseek-legacy"), "--reasoning-format"),
    numa=(_choice("distribute", "isolate", "numactl"), "--numa"),
    switch=(
        None,
        "--embedding,--embeddings --reranking,--rerank --mlock --no-mmap --no-kv-offload,-nkvo --swa-full "
        "--kv-unified,-kvu --jinja --no-jinja --no-warmup --context-shift --no-context-shift --check-tensors "
        "--no-op-offload --cont-batching,-cb --no-cont-batching,-nocb",
    ),
)

SIM = _table(
    number=(_FLOAT, "--rate --prefill-ms --prefill-per-token-us --jitter --start-delay --exit-after --keep-alive"),
    whole=(_INT, "--queue --seed --chunk --answer-tokens --loading-code"),
    faults=(_FAULTS, "--fault"),
    switch=(None, "--crash-on-start --ignore-term"),
)

ALLOWED: Mapping[str, Mapping[str, Flag]] = {"llamacpp": LLAMACPP, "sim": SIM}
"""By engine: every spelling of every flag a profile may give."""


def _own(**reasons: str) -> Mapping[str, str]:
    return {flag: reason for names, reason in reasons.items() for flag in _OWN_FLAGS[names].split()}


_OWN_FLAGS = {
    "context": "--ctx-size -c",
    "slots": "--parallel -np --slots",
    "name": "--alias -a --model-name",
    "model": "--model -m",
    "listen": "--host --port",
    "key": "--api-key --api-key-file",
    "metrics": "--metrics",
}
_OWN = _own(
    context="set context_length instead",
    slots="set the profile's slots instead",
    name="the model's name and aliases are set from the catalog",
    model="the model is the catalog entry's source",
    listen="the agent chooses where the engine listens",
    key="the agent hands each engine its own key",
    metrics="metrics are always on",
)
SETS_ITSELF: Mapping[str, Mapping[str, str]] = {"llamacpp": _OWN, "sim": _OWN}
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
        (r"-file$|-path$|-dir$|^--path|^--log|^-f$|^-bf$|^--media|^--slot-save|^--lookup", "it reads or writes files"),
        (
            r"^--chat-template|^--tools|^--mcp|^--grammar|^-j$|^--json-schema|^--override",
            "it can load or run what it names",
        ),
        (r"^--allowed|^--trust", "it switches a protection off"),
        (r"^--device|^-dev$|^--list-devices", "the scheduler chooses the cards"),
        (r"^--props|^--slots|^--ui|^--webui|^--api-prefix|^--reuse-port|^--tags", "it changes which addresses answer"),
    )
)
"""Reasons for well-known families, by pattern over the flag with dashes; anything else is simply not on the list."""
