"""A GGUF header is read exactly, and a lie in it costs neither memory nor time."""

import io
import struct
import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llmgw.core.errors import InvalidInput
from llmgw.core.gguf import MAX_HEADER_BYTES, GgufHeader, facts, read_header
from tests.support.weights import gguf, gguf_entry, gguf_string, strings, tensor, text, tiny_llama, u32, u32s

HUGE = (1 << 64) - 1


def read(data: bytes, *, sized: bool = True) -> GgufHeader:
    return read_header(io.BytesIO(data), file_bytes=len(data) if sized else None)


def test_a_small_model_is_read() -> None:
    data = tiny_llama()
    found = facts(read(data), len(data))
    assert found.architecture == "llama"
    assert found.layers == 2
    assert found.trained_context == 2048
    assert (found.attention_heads, found.kv_heads, found.embedding_length) == (4, 2, 64)
    assert found.vocabulary == 3
    assert found.parameters == 64
    assert found.quantization == "F32"
    assert found.weights_bytes == len(data)
    # 2 layers × 2 heads × (16 keys + 16 values) × 2 bytes
    assert found.kv_bytes_per_token == 256
    assert found.sliding_kv_bytes_per_token == 0


def test_version_2_is_the_same() -> None:
    assert read(gguf([text("general.architecture", "x")], version=2)).architecture == "x"


def test_heads_may_differ_by_layer_and_a_layer_may_cache_nothing() -> None:
    data = gguf(
        [
            text("general.architecture", "deci"),
            u32("deci.block_count", 4),
            u32("deci.embedding_length", 64),
            u32s("deci.attention.head_count", [4, 4, 0, 4]),
            u32s("deci.attention.head_count_kv", [2, 1, 0, 4]),
        ]
    )
    assert facts(read(data), 0).kv_bytes_per_token == 7 * 32 * 2


def test_windowed_layers_are_told_apart() -> None:
    data = gguf(
        [
            text("general.architecture", "gpt-oss"),
            u32("gpt-oss.block_count", 36),
            u32("gpt-oss.embedding_length", 2880),
            u32("gpt-oss.attention.head_count", 64),
            u32("gpt-oss.attention.head_count_kv", 8),
            u32("gpt-oss.attention.key_length", 64),
            u32("gpt-oss.attention.value_length", 64),
            u32("gpt-oss.attention.sliding_window", 128),
        ]
    )
    found = facts(read(data), 0)
    assert (found.kv_bytes_per_token, found.sliding_kv_bytes_per_token, found.sliding_window) == (73728, 36864, 128)


def test_experts_are_told_apart_by_layer_and_over_all_parts() -> None:
    def part(*tensors: bytes) -> GgufHeader:
        entries = [text("general.architecture", "qwen3moe"), u32("qwen3moe.block_count", 3)]
        return read(gguf([*entries, u32("qwen3moe.expert_count", 4)], list(tensors)), sized=False)

    first = part(
        tensor("blk.0.ffn_up.weight", (32, 4), 0, 0),
        tensor("blk.1.ffn_gate_exps.weight", (32, 8, 4), 0, 512),
        tensor("blk.1.ffn_gate_inp.weight", (32, 4), 0, 4608),
    )
    second = part(
        tensor("blk.1.ffn_down_exps.weight", (32, 8, 4), 2, 0),
        tensor("blk.1.ffn_down_exps.bias", (8, 4), 0, 1024),
        tensor("blk.2.ffn_up_shexp.weight", (32, 8), 0, 1152),
        tensor("blk.2.ffn_up_chexps.weight", (32, 8), 0, 2176),
    )
    found = facts(first, 10_000, parts=(first, second))
    assert found.experts == 4
    assert found.expert_bytes == (0, 32 * 8 * 4 * 4 + 32 * 8 * 4 * 18 // 32 + 8 * 4 * 4, 32 * 8 * 4)
    assert found.parameters == first.parameters + second.parameters
    assert facts(read(tiny_llama()), 7).expert_bytes == ()


def test_experts_of_a_type_nobody_knows_reach_to_the_next_tensor() -> None:
    entries = [text("general.architecture", "x"), u32("x.block_count", 3)]
    tensors = [
        tensor("blk.2.ffn_up_exps.weight", (64, 8), 999, 640),
        tensor("blk.1.ffn_up_exps.weight", (64, 8), 999, 0),
        tensor("blk.1.ffn_down_exps.weight", (64, 8), 40, 320),
    ]
    found = facts(read(gguf(entries, tensors, data=bytes(1000))), 0)
    assert found.expert_bytes == (0, 320 + 8 * 36, 360)
    # Without the file's size nothing is known of the last one.
    unsized = facts(read(gguf(entries, tensors, data=bytes(1000)), sized=False), 0)
    assert unsized.expert_bytes == (0, 320 + 8 * 36, 0)


def test_a_name_that_a_database_or_a_terminal_would_not_take_is_marked() -> None:
    found = facts(read(gguf([text("general.architecture", "a\0b\x1b[31m"), u32("a\0b\x1b[31m.block_count", 3)])), 0)
    assert (found.architecture, found.layers) == ("a\u2400b\u241b[31m", 3)


def test_latent_attention_keeps_one_row_a_layer() -> None:
    data = gguf(
        [
            text("general.architecture", "deepseek2"),
            u32("deepseek2.block_count", 61),
            u32("deepseek2.embedding_length", 7168),
            u32("deepseek2.attention.head_count", 128),
            u32("deepseek2.attention.head_count_kv", 1),
            u32("deepseek2.attention.kv_lora_rank", 512),
            u32("deepseek2.attention.key_length", 576),
            u32("deepseek2.attention.key_length_mla", 192),
            u32("deepseek2.rope.dimension_count", 64),
        ]
    )
    assert facts(read(data), 0).kv_bytes_per_token == 61 * 2 * 576


CORPUS = {
    "empty": b"",
    "other": b"\x7fELF" + bytes(100),
    "version 1": b"GGUF" + struct.pack("<I", 1) + bytes(64),
    "big endian": b"GGUF" + struct.pack(">I", 3) + bytes(64),
    "2**64 tensors": b"GGUF" + struct.pack("<IQQ", 3, HUGE, 0),
    "2**64 entries": b"GGUF" + struct.pack("<IQQ", 3, 0, HUGE),
    "entries that are not there": b"GGUF" + struct.pack("<IQQ", 3, 0, 60_000),
    "2**64 byte key": b"GGUF" + struct.pack("<IQQQ", 3, 0, 1, HUGE),
    "2**64 byte string": gguf([gguf_entry("k", 8, struct.pack("<Q", HUGE))]),
    "string past the end": gguf([gguf_entry("k", 8, struct.pack("<Q", 1_000_000))]),
    "2**64 items": gguf([gguf_entry("k", 9, struct.pack("<IQ", 4, HUGE))]),
    "a million items not there": gguf([gguf_entry("k", 9, struct.pack("<IQ", 4, 1_000_000))]),
    "a million strings not there": gguf([gguf_entry("k", 9, struct.pack("<IQ", 8, 1_000_000))]),
    "array of arrays": gguf([gguf_entry("k", 9, struct.pack("<IQ", 9, 1) + struct.pack("<IQ", 9, 1) * 1000)]),
    "unknown type": gguf([gguf_entry("k", 77, b"")]),
    "unknown item type": gguf([gguf_entry("k", 9, struct.pack("<IQ", 77, 1))]),
    "a key twice": gguf([u32("k", 1), u32("k", 2)]),
    "alignment 0": gguf([u32("general.alignment", 0)], [tensor("t", (1,), 0, 0)], data=bytes(64)),
    "alignment 48": gguf([u32("general.alignment", 48)], [tensor("t", (1,), 0, 0)], data=bytes(64)),
    "alignment 2**31": gguf([u32("general.alignment", 1 << 31)]),
    "a tensor past the file": gguf([], [tensor("t", (1000,), 0, 0)], data=bytes(64)),
    "an offset past the file": gguf([], [tensor("t", (1,), 0, 1 << 40)], data=bytes(64)),
    "an offset near 2**64": gguf([], [tensor("t", (8,), 0, HUGE - 31)], data=bytes(64)),
    "an odd offset": gguf([], [tensor("t", (1,), 0, 3)], data=bytes(64)),
    "a product of 2**128": gguf([], [tensor("t", (1 << 63, 1 << 63, 4), 0, 0)], data=bytes(64)),
    "a product that wraps to 0": gguf([], [tensor("t", (1 << 32, 1 << 32), 0, 0)], data=bytes(64)),
    "1000 dimensions": gguf([], [tensor("t", (1,) * 1000, 0, 0)]),
    "a torn block": gguf([], [tensor("t", (33,), 2, 0)], data=bytes(64)),
    "a name of 2**63": b"GGUF" + struct.pack("<IQQQ", 3, 1, 0, 1 << 63),
}


NEEDS_SIZE = ("a tensor past the file", "an offset past the file", "an offset near 2**64")


@pytest.mark.parametrize(("name", "sized"), [(n, s) for n in CORPUS for s in (True, False) if s or n not in NEEDS_SIZE])
def test_a_lie_is_refused_without_allocating_for_it(name: str, sized: bool) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(InvalidInput, match="GGUF"):
            read(CORPUS[name], sized=sized)
        assert tracemalloc.get_traced_memory()[1] < 4_000_000
    finally:
        tracemalloc.stop()


class _Endless:
    """A stream of zeros that counts what was taken."""

    def __init__(self, start: bytes) -> None:
        self._start = io.BytesIO(start)
        self.taken = 0

    def read(self, size: int, /) -> bytes:
        data = self._start.read(size) or bytes(size)
        self.taken += len(data)
        return data


def test_a_header_that_never_ends_is_left() -> None:
    entries = b"".join(gguf_entry(f"k{i}", 8, gguf_string(bytes(4_000_000))) for i in range(20))
    stream = _Endless(b"GGUF" + struct.pack("<IQQ", 3, 0, 60_000) + entries)
    with pytest.raises(InvalidInput, match="claims more than"):
        read_header(stream)
    assert stream.taken <= MAX_HEADER_BYTES + 2 * 1024 * 1024


def test_kept_arrays_are_bounded_together() -> None:
    items = struct.pack("<IQ", 0, 4096) + bytes(4096)
    data = gguf([gguf_entry(f"k{i}", 9, items) for i in range(200)])
    header = read(data)
    assert len(header.array_lengths) == 200
    assert sum(len(value) for value in header.metadata.values() if isinstance(value, tuple)) <= 65_536


def test_a_long_vocabulary_is_counted_and_not_kept() -> None:
    header = read(gguf([strings("tokenizer.ggml.tokens", ["word"] * 50_000)]))
    assert header.array_lengths["tokenizer.ggml.tokens"] == 50_000
    assert header.metadata == {}


@settings(max_examples=300, deadline=None)
@given(data=st.data())
def test_a_damaged_file_is_read_or_refused(data: st.DataObject) -> None:
    good = bytearray(tiny_llama())
    for _ in range(data.draw(st.integers(1, 6))):
        good[data.draw(st.integers(0, len(good) - 1))] = data.draw(st.integers(0, 255))
    damaged = bytes(good[: data.draw(st.integers(0, len(good)))])
    try:
        found = facts(read(damaged), len(damaged))
    except InvalidInput:
        return
    assert found.kv_bytes_per_token >= 0
    assert found.parameters >= 0


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=200))
def test_noise_after_the_magic_is_read_or_refused(noise: bytes) -> None:
    for start in (b"GGUF\3\0\0\0", b"GGUF" + struct.pack("<IQQ", 3, 1, 1)):
        try:
            read(start + noise)
        except InvalidInput:
            pass


def described(architecture: str, **figures: int | list[int]) -> bytes:
    """A header of six layers of 512, eight heads and two of keys and values; `__` in a name stands for a dot."""
    plain: dict[str, int | list[int]] = {
        "block_count": 6,
        "embedding_length": 512,
        "attention.head_count": 8,
        "attention.head_count_kv": 2,
    }
    named = plain | {name.replace("__", "."): figure for name, figure in figures.items()}
    entries = [text("general.architecture", architecture)]
    for name, figure in named.items():
        key = f"{architecture}.{name}"
        entries.append(u32s(key, figure) if isinstance(figure, list) else u32(key, figure))
    return gguf(entries)


A_LAYER = 2 * 2 * 2 * 64


@pytest.mark.parametrize(
    ("data", "kv_bytes", "windowed", "state"),
    [
        (described("glm4moe", nextn_predict_layers=1), 5 * A_LAYER, 0, 0),
        (described("gemma3", attention__sliding_window=64), 6 * A_LAYER, 5 * A_LAYER, 0),
        (described("llama4"), 6 * A_LAYER, 5 * A_LAYER, 0),
        (
            described("any", attention__sliding_window=64, attention__sliding_window_pattern=[1, 0, 1, 0, 1, 0]),
            6 * A_LAYER,
            3 * A_LAYER,
            0,
        ),
        (described("any", attention__sliding_window=64), 6 * A_LAYER, 0, 0),
        (described("any", attention__shared_kv_layers=2), 4 * A_LAYER, 0, 0),
        (
            described(
                "qwen3next",
                full_attention_interval=3,
                ssm__inner_size=64,
                ssm__state_size=8,
                ssm__conv_kernel=4,
                ssm__group_count=2,
            ),
            2 * A_LAYER,
            0,
            4 * 4 * (64 * 8 + 3 * (64 + 2 * 2 * 8)),
        ),
        (
            described(
                "jamba",
                attention__head_count_kv=[0, 2, 0, 0, 2, 0],
                ssm__inner_size=64,
                ssm__state_size=8,
                ssm__conv_kernel=4,
            ),
            2 * A_LAYER,
            0,
            4 * 4 * (64 * 8 + 3 * 64),
        ),
        (
            described(
                "nemotron_h",
                attention__head_count_kv=[0, 0, 2, 0, 0, 2],
                feed_forward_length=[0, 64, 0, 0, 64, 0],
                ssm__inner_size=64,
                ssm__state_size=8,
            ),
            2 * A_LAYER,
            0,
            2 * 4 * 64 * 8,
        ),
        (described("falcon-h1", ssm__inner_size=64, ssm__state_size=8), 6 * A_LAYER, 0, 6 * 4 * 64 * 8),
        (
            described("lfm2", attention__head_count_kv=[0, 2, 0, 2, 0, 2], shortconv__l_cache=3),
            3 * A_LAYER,
            0,
            3 * 4 * 1024,
        ),
        (
            described("rwkv7", attention__head_count=0, wkv__head_size=64, token_shift_count=2),
            0,
            0,
            6 * 4 * 512 * (64 + 2),
        ),
        (
            described(
                "kimi-linear",
                attention__head_count_kv=[0, 0, 1, 0, 0, 1],
                attention__kv_lora_rank=512,
                attention__key_length_mla=192,
                rope__dimension_count=64,
                kda__head_dim=128,
                ssm__conv_kernel=4,
            ),
            2 * 2 * 576,
            0,
            4 * 4 * (8 * 128 * 128 + 3 * 3 * 8 * 128),
        ),
    ],
    ids=[
        "layers that predict further",
        "a rule",
        "chunks",
        "marks",
        "no rule",
        "shared",
        "linear",
        "mamba",
        "feeds apart",
        "beside",
        "convolutions",
        "no attention at all",
        "linear beside latent",
    ],
)
def test_what_layers_keep_follows_the_header_and_llama_cpps_rules(
    data: bytes, kv_bytes: int, windowed: int, state: int
) -> None:
    found = facts(read(data), 0)
    assert (found.kv_bytes_per_token, found.sliding_kv_bytes_per_token, found.state_bytes) == (
        kv_bytes,
        windowed,
        state,
    )
