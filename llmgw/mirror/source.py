"""What every kind of source does for the mirror. A manifest decides what is fetched; nothing is resolved twice."""

import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from llmgw.core.errors import InvalidInput
from llmgw.core.weights import Manifest, SetFile, refused_magic, refused_name, split_parts
from llmgw.transfer.download import Policy, Report
from llmgw.transfer.http import Timeouts
from llmgw.transfer.limit import Limit

HUB = "https://huggingface.co"
SINGLE_FILE_SUFFIXES = (".gguf", ".safetensors")
"""Names of weights that come as one file."""
REPOSITORY_FILES = frozenset(
    {
        "config.json",
        "generation_config.json",
        "tokenizer.json",
        "tokenizer_config.json",
        "tokenizer.model",
        "tekken.json",
        "vocab.json",
        "vocab.txt",
        "merges.txt",
        "special_tokens_map.json",
        "added_tokens.json",
        "chat_template.jinja",
        "chat_template.json",
        "preprocessor_config.json",
        "processor_config.json",
        "video_preprocessor_config.json",
        "model.safetensors.index.json",
        "quantize_config.json",
        "hf_quant_config.json",
    }
)
"""Files an engine may read beside the weights: data only."""
MAX_CONFIG_BYTES = 16 * 1024 * 1024
_SPLIT_TENSORS = re.compile(r"(.+)-(\d{5,6})-of-(\d{5,6})\.safetensors")
"""Parts are numbered from 1, and by some tools from 0."""
MAX_PARTS = 1000
"""Looked for, whatever number a name claims."""


@dataclass(frozen=True, kw_only=True)
class MirrorConfig:
    """What an operator may set of a mirror."""

    hf_endpoint: str = HUB
    """Base address of the Hugging Face hub, or of one that speaks its API."""
    hf_token_file: Path | None = None
    """File with a hub token; read anew for every fetch, never logged, never sent to another host."""
    allow_pickle: bool = False
    """Serve pickles, code and configurations that name code. They run on the nodes."""
    wheelhouse: Path | None = None
    """Directory of this machine below which wheels are served, for nodes without a package index."""
    pip: tuple[str, ...] = (sys.executable, "-m", "pip")
    """How `pypi:` sources ask the configured package index."""
    policy: Policy = field(default_factory=Policy)
    """Its limit is how fast sets come from outside, all together."""
    serving: Limit = field(default_factory=Limit)
    """How fast nodes take files, all together."""
    timeouts: Timeouts = field(default_factory=Timeouts)


class WeightsSource(Protocol):
    """One kind of source. Calls on it, in order, for one set:

    1. `resolve` once: what the set is made of, pinned. The mirror writes it down, and a restarted one goes on from it.
    2. `fetch` for every file that is not there, several at once, again after a failure. It leaves the whole file at
       `target` and nothing else under that name.
    """

    async def resolve(self, set_id: str) -> Manifest:
        """The manifest, sizes and checksums as far as they are published; raises LlmgwError."""
        ...

    async def fetch(self, manifest: Manifest, file: SetFile, target: Path, report: Report) -> SetFile:
        """Bring one file to `target`; gives it back with size and checksum. Raises LlmgwError."""
        ...


def check_name(name: str, config: MirrorConfig) -> None:
    """Refuse pickles and code by name; raises InvalidInput."""
    if not config.allow_pickle and (why := refused_name(name)):
        raise InvalidInput(why, field="source")


def check_local_name(name: str, config: MirrorConfig) -> None:
    """Refuse a file of the mirror's own machine that is not weights by name; raises InvalidInput.

    A node reads what the mirror serves, and whoever may add a model names the path: the cluster's own keys lie on this
    machine too. With the content check behind it (`head_check`) only weights can be named.
    """
    check_name(name, config)
    if not name.lower().endswith(SINGLE_FILE_SUFFIXES) and not (config.allow_pickle and refused_name(name)):
        raise InvalidInput(
            f"{name} is not weights by its name: it ends with {' or '.join(SINGLE_FILE_SUFFIXES)}, "
            "or give a directory that holds them",
            field="source",
        )


def head_check(name: str, config: MirrorConfig) -> Callable[[bytes], str | None]:
    """A check of a file's first bytes under these settings."""

    def check(head: bytes) -> str | None:
        return None if config.allow_pickle else refused_magic(name, head)

    return check


def select_repository(names: list[str]) -> tuple[list[str], str]:
    """Files an engine needs out of a repository's or directory's, and the main file; raises InvalidInput.

    Safetensors with configuration and tokenizer, or else the one GGUF. The main file is empty for a directory.
    """
    top = [name for name in names if "/" not in name]
    tensors = [name for name in top if name.endswith(".safetensors")]
    if any(not name.startswith("consolidated") for name in tensors):
        # Some repositories carry the same weights a second time in their author's own layout.
        tensors = [name for name in tensors if not name.startswith("consolidated")]
    if tensors:
        if "config.json" not in top:
            raise InvalidInput("it has safetensors and no config.json, which engines need", field="source")
        if absent := _missing_part(tensors):
            raise InvalidInput(f"{absent} is missing, one of the parts of its weights", field="source")
        return sorted([*tensors, *(name for name in top if name in REPOSITORY_FILES)]), ""
    ggufs = sorted(name for name in names if name.endswith(".gguf"))
    first = [name for name in ggufs if "-of-" not in name or "-00001-of-" in name]
    if len(first) == 1:
        parts = split_parts(first[0])
        if missing := [name for name in parts if name not in ggufs]:
            raise InvalidInput(f"{missing[0]} of the split {first[0]} is missing", field="source")
        return list(parts), first[0]
    if first:
        raise InvalidInput(f"it has {len(first)} GGUF files; name one of them: {', '.join(first[:20])}", field="source")
    pickles = [name for name in names if refused_name(name)]
    if pickles:
        raise InvalidInput(f"it has no safetensors and no GGUF; {refused_name(pickles[0])}", field="source")
    raise InvalidInput("it has no safetensors and no GGUF", field="source")


def _missing_part(names: Sequence[str]) -> str:
    """The first part of split safetensors that is not among `names`; empty when all are there."""
    here: dict[tuple[str, str], list[str]] = {}
    for name in names:
        if match := _SPLIT_TENSORS.fullmatch(name):
            here.setdefault((match[1], match[3]), []).append(match[2])
    for (stem, count), numbers in here.items():
        first = 0 if min(map(int, numbers)) == 0 else 1
        for number in range(first, first + min(int(count), MAX_PARTS)):
            wanted = f"{number:0{len(numbers[0])}d}"
            if wanted not in numbers:
                return f"{stem}-{wanted}-of-{count}.safetensors"
    return ""
