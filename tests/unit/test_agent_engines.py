"""Command lines and environments of engines, and when an engine is started again."""

import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.engines.base import Command, Launch
from agent.engines.environment import build_environment
from agent.engines.llamacpp import LlamaCpp
from agent.engines.llamacpp_launcher import parser
from agent.engines.sim import Sim
from agent.restarts import HEALTHY_RUN_S, MAX_FAST_FAILURES, RestartPolicy
from llmgw.core.engine_flags import ALLOWED
from llmgw.core.errors import InvalidInput
from llmgw.sim.options import parse_options
from llmgw.wire.llmgw.v1 import ShardSpec


def launch(spec: ShardSpec, *, weights: Path | None = None) -> Launch:
    """A launch on port 18001."""
    return Launch(spec=spec, weights=weights, host="127.0.0.1", port=18001, key_file=Path("/k/key"), cpus=6)


def spec(**fields: object) -> ShardSpec:
    """A shard of 4 slots of 2,048 tokens."""
    plain: dict[str, object] = {"model": "org/m", "engine": "llamacpp", "context_length": 2048, "slots": 4}
    return ShardSpec(**(plain | fields))  # type: ignore[arg-type]  # the message checks its fields


def built_in(asked: Launch, monkeypatch: pytest.MonkeyPatch) -> Command:
    """llama.cpp's command without a binary on PATH."""
    monkeypatch.setattr("shutil.which", lambda name: None)
    return LlamaCpp().command(asked)


def value(command: Command, flag: str) -> str:
    """What follows a flag, which stands once."""
    assert command.argv.count(flag) == 1
    return command.argv[command.argv.index(flag) + 1]


@pytest.fixture
def gguf(tmp_path: Path) -> Path:
    path = tmp_path / "model.gguf"
    path.write_bytes(b"GGUF")
    return path


def test_the_context_is_for_each_slot(gguf: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    command = built_in(launch(spec(), weights=gguf), monkeypatch)
    assert command.argv[:4] == (sys.executable, "-P", "-m", "agent.engines.llamacpp_launcher")
    assert (value(command, "--ctx-size"), value(command, "--parallel")) == ("8192", "4")
    assert (value(command, "--host"), value(command, "--port")) == ("127.0.0.1", "18001")
    assert value(command, "--model") == str(gguf)
    assert value(command, "--alias") == "org/m"
    assert value(command, "--api-key-file") == "/k/key"
    assert value(command, "--n-gpu-layers") == "0"
    assert value(command, "--threads") == "5"
    flags = parser().parse_args(command.argv[4:])
    assert (flags.ctx_size, flags.parallel, flags.metrics) == (8192, 4, True)


def test_a_profile_overrides_layers_and_threads(gguf: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = spec(card_uuids=["GPU-a"], args=["-ngl=20", "-t", "2"])
    command = built_in(launch(asked, weights=gguf), monkeypatch)
    assert (value(command, "--n-gpu-layers"), value(command, "--threads")) == ("20", "2")
    command = built_in(launch(spec(card_uuids=["GPU-a"]), weights=gguf), monkeypatch)
    assert value(command, "--n-gpu-layers") == "999"


def test_a_configured_binary_is_taken(gguf: Path) -> None:
    command = LlamaCpp(binary="/opt/llama-server").command(launch(spec(), weights=gguf))
    assert command.argv[0] == "/opt/llama-server"
    assert command.env == {"LLAMA_ARG_CACHE_RAM": "0"}
    build = LlamaCpp(binary="/nowhere/llama-server").detect()
    assert not build.usable
    assert "/nowhere/llama-server" in build.why_not


def test_the_first_part_of_a_split_model_is_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("m-00001-of-00002.gguf", "m-00002-of-00002.gguf", "mmproj-m.gguf", "README.md"):
        (tmp_path / name).write_bytes(b"")
    command = built_in(launch(spec(), weights=tmp_path), monkeypatch)
    assert value(command, "--model").endswith("m-00001-of-00002.gguf")
    (tmp_path / "other.gguf").write_bytes(b"")
    with pytest.raises(InvalidInput, match=r"there are 2 models"):
        built_in(launch(spec(), weights=tmp_path), monkeypatch)
    with pytest.raises(InvalidInput, match=r"no \.gguf file"):
        built_in(launch(spec(), weights=tmp_path / "none"), monkeypatch)
    with pytest.raises(InvalidInput, match="needs the path of a model"):
        built_in(launch(spec()), monkeypatch)


def test_the_launcher_knows_every_flag_a_profile_may_give() -> None:
    samples = {
        "a whole number": "3",
        "a whole number of MiB": "3",
        "a number": "0.5",
        "numbers with commas between": "1,2",
    }
    args = ["--model", "/x"]
    for flag in set(ALLOWED["llamacpp"].values()):
        choice = samples.get(flag.kind, flag.kind.removeprefix("one of ").split(", ")[0])
        args += [flag.name, choice] if flag.takes_value else [flag.name]
    assert parser().parse_args(args).mlock


def test_the_sim_engine_understands_its_command_line(tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_text("ek-x\n")
    asked = Launch(
        spec=spec(engine="sim", source="sim:rate=40", args=["--queue=7"]),
        weights=None,
        host="127.0.0.1",
        port=18001,
        key_file=key,
        cpus=1,
    )
    command = Sim().command(asked)
    options = parse_options(command.argv[4:], environment={})
    assert (options.names, options.slots, options.ctx_size, options.port) == (("org/m",), 4, 2048, 18001)
    assert (options.rate, options.queue, options.keys) == (40.0, 7, (b"ek-x",))


def test_an_environment_holds_what_it_is_given_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    monkeypatch.setenv("LLMGW_CANARY", "secret")
    environment = build_environment(
        cluster_id="c1",
        node="n1",
        shard_id="r1/0",
        home=Path("/h"),
        card_uuids=["GPU-a", "GPU-b"],
        operator={"LD_LIBRARY_PATH": "/cuda", "LLMGW_MARK": "forged"},
        engine={"PYTHONPATH": "/p"},
        profile={"OMP_NUM_THREADS": "2", "CUDA_VISIBLE_DEVICES": "9", "LLMGW_NODE": "forged"},
    )
    assert list(environment)[:2] == ["LLMGW_MARK", "LLMGW_NODE"]
    assert environment == {
        "LLMGW_MARK": "c1/r1/0",
        "LLMGW_NODE": "n1",
        "SPT_NOENV": "1",
        "PATH": environment["PATH"],
        "HOME": "/h",
        "LANG": "C.UTF-8",
        "PYTHONUNBUFFERED": "1",
        "LD_LIBRARY_PATH": "/cuda",
        "PYTHONPATH": "/p",
        "OMP_NUM_THREADS": "2",
        "CUDA_VISIBLE_DEVICES": "GPU-a,GPU-b",
    }


def test_a_failing_start_is_tried_at_growing_waits_and_then_given_up() -> None:
    policy = RestartPolicy()
    assert [policy.wait_after(None) for _ in range(MAX_FAST_FAILURES)] == [1.0, 2.0, 4.0, 8.0, None]


def test_a_ready_engine_is_started_again_at_once_and_a_healthy_run_forgives() -> None:
    policy = RestartPolicy()
    assert policy.wait_after(1.0) == 0.0
    assert policy.wait_after(1.0) == 2.0
    for _ in range(20):
        assert policy.wait_after(HEALTHY_RUN_S) == 0.0
    assert policy.wait_after(None) == 2.0


@given(st.lists(st.none() | st.floats(min_value=0, max_value=HEALTHY_RUN_S, exclude_max=True), min_size=5, max_size=5))
def test_five_fast_failures_always_give_up(runs: list[float | None]) -> None:
    policy = RestartPolicy()
    waits = [policy.wait_after(ready_s) for ready_s in runs]
    assert waits[-1] is None
    assert None not in waits[:-1]
