"""FreeToken: its command line and environment, where it is meant for and what it lacks, and what is refused."""

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from agent.config import AgentConfig, check_agent_config
from agent.discovery.cuda import Toolkit
from agent.engines import known_engines
from agent.engines.base import Launch
from agent.engines.freetoken import FreeToken
from agent.provision.meant import Machine
from agent.provision.recipes import RECIPES
from agent.provision.service import Provisions
from llmgw.api.types import ServeRequest
from llmgw.control.models import checked
from llmgw.control.serve import model_for
from llmgw.core.cluster import Card
from llmgw.core.engine_rules import check_env
from llmgw.core.errors import InvalidInput
from llmgw.wire.llmgw.v1 import ShardSpec
from tests.support.builders import a_card, a_model, a_profile

TOOLKIT = Toolkit(path=Path("/usr/local/cuda-13.0"), major=13, minor=0)
REPOSITORY = "hf:Qwen/Qwen3-30B-A3B@0123456789abcdef0123456789abcdef01234567"


def card(capability: str = "8.6", driver: str = "580.65.06") -> Card:
    return a_card(gpu_class="rtx3090-24g", compute_capability=capability, driver=driver)


def machine(
    *cards: Card,
    architecture: str = "x86_64",
    toolkit: Toolkit | None = TOOLKIT,
    compiler: str | None = "/usr/bin/g++",
) -> Machine:
    """A machine on which all is well but for what is said."""
    return Machine(
        architecture=architecture,
        cards=lambda: cards,
        toolkit=lambda major: toolkit if toolkit is not None and toolkit.major == major else None,
        program=lambda _: compiler,
    )


def installed(tmp_path: Path) -> Path:
    """An environment in which it is."""
    root = tmp_path / "environment"
    (root / "bin").mkdir(parents=True)
    (root / "bin" / "ft").write_text("#!/bin/sh\n")
    (root / "lib" / "python3.12" / "site-packages" / "freetoken-0.2.1.dist-info").mkdir(parents=True)
    return root


def engine(tmp_path: Path, here: Machine | None = None) -> FreeToken:
    return FreeToken(configured=str(installed(tmp_path)), machine=here or machine(card()))


def launch(tmp_path: Path, *, args: Sequence[str] = (), cards: int = 1, config: object = None) -> Launch:
    weights = tmp_path / "set"
    weights.mkdir()
    (weights / "config.json").write_text(json.dumps(config or {}))
    spec = ShardSpec(
        model="qwen3-30b-a3b",
        engine="freetoken",
        source=REPOSITORY,
        card_uuids=[f"GPU-n1-{i}" for i in range(cards)],
        memory_bytes=23 * 10**9,
        context_length=32768,
        slots=2,
        tp=cards,
        args=list(args),
    )
    return Launch(
        spec=spec,
        weights=weights,
        host="10.0.0.7",
        port=18001,
        key_file=tmp_path / "shard" / "engine.key",
        cpus=8,
        cache=tmp_path / "cache",
    )


def test_the_command_line_and_the_environment(tmp_path: Path) -> None:
    command = engine(tmp_path).command(launch(tmp_path, args=("--moe-strategy=hybrid", "--moe-cache-auto")))
    root = tmp_path / "environment"
    assert command.argv == (
        str(root / "bin" / "ft"),
        "serve",
        *("--model", str(tmp_path / "set")),
        *("--served-model-name", "qwen3-30b-a3b"),
        *("--host", "10.0.0.7"),
        *("--port", "18001"),
        *("--gpu", "0"),
        *("--max-seq-len-override", "32768"),
        *("--max-running-requests", "2"),
        *("--moe-strategy", "hybrid"),
        "--moe-cache-auto",
    )
    # The key goes into this variable where the engine is started, and is on no command line and in no file.
    assert (command.key_variable, command.key_text) == ("FREETOKEN_API_KEY", "")
    assert command.env["PATH"].startswith(f"{root}/bin:/usr/local/cuda-13.0/bin:/usr/local/sbin:")
    assert command.env["CUDA_HOME"] == "/usr/local/cuda-13.0"
    assert command.env["HF_HUB_OFFLINE"] == "1"
    assert command.env["HOME"] == str(tmp_path / "cache")
    assert command.directories == (tmp_path / "cache",)


def test_it_is_asked_for_its_health_and_for_no_metrics() -> None:
    found = known_engines(AgentConfig(data="/x"))["freetoken"]
    assert found.health_path == "/health"
    assert found.load_metrics is None
    assert found.needs_weights
    assert found.served_names(ShardSpec(model="m")) == ("m",)


def test_slots_and_context_follow_the_catalog_and_may_be_repeated_but_not_contradicted(tmp_path: Path) -> None:
    args = ("--max-running-requests", "8", "--max-seq-len-override", "32768")
    command = engine(tmp_path).command(launch(tmp_path, args=args))
    assert command.argv[-4:] == args
    assert command.argv.count("--max-seq-len-override") == command.argv.count("--max-running-requests") == 1
    model = a_model(
        source=REPOSITORY,
        context_length=8192,
        profiles=(a_profile(engine="freetoken", gpu_class="rtx3090-24g", args=("--max-seq-len-override=32768",)),),
    )
    with pytest.raises(InvalidInput, match="32768 is not the model's context_length: leave the flag out") as refused:
        checked(model)
    assert refused.value.field == "profiles[0].args"


def test_a_start_with_another_context_is_refused_too(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="is not the model's context_length"):
        engine(tmp_path).command(launch(tmp_path, args=("--max-seq-len-override", "8192")))


@pytest.mark.parametrize("capability", ["8.0", "8.6", "9.0", "12.0", ""])
def test_cards_from_ampere_on_can_run_it(tmp_path: Path, capability: str) -> None:
    build = engine(tmp_path, machine(card(capability))).detect()
    assert build is not None
    assert (build.engine, build.version, build.usable, build.why_not) == ("freetoken", "0.2.1", True, "")


@pytest.mark.parametrize(
    "here",
    [machine(), machine(card("7.5")), machine(card(), architecture="aarch64"), machine(card("6.1"), toolkit=None)],
    ids=["no card", "Turing", "aarch64", "Pascal without a toolkit"],
)
def test_a_node_it_is_not_meant_for_is_no_fault(tmp_path: Path, here: Machine) -> None:
    assert engine(tmp_path, here).detect() is None


@pytest.mark.parametrize(
    ("here", "words"),
    [
        (machine(card(driver="535.104.05")), "needs driver 580 or newer and this node has 535.104.05: install"),
        (machine(card(), toolkit=None), "CUDA 13 toolkit, and there is none in CUDA_HOME or /usr/local/cuda*: install"),
        (machine(card(), toolkit=Toolkit(path=Path("/c"), major=12, minor=8)), "install the package cuda-toolkit-13"),
        (machine(card(), compiler=None), "compiles its kernels with g++, which is not there: install the package g++"),
    ],
    ids=["driver", "toolkit", "older toolkit", "compiler"],
)
def test_what_a_node_lacks_that_it_is_meant_for_is_said_with_what_to_install(
    tmp_path: Path, here: Machine, words: str
) -> None:
    found = engine(tmp_path, here)
    build = found.detect()
    assert build is not None
    assert not build.usable
    assert words in build.why_not
    with pytest.raises(InvalidInput, match="freetoken cannot be started here: it ") as refused:
        found.command(launch(tmp_path))
    assert words in refused.value.message


def test_one_old_card_beside_an_able_one_takes_nothing_from_it(tmp_path: Path) -> None:
    build = engine(tmp_path, machine(card("7.5"), card("8.6"))).detect()
    assert build is not None
    assert build.usable


def test_what_is_missing_is_said_before_anything_is_installed(tmp_path: Path) -> None:
    def told(here: Machine) -> str | None:
        provisions = Provisions(root=tmp_path / "engines", output=tmp_path, wanted={"freetoken": "0.2.1"}, machine=here)
        build = known_engines(AgentConfig(data=str(tmp_path)), provisions)["freetoken"].detect()
        return None if build is None else build.why_not

    assert told(machine(card())) == "to be installed"
    assert "cuda-toolkit-13" in (told(machine(card(), toolkit=None)) or "")
    assert told(machine(card("7.5"))) is None


def test_what_is_asked_of_the_index_and_of_the_environment() -> None:
    recipe = RECIPES["freetoken"]
    assert recipe.requirement("0.2.1") == "freetoken[accel]==0.2.1"
    assert (recipe.program, recipe.disk_bytes) == ("ft", 20 * 10**9)
    assert "torch.version.cuda" in recipe.check
    assert "x @ x" in recipe.check
    compile(recipe.check, "check", "exec")
    check_agent_config(AgentConfig(data="/x", engines={"freetoken": "0.2.1"}, engine_paths={"freetoken": "/opt/ft"}))


def test_several_cards_are_refused_when_a_model_is_written_and_when_it_is_started(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="freetoken runs on one card: tp is 1") as refused:
        model_for(ServeRequest(source=REPOSITORY, engine="freetoken", gpu_class="rtx3090-24g", tp=2))
    assert refused.value.field == "profiles[0].tp"
    with pytest.raises(InvalidInput, match="runs on cards: say which"):
        model_for(ServeRequest(source=REPOSITORY, engine="freetoken"))
    with pytest.raises(InvalidInput, match="names a GGUF file"):
        model_for(ServeRequest(source=f"{REPOSITORY}/m.gguf", engine="freetoken", gpu_class="rtx3090-24g"))
    with pytest.raises(InvalidInput, match="runs on one card, and this replica has 2"):
        engine(tmp_path).command(launch(tmp_path, cards=2))


@pytest.mark.parametrize(
    ("capability", "config", "words"),
    [
        ("7.5", {}, "compute capability 7.5, and freetoken needs 8.0"),
        ("8.6", {"quantization_config": {"quant_method": "fp8"}}, "8.6, and freetoken with fp8 weights needs 8.9"),
        (
            "8.9",
            {"quantization_config": {"quant_method": "modelopt", "quant_algo": "NVFP4"}},
            "8.9, and freetoken with nvfp4 weights needs 12.0",
        ),
        ("8.9", {"quantization_config": {"quant_method": "fp8"}}, ""),
        ("12.0", {"quantization_config": {"quant_method": "modelopt", "quant_algo": "NVFP4"}}, ""),
        ("8.0", {"quantization_config": {"quant_method": "mxfp4"}}, ""),
    ],
)
def test_a_card_must_be_able_to_compute_with_the_weights(
    tmp_path: Path, capability: str, config: object, words: str
) -> None:
    other = a_card(1, compute_capability="12.0", driver="580.65.06")
    found = engine(tmp_path, machine(card(capability), other))
    asked = launch(tmp_path, config=config)
    if not words:
        assert found.command(asked).argv
        return
    with pytest.raises(InvalidInput) as refused:
        found.command(asked)
    assert words in refused.value.message


@pytest.mark.parametrize(
    ("args", "reason"),
    [
        (["--gpu", "1"], "the one card the scheduler chose"),
        (["--gp=1"], "it may be read as --gpu: it runs on the one card the scheduler chose"),
        (["--tensor-parallel-size", "2"], "the one card the scheduler chose"),
        (["--moe-cache-split", "1,1"], "the one card the scheduler chose"),
        (["--moe-cache-sp=1,1"], "it may be read as --moe-cache-split"),
        (["--served-model-name", "x"], "set from the catalog"),
        (["--served", "x"], "it may be read as --served-model-name: the model's name"),
        (["--mmproj", "x"], "further model files"),
        (["--mmp", "x"], "further model files"),
        (["--mm-encoder-weights", "x"], "further model files"),
        (["--allowed-local-media-path", "/"], "switches a protection off"),
        (["--allowed-local", "/"], "switches a protection off"),
        (["--allowed-media-domains", "x"], "switches a protection off"),
        (["--hf-overrides", "{}"], "JSON that can name files and code"),
        (["--hf-over={}"], "fetches or connects"),
        (["--api-key", "x"], "its own key"),
        (["--api-k=x"], "its own key"),
        (["--port", "1"], "where the engine listens"),
        (["--po=1"], "it may be read as --port: the agent chooses where the engine listens"),
        (["--dist-port", "1"], "where the engine listens"),
        (["--model-source", "modelscope"], "the catalog entry's source"),
        (["--cors-origins", "*"], "switches a protection off"),
        (["--memory-ratio", "0.5"], "sizes its caches by what is free"),
        (["--shell-mode"], "not one of the flags"),
        (["--quant-backend", "/x"], "expected entries such as"),
        (["--moe-strategy", "disk"], "expected one of auto, fused"),
        (["--max-run", "4"], "not one of the flags"),
    ],
)
def test_flags_that_read_files_or_move_what_the_agent_sets_are_refused_abbreviated_too(
    args: list[str], reason: str
) -> None:
    with pytest.raises(InvalidInput) as refused:
        FreeToken().check_args(args, {})
    assert reason in refused.value.message


@pytest.mark.parametrize(
    "args",
    [
        ("--max-running-requests", "8"),
        ("--moe-strategy", "offload"),
        ("--dtype", "bfloat16"),
        ("--max-seq-len-override", "32768"),
        ("--moe-cache-auto",),
        ("--moe-cpu-layers", "3,7,11"),
        ("--quant-backend", "linear=marlin,moe.nvfp4=triton"),
    ],
)
def test_what_tunes_it_may_be_given(args: tuple[str, ...]) -> None:
    assert FreeToken().check_args(args, {"FREETOKEN_PIN_BUDGET_GB": "17"}) == args


@pytest.mark.parametrize("name", ["API_KEY", "HOST", "MMPROJ", "API_LOG_DIR", "MODEL_PATH", "CACHE_DIR", "PORT"])
def test_its_variables_that_name_files_keys_or_addresses_are_refused(name: str) -> None:
    with pytest.raises(InvalidInput, match=f"variable 'FREETOKEN_{name}' is refused"):
        check_env({f"FREETOKEN_{name}": "1"})
