"""A mixture of experts small enough to be made in a test. llama.cpp loads it and answers: nonsense, but tokens."""

import random
import struct
from pathlib import Path

from tests.support.weights import gguf, gguf_entry, strings, tensor, text, u32

LAYERS, WIDTH, HEADS, INNER, EXPERTS = 2, 64, 4, 64, 4
SPECIAL = ("<unk>", "<s>", "</s>")
F32 = 0
ALIGNMENT = 32
_NORMAL, _UNKNOWN, _CONTROL, _BYTE = 1, 2, 3, 6


def tiny_mixture(path: Path) -> Path:
    """Write the model: every byte is a token, weights are random and always the same."""
    described, data = _tensors()
    path.write_bytes(gguf(_metadata(), described, data=data))
    return path


def _metadata() -> list[bytes]:
    tokens = [*SPECIAL, *(f"<0x{i:02X}>" for i in range(256)), "\u2581"]
    kinds = [_UNKNOWN, _CONTROL, _CONTROL, *([_BYTE] * 256), _NORMAL]
    scores = [0.0] * len(tokens)
    return [
        text("general.architecture", "llama"),
        u32("llama.block_count", LAYERS),
        u32("llama.context_length", 512),
        u32("llama.embedding_length", WIDTH),
        u32("llama.feed_forward_length", INNER),
        u32("llama.attention.head_count", HEADS),
        u32("llama.attention.head_count_kv", HEADS),
        u32("llama.expert_count", EXPERTS),
        u32("llama.expert_used_count", 2),
        gguf_entry("llama.attention.layer_norm_rms_epsilon", 6, struct.pack("<f", 1e-5)),
        text("tokenizer.ggml.model", "llama"),
        strings("tokenizer.ggml.tokens", tokens),
        gguf_entry("tokenizer.ggml.scores", 9, struct.pack(f"<IQ{len(scores)}f", 6, len(scores), *scores)),
        gguf_entry("tokenizer.ggml.token_type", 9, struct.pack(f"<IQ{len(kinds)}i", 5, len(kinds), *kinds)),
        u32("tokenizer.ggml.bos_token_id", 1),
        u32("tokenizer.ggml.eos_token_id", 2),
        u32("tokenizer.ggml.unknown_token_id", 0),
    ]


def _shapes() -> list[tuple[str, tuple[int, ...]]]:
    vocabulary = len(SPECIAL) + 257
    shapes: list[tuple[str, tuple[int, ...]]] = [
        ("token_embd.weight", (WIDTH, vocabulary)),
        ("output_norm.weight", (WIDTH,)),
        ("output.weight", (WIDTH, vocabulary)),
    ]
    for layer in range(LAYERS):
        block = f"blk.{layer}"
        shapes += [(f"{block}.{name}.weight", (WIDTH,)) for name in ("attn_norm", "ffn_norm")]
        shapes += [(f"{block}.attn_{name}.weight", (WIDTH, WIDTH)) for name in ("q", "k", "v", "output")]
        shapes += [
            (f"{block}.ffn_gate_inp.weight", (WIDTH, EXPERTS)),
            (f"{block}.ffn_gate_exps.weight", (WIDTH, INNER, EXPERTS)),
            (f"{block}.ffn_up_exps.weight", (WIDTH, INNER, EXPERTS)),
            (f"{block}.ffn_down_exps.weight", (INNER, WIDTH, EXPERTS)),
        ]
    return shapes


def _tensors() -> tuple[list[bytes], bytes]:
    chance, described, data = random.Random(7), [], b""
    for name, shape in _shapes():
        count = 1
        for side in shape:
            count *= side
        described.append(tensor(name, shape, F32, len(data)))
        values = [1.0] * count if len(shape) == 1 else [chance.gauss(0.0, 0.1) for _ in range(count)]
        data += struct.pack(f"<{count}f", *values)
        data += bytes(-len(data) % ALIGNMENT)
    return described, data
