"""TensorRT-LLM and ComfyUI, which operators install: command lines, refusals, and where they are found."""

import json
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from agent.config import AgentConfig, check_agent_config
from agent.engines import known_engines
from agent.engines.base import Command, Engine, Launch
from agent.engines.comfyui import ComfyUi
from agent.engines.trtllm import TrtLlm, cache_fraction
from llmgw.core.catalog import ModelFacts
from llmgw.core.config_facts import config_facts
from llmgw.core.engine_flags import ALLOWED
from llmgw.core.engine_rules import check_env
from llmgw.core.errors import InvalidInput
from llmgw.core.fit import COMFYUI_BYTES, COMFYUI_HOST_BYTES, estimate
from llmgw.wire.llmgw.v1 import ShardSpec

GB = 10**9
CONFIG = {
    "num_hidden_layers": 28,
    "num_attention_heads": 28,
    "num_key_value_heads": 4,
    "hidden_size": 3584,
    "max_position_embeddings": 32768,
}


@pytest.fixture
def trtllm(tmp_path: Path) -> TrtLlm:
    """As it is in an environment of its own."""
    root = tmp_path / "environment"
    (root / "bin").mkdir(parents=True)
    (root / "bin" / "trtllm-serve").write_text("#!/bin/sh\n")
    (root / "lib" / "python3.12" / "site-packages" / "tensorrt_llm-1.3.0.dist-info").mkdir(parents=True)
    return TrtLlm(configured=str(root))


@pytest.fixture
def weights(tmp_path: Path) -> Path:
    """A repository whose files hold 15 GB, without them."""
    found = tmp_path / "set"
    found.mkdir()
    (found / "config.json").write_text(json.dumps(CONFIG))
    with (found / "model.safetensors").open("wb") as file:
        file.truncate(15 * GB)
    return found


@pytest.fixture
def comfyui(tmp_path: Path) -> Path:
    """A directory with ComfyUI in it."""
    found = tmp_path / "ComfyUI"
    (found / ".venv" / "bin").mkdir(parents=True)
    (found / ".venv" / "bin" / "python").write_text("#!/bin/sh\n")
    (found / "main.py").touch()
    (found / "comfyui_version.py").write_text('# generated\n__version__ = "0.3.68"\n')
    return found


def launch(
    tmp_path: Path,
    weights: Path | None,
    *,
    tp: int = 1,
    memory: int = 0,
    card: int = 80 * GB,
    args: tuple[str, ...] = (),
) -> Launch:
    """A shard of 4 slots of 8,192 tokens."""
    spec = ShardSpec(
        model="org/m",
        engine="any",
        card_uuids=["GPU-a", "GPU-b"][:tp],
        memory_bytes=memory,
        context_length=8192,
        slots=4,
        tp=tp,
        args=list(args),
    )
    key_file = tmp_path / "shard" / "engine.key"
    return Launch(spec=spec, weights=weights, host="10.0.0.7", port=18001, key_file=key_file, cpus=8, card_bytes=card)


def value(command: Command, flag: str) -> str:
    """What follows a flag, which stands once."""
    assert command.argv.count(flag) == 1
    return command.argv[command.argv.index(flag) + 1]


def adapter(name: str) -> Engine:
    """The adapter of that name, installed nowhere."""
    return known_engines(AgentConfig(data="/x"))[name]


def test_the_command_line_of_tensorrt_llm(trtllm: TrtLlm, tmp_path: Path, weights: Path) -> None:
    asked = launch(tmp_path, weights, tp=2, memory=40 * GB, args=("--max_batch_size=64", "--kv_cache_dtype", "fp8"))
    command = trtllm.command(asked)
    program = trtllm.installed().program
    assert program.name == "trtllm-serve"
    assert command.argv == (
        *(str(program), "serve", str(weights)),
        *("--served_model_name", "org/m"),
        *("--host", "10.0.0.7"),
        *("--port", "18001"),
        *("--max_seq_len", "8192"),
        *("--tp_size", "2"),
        *("--kv_cache_free_gpu_memory_fraction", cache_fraction(asked, weights)),
        *("--extra_llm_api_options", str(tmp_path / "shard" / "engine.yaml")),
        *("--max_batch_size", "64"),
        *("--kv_cache_dtype", "fp8"),
    )
    assert (command.key_variable, command.host) == ("", "")
    assert command.key_text == "return_perf_metrics: true\nenable_iter_perf_stats: true\n"
    assert command.env["TRTLLM_NO_USAGE_STATS"] == "1"
    assert command.env["PATH"].startswith(f"{program.parent}:")
    build = trtllm.detect()
    assert build is not None
    assert (build.engine, build.version, build.usable) == ("trtllm", "1.3.0", True)


@pytest.mark.parametrize("tp", [1, 2, 4])
@pytest.mark.parametrize("smaller", [0, 1 * GB, 2 * GB])
@pytest.mark.parametrize("args", [(), ("--max_num_tokens", "65536")], ids=["by default", "a larger batch"])
def test_its_cache_fills_what_was_reserved_and_nothing_beyond(
    tmp_path: Path, weights: Path, tp: int, smaller: int, args: tuple[str, ...]
) -> None:
    facts = config_facts(CONFIG, 15 * GB)
    need = estimate(facts, engine="trtllm", context_length=8192, slots=4, tp=tp, args=args)
    card = 80 * GB
    asked = launch(tmp_path, weights, tp=tp, memory=need.per_card_bytes, card=card, args=args)
    fraction = float(cache_fraction(asked, weights))
    cache = need.kv_bytes // tp
    before = need.per_card_bytes - cache - smaller
    taken = before + fraction * (card - before)
    assert taken <= need.per_card_bytes + card / 100_000, "more than was reserved"
    assert fraction * (card - before) >= cache - card / 100_000, "less than the cache that was counted on"


def test_its_cache_is_a_part_of_what_is_free_where_a_card_tells_its_memory(
    trtllm: TrtLlm, tmp_path: Path, weights: Path
) -> None:
    assert cache_fraction(launch(tmp_path, weights, memory=40 * GB, card=0), weights) == ""
    assert "--kv_cache_free_gpu_memory_fraction" not in trtllm.command(launch(tmp_path, weights, card=0)).argv
    assert cache_fraction(launch(tmp_path, weights, memory=79 * GB, card=80 * GB), weights) == "0.97000"
    assert cache_fraction(launch(tmp_path, weights, memory=1 * GB, card=80 * GB), weights) == "0.00100"
    (weights / "config.json").write_text("{")
    with pytest.raises(InvalidInput, match=r"config\.json cannot be read"):
        trtllm.command(launch(tmp_path, weights, memory=40 * GB))


def test_its_reader_of_flags_takes_whole_names_alone() -> None:
    @click.command()
    @click.option("--max_num_tokens", type=int)
    @click.option("--generation-config")
    def serve(max_num_tokens: int | None, generation_config: str | None) -> None:
        click.echo(f"{max_num_tokens} {generation_config}")

    def code(*args: str) -> int:
        return CliRunner().invoke(serve, args).exit_code

    assert code("--max_num_tokens=3", "--generation-config", "auto") == 0
    assert {code("--max_num_tok=3"), code("--max-num-tokens=3"), code("--generation_config=auto")} == {2}


@pytest.mark.parametrize(
    ("engine", "args", "reason"),
    [
        ("trtllm", ["--trust_remote_code"], "switches a protection off"),
        ("trtllm", ["--extra_llm_api_options", "x.yaml"], "it reads a file; write the flags themselves"),
        ("trtllm", ["--config=x.yaml"], "it reads a file; write the flags themselves"),
        ("trtllm", ["--metadata_server_config_file", "x"], "reads a file"),
        ("trtllm", ["--max_seq_len", "8192"], "set context_length instead"),
        ("trtllm", ["--kv_cache_free_gpu_memory_fraction", "0.9"], "memory the placement reserved"),
        ("trtllm", ["--free_gpu_memory_fraction=0.9"], "memory the placement reserved"),
        ("trtllm", ["--tp_size", "8"], "set the profile's tp"),
        ("trtllm", ["--pp_size", "2"], "set the profile's tp"),
        ("trtllm", ["--host", "0.0.0.0"], "chooses where the engine listens"),
        ("trtllm", ["--custom_module_dirs", "/x"], "loads the code it names"),
        ("trtllm", ["--custom_tokenizer", "x.Y"], "loads the code it names"),
        ("trtllm", ["--middleware", "os.system"], "loads the code it names"),
        ("trtllm", ["--chat_template", "x"], "can load or run what it names"),
        ("trtllm", ["--media_io_kwargs", "{}"], "reads or writes files"),
        ("trtllm", ["--otlp_traces_endpoint", "http://x"], "connects or listens somewhere else"),
        ("trtllm", ["--disagg_cluster_uri", "http://x"], "a replica is one server"),
        ("trtllm", ["--grpc"], "a replica is one server"),
        ("trtllm", ["--telemetry"], "calls nobody"),
        ("trtllm", ["--max-num-tokens", "1"], "not one of the flags that may be given"),
        ("trtllm", ["--max_num_tok", "1"], "not one of the flags that may be given"),
        ("trtllm", ["--max_seq", "1"], "not one of the flags that may be given"),
        ("trtllm", ["--kv_cache_dtype", "fp4"], "expected one of auto, fp8, nvfp4"),
        ("comfyui", ["--listen"], "chooses where the engine listens"),
        ("comfyui", ["--lis=0.0.0.0"], "chooses where the engine listens"),
        ("comfyui", ["--extra-model-paths-config", "x"], "the catalog entry's source"),
        ("comfyui", ["--output-directory", "/x"], "directories of its own"),
        ("comfyui", ["--base-dir=/x"], "reads or writes files"),
        ("comfyui", ["--cuda-device", "1"], "scheduler chooses the card"),
        ("comfyui", ["--cpu"], "scheduler chooses the card"),
        ("comfyui", ["--front-end-version", "x/y@latest"], "fetches or loads code"),
        ("comfyui", ["--enable-manager"], "fetches or loads code"),
        ("comfyui", ["--whitelist-custom-nodes", "x"], "fetches or loads code"),
        ("comfyui", ["--enable-cors-header"], "opens the server to other sites"),
        ("comfyui", ["--comfy-api-base", "http://x"], "calls nobody"),
        ("comfyui", ["--verbose", "DEBUG"], "can write a file"),
        ("comfyui", ["--preview-method", "x"], "expected one of none, auto"),
        ("comfyui", ["--fast"], "not one of the flags"),
    ],
)
def test_an_argument_is_refused_with_its_reason(engine: str, args: list[str], reason: str) -> None:
    with pytest.raises(InvalidInput, match=reason):
        adapter(engine).check_args(args, {})


@pytest.mark.parametrize(
    ("engine", "args", "checked"),
    [
        ("trtllm", ["--moe_expert_parallel_size=8"], ("--ep_size", "8")),
        ("trtllm", ["--generation-config", "auto"], ("--generation-config", "auto")),
        ("trtllm", ["--enable_chunked_prefill"], ("--enable_chunked_prefill",)),
        ("comfyui", ["--cache-lru=4"], ("--cache-lru", "4")),
        ("comfyui", ["--fp8_e4m3fn-unet"], ("--fp8_e4m3fn-unet",)),
    ],
)
def test_an_argument_is_taken_in_either_spelling(engine: str, args: list[str], checked: tuple[str, ...]) -> None:
    assert adapter(engine).check_args(args, {}) == checked


def test_no_flag_is_both_given_and_set() -> None:
    for engine in ("trtllm", "comfyui"):
        for flag in ALLOWED[engine].values():
            sample = "1" if "number" in flag.kind else flag.kind.removeprefix("one of ").split(", ")[0] or "x"
            sample = "x" if flag.kind.startswith("a name") else sample
            adapter(engine).check_args([flag.name, sample] if flag.takes_value else [flag.name], {})
    for name in ("TRTLLM_NO_USAGE_STATS",):
        check_env({name: "1"})
        with pytest.raises(InvalidInput, match="calls nobody"):
            check_env({name: "0"})


def test_the_command_line_of_comfyui_listens_on_loopback_and_reads_one_checkpoint(
    comfyui: Path, tmp_path: Path
) -> None:
    checkpoint = tmp_path / "set" / "flux1-schnell-fp8.safetensors"
    engine = ComfyUi(configured=str(comfyui))
    command = engine.command(launch(tmp_path, checkpoint, args=("--lowvram", "--cache-lru=2")))
    shard = tmp_path / "shard"
    assert command.argv == (
        *(str(comfyui / ".venv" / "bin" / "python"), str(comfyui / "main.py")),
        *("--listen", "127.0.0.1"),
        *("--port", "18001"),
        *("--extra-model-paths-config", str(shard / "engine.yaml")),
        *("--input-directory", str(shard / "input")),
        *("--output-directory", str(shard / "output")),
        *("--temp-directory", str(shard / "temp")),
        *("--user-directory", str(shard / "user")),
        "--disable-auto-launch",
        "--disable-api-nodes",
        "--lowvram",
        *("--cache-lru", "2"),
    )
    assert command.host == "127.0.0.1"
    assert command.directories == tuple(shard / name for name in ("input", "output", "temp", "user"))
    assert json.loads(command.key_text) == {"llmgw": {"base_path": str(tmp_path / "set"), "checkpoints": "."}}
    assert engine.served_names(ShardSpec(model="flux")) == ()
    opened = ComfyUi(configured=str(comfyui), opened=True).command(launch(tmp_path, checkpoint))
    assert (value(opened, "--listen"), opened.host) == ("10.0.0.7", "10.0.0.7")


def test_comfyui_is_where_it_is_named(comfyui: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert ComfyUi().detect() is None
    build = ComfyUi(configured=str(comfyui)).detect()
    assert build is not None
    assert (build.version, build.usable) == ("0.3.68", True)
    (comfyui / "comfyui_version.py").unlink()
    build = ComfyUi(configured=str(comfyui)).detect()
    assert build is not None
    assert (build.version, build.usable) == ("unknown", True)
    (comfyui / ".venv" / "bin" / "python").unlink()
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    build = ComfyUi(configured=str(comfyui)).detect()
    assert build is not None
    assert build.why_not == f"{comfyui} has no .venv/bin/python, and there is no python3 on PATH"
    build = ComfyUi(configured=str(tmp_path / "nowhere")).detect()
    assert build is not None
    assert build.why_not.startswith(f"engine_paths.comfyui in agent.yaml is {tmp_path}/nowhere, and there is no ")


def test_what_is_no_checkpoint_or_not_installed_is_a_sentence(comfyui: Path, tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"not installed: name its directory as engine_paths\.comfyui"):
        ComfyUi().command(launch(tmp_path, tmp_path / "x.safetensors"))
    engine = ComfyUi(configured=str(comfyui))
    with pytest.raises(InvalidInput, match=r"loads one checkpoint ending in \.safetensors, and set is none"):
        engine.command(launch(tmp_path, tmp_path / "set"))
    with pytest.raises(InvalidInput, match="needs the path of a model"):
        engine.command(launch(tmp_path, None))


def test_the_operators_engines_have_a_place_and_no_version() -> None:
    check_agent_config(AgentConfig(data="/x", engine_paths={"trtllm": "/opt/trtllm", "comfyui": "/opt/ComfyUI"}))
    for name, what in {"trtllm": "environment", "comfyui": "directory"}.items():
        words = rf"{name} is not installed by llmgw: install it, and name its {what} as engine_paths\.{name}"
        with pytest.raises(InvalidInput, match=words) as refused:
            check_agent_config(AgentConfig(data="/x", engines={name: "1.0"}))
        assert refused.value.field == f"engines.{name}"
        check_agent_config(AgentConfig(data="/x", engines={name: ""}))


def test_a_picture_model_holds_a_card_and_its_weights_in_memory_too() -> None:
    need = estimate(ModelFacts(weights_bytes=17 * GB), engine="comfyui", context_length=0, slots=4)
    assert (need.per_card_bytes, need.host_bytes) == (17 * GB + COMFYUI_BYTES, 17 * GB + COMFYUI_HOST_BYTES)
    assert need.whole_card
    assert need.detail == "weights 17 GB + comfyui 6 GB on a card of its own, 21 GB of memory beside it"
