"""The real llama.cpp engine under the agent, with a real model where there is one.

`LLMGW_TEST_MODEL` names a GGUF file; without it `.cache/` at the repository's root is looked through.
"""

import json
import os
import signal
import urllib.request
import uuid
from functools import partial
from pathlib import Path

import pytest
import trio

from llmgw.core.processes import start_time
from llmgw.wire.llmgw.v1 import ShardSpec, ShardState
from tests.integration.test_agent_node import ask
from tests.support.agent_node import KEY, ROOT
from tests.support.agent_site import yard
from tests.support.waiting import until


def model() -> Path:
    """A small real model, or a skip that says how to have one."""
    named = os.environ.get("LLMGW_TEST_MODEL", "")
    if named:
        return Path(named)
    for path in sorted((ROOT / ".cache").rglob("*.gguf")) if (ROOT / ".cache").exists() else ():
        if path.stat().st_size > 50_000_000:
            return path
    pytest.skip("no model: set LLMGW_TEST_MODEL to a GGUF file")


def spec(**fields: object) -> ShardSpec:
    """Two slots of 1,024 tokens."""
    plain: dict[str, object] = {
        "shard_id": "r1/0",
        "engine": "llamacpp",
        "model": "org/smol",
        "context_length": 1024,
        "slots": 2,
    }
    return ShardSpec(**(plain | fields))  # type: ignore[arg-type]  # the message checks its fields


@pytest.mark.trio
async def test_a_real_model_is_served_with_its_key_and_its_usage(tmp_path: Path) -> None:
    source = f"file:{model()}"
    async with yard(tmp_path, cluster_id=f"test-{uuid.uuid4().hex}") as node:
        node.start(spec(source=source, args=["--threads", "1", "--no-warmup"]))
        status = await node.state("r1/0", ShardState.READY)
        url = status.endpoint
        _, models = await trio.to_thread.run_sync(ask, f"{url}/v1/models")
        (listed,) = json.loads(models)["data"]
        assert (listed["id"], listed["meta"]["n_ctx"]) == ("org/smol", 1024)
        for path in ("/v1/models", "/metrics", "/v1/chat/completions"):
            code, _ = await trio.to_thread.run_sync(partial(ask, url + path, key="ek-wrong"))
            assert code == 401
        code, metrics = await trio.to_thread.run_sync(ask, f"{url}/metrics")
        assert (code, b"llamacpp:" in metrics) == (200, True)
        body = {
            "model": "org/smol",
            "messages": [{"role": "user", "content": "Say hello."}],
            "max_tokens": 5,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        code, stream = await trio.to_thread.run_sync(lambda: ask(f"{url}/v1/chat/completions", body=body))
        events = [line.removeprefix(b"data: ") for line in stream.splitlines() if line.startswith(b"data: ")]
        assert (code, events[-1]) == (200, b"[DONE]")
        usage = json.loads(events[-2])["usage"]
        assert usage["completion_tokens"] == 5
        assert usage["total_tokens"] == usage["prompt_tokens"] + 5
        assert b"".join(Path(f"/proc/{status.pid}/cmdline").read_bytes().split(b"\0")).find(KEY.encode()) == -1

        # With a stream running, SIGTERM ends it at once and cleanly.
        request = urllib.request.Request(
            f"{url}/v1/completions",
            data=json.dumps({"prompt": "Once", "n_predict": 900, "stream": True, "ignore_eos": True}).encode(),
            headers={"Authorization": f"Bearer {KEY}"},
        )
        answer = await trio.to_thread.run_sync(lambda: urllib.request.urlopen(request, timeout=20))
        with answer:
            await trio.to_thread.run_sync(answer.readline)
            began = trio.current_time()
            os.kill(status.pid, signal.SIGTERM)
            again = await node.until(lambda said: said.restarts == 1)
        assert trio.current_time() - began < 5
        assert "exit code 0" in again.message
        back = await node.until(lambda said: said.restarts == 1 and said.state == ShardState.READY)
        node.stop("r1/0")
        await node.state("r1/0", ShardState.STOPPED)
        await until(lambda: start_time(back.pid) is None)


@pytest.mark.trio
async def test_a_file_that_is_no_model_fails_with_the_engines_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agent.restarts.FIRST_WAIT_S", 0.01)
    bad = tmp_path / "bad.gguf"
    bad.write_bytes(b"GGUF" + b"\0" * 1000)
    async with yard(tmp_path, cluster_id=f"test-{uuid.uuid4().hex}") as node:
        node.start(spec(source=f"file:{bad}"))
        failed = await node.state("r1/0", ShardState.FAILED)
        assert "exit code 1" in failed.message
        assert "failed to load model" in failed.message
