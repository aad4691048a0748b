"""Which flags and variables a profile may give an engine. What is not known to be harmless is refused, with a reason.

Flags are an allow-list with typed values, so no accepted value can name a file, an address or a plug-in. The control
plane asks when a model is written and the agent asks again before it starts an engine: same rules, same sentences.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from llmgw.core.engine_flags import ALLOWED, REFUSED, SETS_ITSELF
from llmgw.core.errors import InvalidInput
from llmgw.core.flag_kinds import Flag

MAX_ARGS = 64
MAX_VALUE_LENGTH = 4096
_WHOLE_NAMES = frozenset({"trtllm"})
"""Engines whose parsers complete no name that is only begun."""

_FAMILIES = (
    "CUDA NCCL NVIDIA NVTE GLOO UCX TORCH PYTORCH VLLM SGLANG GGML LLAMA OMP MKL OPENBLAS KMP HF TRANSFORMERS "
    "TOKENIZERS TRITON FLASHINFER TRTLLM TLLM FREETOKEN"
)
ENV_FAMILIES = tuple(f"{name}_" for name in _FAMILIES.split())
"""Beginnings of variable names that a profile may set."""

ENV_NAMES = frozenset({"PYTHONUNBUFFERED", "PYTHONHASHSEED", "TZ"})
"""Single variables a profile may set besides."""

_ENV_NAME = re.compile(r"[A-Z][A-Z0-9_]{0,127}")
_TZ_VALUE = re.compile(r"[A-Za-z][A-Za-z0-9_+-]*(/[A-Za-z0-9_+-]+){0,2}")

_WORDS_BY_REASON = {
    "it names a file or a directory": (
        "MMPROJ PATH PATHS DIR DIRS DIRECTORY FILE FILES FOLDER HOME ROOT CACHE OUT OUTPUT DUMP TRACE CONFIG CONF"
    ),
    "it names code to load": "PLUGIN PLUGINS LIB LIBS LIBRARY LIBRARIES PRELOAD MODULES EXTENSIONS BACKENDS TUNER",
    "it names an address": (
        "ADDR ADDRS ADDRESS HOST HOSTS HOSTNAME IP PORT PORTS URL URI ENDPOINT PROXY SERVER SOCKADDR COMM"
    ),
    "it is a credential; the agent hands out keys itself": "KEY KEYS TOKEN SECRET PASSWORD",
    "it switches a protection off": "INSECURE PICKLE",
    "it fetches; weights come by source": "MODELSCOPE",
}
_REFUSED_WORDS = {word: reason for reason, words in _WORDS_BY_REASON.items() for word in words.split()}
_REFUSED_STARTS = {"LIB": "it names code to load", "INJECTION": "it names code to load"}
_REFUSED_ENDS = {"PATH": "it names a file or a directory", "FILE": "it names a file or a directory"}
_REFUSED_NAMES: Mapping[str, str] = {
    "CUDA_VISIBLE_DEVICES": "the scheduler chooses the cards",
    "NVIDIA_VISIBLE_DEVICES": "the scheduler chooses the cards",
    "CUDA_DEVICE_ORDER": "the scheduler chooses the cards",
    "TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD": "it switches a protection off",
    "VLLM_ALLOW_RUNTIME_LORA_UPDATING": "it switches a protection off",
}
_OFFLINE = frozenset(
    {"HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE", "TRANSFORMERS_OFFLINE", "VLLM_NO_USAGE_STATS", "TRTLLM_NO_USAGE_STATS"}
)
"""Variables with which an engine calls nobody: none may be taken back."""


def check_env(env: Mapping[str, str], *, field: str = "env") -> None:
    """Raise InvalidInput for the first variable that a profile may not set."""
    if len(env) > MAX_ARGS:
        raise InvalidInput(f"{len(env)} variables are more than {MAX_ARGS}", field=field)
    for name, value in env.items():
        reason = _why_not_variable(name, value)
        if reason:
            raise InvalidInput(f"variable {_shown(name)} is refused: {reason}", field=field)


def check_args(engine: str, args: Sequence[str], *, field: str = "args") -> tuple[str, ...]:
    """The flags in one spelling (`--x=v` becomes `--x`, `v`); raises InvalidInput for the first that is refused.

    An engine without rules here takes no flags at all.
    """
    if len(args) > MAX_ARGS:
        raise InvalidInput(f"{len(args)} arguments are more than {MAX_ARGS}", field=field)
    flags = ALLOWED.get(engine, {})
    out: list[str] = []
    rest = list(args)
    while rest:
        word = rest.pop(0)
        name, equals, value = word.partition("=")
        flag = _flag(engine, flags, word, name, field)
        if flag.takes_value:
            if not equals:
                if not rest:
                    raise InvalidInput(f"{name} needs a value: {flag.describe()}", field=field)
                value = rest.pop(0)
            _check_value(name, flag, value, field)
            out += [flag.name, value]
        elif equals:
            raise InvalidInput(f"{name} takes no value", field=field)
        else:
            out.append(flag.name)
    return tuple(out)


def given(args: Sequence[str], flag: str) -> bool:
    """Whether checked arguments set `flag` (its long name)."""
    return flag in args


@dataclass(frozen=True)
class _Spelling:
    pattern: re.Pattern[str]
    reason: str


_BAD_SPELLINGS = (
    _Spelling(re.compile(r"@.*"), "a file with arguments is not read; write the flags themselves"),
    _Spelling(re.compile(r"--?"), "write each flag by its name"),
    _Spelling(re.compile(r"[^-].*"), "it is not a flag; flags begin with a dash"),
)


def _flag(engine: str, flags: Mapping[str, Flag], word: str, name: str, field: str) -> Flag:
    if not word.isascii() or not word.isprintable():
        raise InvalidInput(f"argument {_shown(word)} has a character outside printable ASCII", field=field)
    for spelling in _BAD_SPELLINGS:
        if spelling.pattern.fullmatch(word):
            raise InvalidInput(f"argument {_shown(word)} is refused: {spelling.reason}", field=field)
    found = flags.get(name)
    if found is None:
        raise InvalidInput(
            f"flag {_shown(name)} is refused for {engine}: {_why_not_flag(engine, flags, name)}", field=field
        )
    return found


def _why_not_flag(engine: str, flags: Mapping[str, Flag], name: str) -> str:
    """The most telling reason: what we set ourselves, what reads or listens, else the list of what may be given."""
    plain = name.replace("_", "-")
    own = SETS_ITSELF.get(engine, {}).get(plain)
    if own:
        return own
    for pattern, reason in REFUSED:
        if pattern.search(plain):
            return reason
    if meant := _abbreviated(engine, plain):
        return meant
    if not flags:
        return f"engine {engine!r} takes no flags"
    return f"it is not one of the flags that may be given: {', '.join(sorted({f.name for f in flags.values()}))}"


def _abbreviated(engine: str, name: str) -> str:
    """The reason for the flag that engines which complete what is begun would read; empty where they read none."""
    refused = {} if engine in _WHOLE_NAMES else SETS_ITSELF.get(engine, {})
    begun = [flag for flag in refused if name.startswith("--") and len(name) > 2 and flag.startswith(name)]
    return f"it may be read as {begun[0]}: {refused[begun[0]]}" if begun else ""


def _check_value(name: str, flag: Flag, value: str, field: str) -> None:
    if len(value) > MAX_VALUE_LENGTH or not flag.pattern.fullmatch(value):
        raise InvalidInput(f"{name} {_shown(value)}: expected {flag.describe()}", field=field)


def _why_not_variable(name: str, value: str) -> str:
    if not _ENV_NAME.fullmatch(name):
        return "a name is capital letters, digits and _"
    if len(value) > MAX_VALUE_LENGTH or not value.isprintable():
        return f"its value is longer than {MAX_VALUE_LENGTH} characters or has control characters"
    if name == "TZ":
        return "" if _TZ_VALUE.fullmatch(value) else "its value is no time zone such as Europe/Berlin"
    if name in _REFUSED_NAMES:
        return _REFUSED_NAMES[name]
    if name in _OFFLINE and value != "1":
        return "an engine calls nobody, and weights come by source: it may only be 1"
    if name.startswith(("LLAMA_ARG_", "LLAMA_API_")):
        return "write it as a flag in args"
    if name not in ENV_NAMES and not name.startswith(ENV_FAMILIES):
        return f"only {', '.join(f'{f}*' for f in ENV_FAMILIES)} and {', '.join(sorted(ENV_NAMES))} may be set"
    if "/" in value:
        return "its value looks like a path or an address"
    return _why_not_words(name.split("_"))


def _why_not_words(words: Sequence[str]) -> str:
    for word in words:
        bare = word.rstrip("0123456789")
        if bare in _REFUSED_WORDS:
            return _REFUSED_WORDS[bare]
        for start, reason in _REFUSED_STARTS.items():
            if word.startswith(start):
                return reason
        for end, reason in _REFUSED_ENDS.items():
            if bare.endswith(end):
                return reason
    return ""


def _shown(text: str) -> str:
    return ascii(text if len(text) <= 80 else text[:80] + "…")
