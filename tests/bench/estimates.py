"""Memory estimates beside figures that others published, the error stated row by row.

    python -m tests.bench.estimates [--data models.json]

`models.json` is a list of models: `name`, `config` (its `config.json`) and `published`, rows of `what`, `value`,
`unit`, `context`, `dtype` and `source`. A row that is no memory is listed with the reason why nothing is held against
it. Where a configuration leaves out what an estimate needs, `COMPLETED` has the keys of the model's own repository.
"""

import argparse
import json
import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from msgspec.structs import replace

from llmgw.core.config_facts import config_facts
from llmgw.core.fit import estimate, kv_cache_bytes
from llmgw.core.units import size
from tests.bench.stored import GGUF_TYPES, HEADER_BYTES_PER_TOKEN, gguf_bytes, stored_bytes

DATA = Path(os.environ.get("LLMGW_TEST_DATA") or Path(__file__).parents[3] / "shared" / "data")
WEIGHTS_WITHIN = 0.02
CACHE_WITHIN = 0.01
PROCESS_WITHIN = (-0.005, 0.1)
"""An estimate of all that a process takes must not be too low, and may be a little high."""
TOO_LITTLE = "its configuration says too little"
_UNITS = {"B": 1, "B/token": 1, "MB": 10**6, "GB": 10**9, "MiB": 1 << 20, "GiB": 1 << 30}
_COUNTS = {"billion": 10**9, "layers": 1}
_PLAIN_TYPES = {"bf16": "bfloat16", "fp16": "float16", "f16": "float16"}
_PARAMETERS_AT = {"fp8": 8, "int4": 4}
"""Of weights that were not published so: all parameters at that width, as a rule of thumb has it."""
_EARLY_MIXTURES = "llama.cpp PR 4406"
"""Where llama.cpp learned of mixtures: its files have a tensor for each expert."""
_CELLS = re.compile(r"(\d+) (?:cells|blocks x (\d+))")
_LOADED = re.compile(r"model ([\d.]+)")
COMPLETED: Mapping[str, Mapping[str, object]] = {
    "Phi-4": {"model_type": "phi3"},
    "Qwen3-4B": {
        "model_type": "qwen3",
        "hidden_size": 2560,
        "intermediate_size": 9728,
        "num_attention_heads": 32,
        "vocab_size": 151936,
        "tie_word_embeddings": True,
    },
    "Qwen3.5-9B": {
        "vocab_size": 248320,
        "hidden_size": 4096,
        "num_attention_heads": 16,
        "num_key_value_heads": 4,
        "head_dim": 256,
        "linear_num_key_heads": 16,
        "linear_num_value_heads": 32,
        "linear_key_head_dim": 128,
        "linear_value_head_dim": 128,
        "linear_conv_kernel_dim": 4,
    },
}


@dataclass(frozen=True, kw_only=True)
class Row:
    """One published figure and ours."""

    model: str
    what: str
    kind: str
    """`weights`, `cache`, `process`, `count`, or why it is not compared."""
    published: float
    """Bytes, or a count."""
    ours: float = 0.0

    @property
    def compared(self) -> bool:
        """Whether there is a figure of ours to hold against it."""
        return self.kind in ("weights", "cache", "process", "count")

    @property
    def error(self) -> float:
        """Ours by theirs, less one."""
        return self.ours / self.published - 1 if self.published else 0.0

    @property
    def within(self) -> bool:
        """Whether it is as near as it has to be."""
        if self.kind == "process":
            return PROCESS_WITHIN[0] <= self.error <= PROCESS_WITHIN[1]
        return abs(self.error) <= (CACHE_WITHIN if self.kind == "cache" else WEIGHTS_WITHIN)


def rows(models: Sequence[Mapping[str, object]]) -> list[Row]:
    """Every published figure of every model."""
    return [row for model in models for row in _of_model(model)]


def _of_model(model: Mapping[str, object]) -> Iterator[Row]:
    name, given, published = model.get("name"), model.get("config"), model.get("published")
    if not isinstance(name, str) or not isinstance(given, Mapping) or not isinstance(published, list):
        raise ValueError("each model has a name, a config and a list of published figures")
    config = {**COMPLETED.get(name, {}), **given}
    for row in published:
        yield _row(name, config, row)


def _row(name: str, config: Mapping[str, object], row: Mapping[str, object]) -> Row:
    what, value = str(row["what"]), row["value"]
    if not isinstance(value, int | float):
        raise ValueError(f"{name}: {what}: {value!r} is no figure")
    unit = str(row["unit"]).split(" ")[0]
    if "value is GiB" in str(row["unit"]):
        unit = "GiB"
    published = float(value * (_UNITS.get(unit) or _COUNTS.get(unit, 0)))
    kind, ours = _ours(config, row, what.lower(), unit)
    return Row(model=name, what=what, kind=kind, published=published, ours=ours)


def _ours(config: Mapping[str, object], row: Mapping[str, object], low: str, unit: str) -> tuple[str, float]:
    facts = config_facts(config, 0)
    dtype, context = str(row.get("dtype")), row.get("context")
    if unit in _COUNTS:
        return _counted(config, low, facts.parameters)
    if low.startswith("gguf"):
        return _gguf(config, low, dtype, early=_EARLY_MIXTURES in str(row.get("source")))
    if low.startswith("weights") or "weights loaded" in low:
        if dtype in _PARAMETERS_AT and "quantization_config" not in config:
            return "weights", facts.parameters * _PARAMETERS_AT[dtype] / 8
        ours = stored_bytes(config, _PLAIN_TYPES.get(dtype, facts.quantization))
        return ("weights", ours) if ours else (TOO_LITTLE, 0.0)
    tokens = context if isinstance(context, int) else 1
    if not facts.kv_bytes_per_token:
        return TOO_LITTLE, 0.0
    if "whole process" in low and (loaded := _LOADED.search(low)):
        held = replace(facts, weights_bytes=round(float(loaded[1]) * (1 << 20)))
        return "process", float(estimate(held, engine="llamacpp", context_length=tokens, slots=1).total_bytes)
    if cells := _CELLS.search(low):
        tokens = int(cells[1]) * int(cells[2] or 1)
    if "sliding-window part" in low:
        return "cache", float(tokens * facts.sliding_kv_bytes_per_token)
    if "full-attention" in low or unit == "B/token" or "per 1024" in low or "left for kv" in low:
        return "cache", float(tokens * (facts.kv_bytes_per_token - facts.sliding_kv_bytes_per_token))
    return "cache", float(kv_cache_bytes(facts, context_length=tokens, slots=1))


def _counted(config: Mapping[str, object], low: str, parameters: int) -> tuple[str, float]:
    if "total" in low and parameters:
        return "count", float(parameters)
    if "block_count" in low:
        layers, further = config.get("num_hidden_layers"), config.get("num_nextn_predict_layers", 0)
        if isinstance(layers, int) and isinstance(further, int):
            return "count", float(layers + further)
    return "no figure of memory", 0.0


def _gguf(config: Mapping[str, object], low: str, dtype: str, *, early: bool) -> tuple[str, float]:
    kind = dtype if dtype in GGUF_TYPES else dtype.upper()
    if kind not in GGUF_TYPES:
        return f"no rule for {dtype}", 0.0
    ours = gguf_bytes(config, kind, experts_apart=early)
    vocabulary = config.get("vocab_size")
    if "tensors" in low and isinstance(vocabulary, int):
        ours -= HEADER_BYTES_PER_TOKEN * vocabulary
    return ("weights", float(ours)) if ours else (TOO_LITTLE, 0.0)


def load(path: Path) -> list[Mapping[str, object]]:
    """The models of a file."""
    models: list[Mapping[str, object]] = json.loads(path.read_text())
    return models


def table(found: Sequence[Row]) -> str:
    """Markdown: what is compared, then each model's largest error, then what is not compared and why."""
    lines = ["| model | published | theirs | ours | error |", "|---|---|---|---|---|"]
    for row in found:
        if row.compared:
            figures = f"{_shown(row, row.published)} | {_shown(row, row.ours)} | {row.error:+.2%}"
            lines.append(f"| {row.model} | {row.what} | {figures}{'' if row.within else ' **beyond the bound**'} |")
    lines += ["", "| model | weights | cache | figures |", "|---|---|---|---|"]
    for name in dict.fromkeys(row.model for row in found):
        mine = [row for row in found if row.model == name and row.compared]
        lines.append(f"| {name} | {_worst(mine, 'weights')} | {_worst(mine, 'cache')} | {len(mine)} |")
    if left := [row for row in found if not row.compared]:
        lines += ["", "Not compared:", ""]
        lines += [f"- {row.model}, {row.what}: {row.kind}" for row in left]
    return "\n".join(lines)


def _shown(row: Row, value: float) -> str:
    return f"{value:,.0f}" if row.kind == "count" else size(round(value))


def _worst(found: Sequence[Row], kind: str) -> str:
    errors = [row.error for row in found if row.kind == kind]
    return f"{max(errors, key=abs):+.2%}" if errors else "–"


def main(argv: Sequence[str] | None = None) -> int:
    """Print the table; 1 when a figure is beyond its bound."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.estimates", description=__doc__.split("\n")[0])
    parser.add_argument("--data", type=Path, default=DATA / "models.json", help="the published figures")
    flags = parser.parse_args(argv)
    try:
        found = rows(load(flags.data))
    except OSError as error:
        print(f"{flags.data}: {error.strerror}; --data names a file of published figures", file=sys.stderr)
        return 2
    print(table(found))
    return 0 if all(row.within for row in found if row.compared) else 1


if __name__ == "__main__":
    sys.exit(main())
