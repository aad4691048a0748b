"""The rule llama.cpp is given keeps in memory the very tensors that are counted there."""

import io
import re

import pytest

from agent.engines.llamacpp_launcher import experts_in_memory, parser
from llmgw.core.gguf import facts, read_header
from tests.support.weights import gguf, tensor, text, u32

NAMES = tuple(
    f"blk.{layer}.{name}"
    for layer in range(12)
    for name in (
        "ffn_gate_exps.weight",
        "ffn_up_exps.weight",
        "ffn_down_exps.weight",
        "ffn_gate_up_exps.weight",
        "ffn_down_chexps.weight",
        "ffn_down_exps.bias",
        "ffn_gate_inp.weight",
        "ffn_up_shexp.weight",
        "ffn_up.weight",
        "attn_q.weight",
    )
)


def counted(layers: int) -> int:
    """Bytes of the experts of the first layers, by the file's own table."""
    entries = [text("general.architecture", "moe"), u32("moe.block_count", 12), u32("moe.expert_count", 8)]
    data = gguf(entries, [tensor(name, (8,), 0, 32 * i) for i, name in enumerate(NAMES)])
    return sum(facts(read_header(io.BytesIO(data)), len(data)).expert_bytes[:layers])


@pytest.mark.parametrize("layers", [1, 2, 11, 12])
def test_the_first_layers_and_no_others(layers: int) -> None:
    rule, _, place = experts_in_memory(layers).partition("=")
    kept = [name for name in NAMES if re.search(rule, name)]
    assert place == "CPU"
    assert {int(name.split(".")[1]) for name in kept} == set(range(layers))
    assert 32 * len(kept) == counted(layers)


def test_all_layers() -> None:
    rule = experts_in_memory(None).partition("=")[0]
    assert 32 * sum(1 for name in NAMES if re.search(rule, name)) == counted(12)


def test_a_count_beyond_all_models_makes_no_endless_rule() -> None:
    assert len(experts_in_memory(999_999_999)) < 30_000
    flags = parser().parse_args(["--model", "m.gguf", "-ncmoe", "3"])
    assert (flags.n_cpu_moe, flags.cpu_moe) == (3, False)
