"""What of a configuration's layers every card takes an even part of, besides heads: widths, in blocks where weights are
quantized so, since no block is on two cards.
"""

from collections.abc import Iterator, Mapping, Sequence

from llmgw.core.config_keys import number, text_config
from llmgw.core.dividing import EXPERT_COLUMNS
from llmgw.core.parameters import Part, weights

_DOWN = {Part.DOWN: "columns of its feed-forward layers", Part.EXPERTS_DOWN: EXPERT_COLUMNS}
"""By the matrix that is cut along its rows: what its rows are."""
_HEADS = {
    "linear_num_key_heads": "key heads of its linear attention",
    "linear_num_value_heads": "value heads of its linear attention",
    "mamba_n_heads": "heads of its recurrent layers",
    "mamba_num_heads": "heads of its recurrent layers",
}
_PADDED = "mxfp4"
"""A format whose experts engines pad, so that any number of cards will do."""


def even_parts(config: Mapping[str, object], quantization: str) -> dict[str, int]:
    """Name with its figure → count that the number of cards has to divide; empty where nothing is known."""
    text = text_config(config)
    block = _block(config, text)
    found: dict[str, int] = {}
    for part, width in dict.fromkeys((weight.part, weight.columns) for weight in weights(config)):
        if part not in _DOWN or not width or (part is Part.EXPERTS_DOWN and quantization == _PADDED):
            continue
        if block > 1 and width % block == 0:
            found[f"{width // block:,} blocks of {block} {_DOWN[part]}"] = width // block
        else:
            found[f"{width:,} {_DOWN[part]}"] = width
    for key, name in _HEADS.items():
        if count := number(text, key):
            found[f"{count} {name}"] = count
    return found


def _block(config: Mapping[str, object], text: Mapping[str, object]) -> int:
    """Columns that share a scale; 1 where each weight stands alone, or nothing is said."""
    quantized = config.get("quantization_config") or text.get("quantization_config")
    if not isinstance(quantized, Mapping):
        return 1
    return max(_sizes(quantized), default=1)


def _sizes(quantized: Mapping[str, object]) -> Iterator[int]:
    """Sizes of blocks, under the keys of the tools that make them."""
    blocks = quantized.get("weight_block_size")
    if isinstance(blocks, Sequence) and not isinstance(blocks, str | bytes):
        yield from (size for size in blocks if isinstance(size, int) and not isinstance(size, bool) and size > 0)
    yield number(quantized, "group_size", "q_group_size") or 1
    groups = quantized.get("config_groups")
    for group in groups.values() if isinstance(groups, Mapping) else ():
        if isinstance(group, Mapping) and isinstance(stored := group.get("weights"), Mapping):
            yield number(stored, "group_size") or 1
