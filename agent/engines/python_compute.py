"""Where vLLM and SGLang say they compute: both name a kind of device, and neither counts layers."""

import re
from collections.abc import Iterable

from agent.engines.compute import ComputeWords, devices_of, shown
from llmgw.core.compute import Compute

GIB = 1024**3
"""What both mean where they write GB or GiB."""
_VLLM_KIND = re.compile(r"(?P<said>(?:Automatically detected platform |\bdevice_config=)(?P<kind>[a-z]{1,20}))\b")
_VLLM_BYTES = re.compile(r"(?:Model loading|Loading model weights) took ([0-9]{1,6}(?:\.[0-9]{1,6})?) Gi?B\b")
_SGLANG_KIND = re.compile(r"(?P<said>\bdevice=['\"]?(?P<kind>[a-z]{1,20})\b['\"]?)")
_SGLANG_ARGUMENTS = "server_args=ServerArgs("
_SGLANG_BYTES = re.compile(r"\bLoad weight end\b.{0,400}?\bmem usage=([0-9]{1,6}(?:\.[0-9]{1,6})?) ?GB\b")
_NO_KIND = frozenset({"unspecified", "auto", "none"})


def _read(
    lines: Iterable[str], kind_words: re.Pattern[str], bytes_words: re.Pattern[str], *, after: str = ""
) -> Compute | None:
    """The kind of device that is named `after` these words, and what was loaded on each."""
    kind, said_in, most = "", "", 0
    for line in lines:
        if (start := line.find(after)) >= 0 and (match := kind_words.search(line, start)):
            # No more of the line is told: it may be the whole configuration, keys included.
            if match["kind"] not in _NO_KIND:
                kind, said_in = match["kind"], match["said"]
        elif match := bytes_words.search(line):
            # Each of its processes says so of its own card.
            most = max(most, int(float(match[1]) * GIB))
    if not kind:
        return None
    devices = devices_of([(kind, most or None)])
    return Compute(cpu_only=kind == "cpu", devices=devices, line=shown(said_in))


def _vllm(lines: Iterable[str]) -> Compute | None:
    return _read(lines, _VLLM_KIND, _VLLM_BYTES)


def _sglang(lines: Iterable[str]) -> Compute | None:
    return _read(lines, _SGLANG_KIND, _SGLANG_BYTES, after=_SGLANG_ARGUMENTS)


VLLM = ComputeWords(said=_vllm)
SGLANG = ComputeWords(said=_sglang)
