"""A mixture of experts under the real llama.cpp, its experts kept in memory beside a card as a profile says."""

import json
import uuid
from pathlib import Path

import pytest
import trio

from llmgw.core.fit import estimate
from llmgw.core.gguf import facts, read_header
from llmgw.wire.llmgw.v1 import ShardSpec, ShardState
from tests.integration.test_agent_node import ask
from tests.support.agent_site import yard
from tests.support.tiny_mixture import EXPERTS, INNER, LAYERS, WIDTH, tiny_mixture

OVERRIDDEN = b"tensor overrides to CPU are used"
"""llama.cpp's own word for tensors that a rule keeps off its cards."""
LAYER_BYTES = 3 * WIDTH * INNER * EXPERTS * 4


@pytest.mark.trio
@pytest.mark.parametrize(("args", "kept"), [((), 0), (("--cpu-moe",), LAYERS), (("-ncmoe=1",), 1)])
async def test_the_engine_keeps_as_many_experts_in_memory_as_are_reserved_there(
    tmp_path: Path, args: tuple[str, ...], kept: int
) -> None:
    model = tiny_mixture(tmp_path / "mixture.gguf")
    with model.open("rb") as stream:
        found = facts(read_header(stream, file_bytes=model.stat().st_size), model.stat().st_size)
    need = estimate(found, engine="llamacpp", context_length=256, slots=1, args=args)
    assert need.host_bytes == (kept * LAYER_BYTES + need.overhead_bytes if kept else 0)
    spec = ShardSpec(
        shard_id="r1/0",
        engine="llamacpp",
        model="mixture",
        source=f"file:{model}",
        context_length=256,
        slots=1,
        args=["--threads", "1", *args],
    )
    async with yard(tmp_path, cluster_id=f"test-{uuid.uuid4().hex}") as node:
        node.start(spec)
        status = await node.state("r1/0", ShardState.READY)
        body = {"model": "mixture", "prompt": "hello", "max_tokens": 6, "temperature": 0}
        code, answer = await trio.to_thread.run_sync(lambda: ask(f"{status.endpoint}/v1/completions", body=body))
        assert code == 200
        assert json.loads(answer)["usage"]["completion_tokens"] == 6
        said = node.site.output("r1/0").read_bytes()
        assert (OVERRIDDEN in said) is bool(kept)
