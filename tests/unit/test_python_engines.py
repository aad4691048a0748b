"""vLLM and SGLang: where they are found, their command lines, their keys, and what is refused."""

from pathlib import Path

import pytest

from agent.config import AgentConfig, check_agent_config
from agent.engines import known_engines
from agent.engines.base import Command, Engine, Launch, key_config_of
from agent.engines.check import allowed_flags, check, report, written_flags
from agent.engines.sglang import Sglang
from agent.engines.vllm import Vllm
from llmgw.core.errors import InvalidInput
from llmgw.core.fit import PYTHON_ENGINE_BYTES
from llmgw.wire.llmgw.v1 import ShardSpec

GB = 10**9
CARD = 80 * GB


def environment(tmp_path: Path, program: str, version: str) -> Path:
    """An environment in which the engine is installed."""
    root = tmp_path / f"{program}-environment"
    (root / "bin").mkdir(parents=True)
    (root / "bin" / program).write_text("#!/bin/sh\n")
    (root / "bin" / program).chmod(0o755)
    (root / "lib" / "python3.12" / "site-packages" / f"{program}-{version}.dist-info").mkdir(parents=True)
    return root


@pytest.fixture
def weights(tmp_path: Path) -> Path:
    found = tmp_path / "set"
    found.mkdir()
    (found / "config.json").write_text("{}")
    return found


def launch(tmp_path: Path, weights: Path | None, *, args: tuple[str, ...] = (), card_bytes: int = CARD) -> Launch:
    """A shard that was promised 40 GB of each of two cards."""
    spec = ShardSpec(
        model="qwen",
        engine="vllm",
        source="hf:Qwen/Q@0123456789abcdef0123456789abcdef01234567",
        card_uuids=["GPU-a", "GPU-b"],
        memory_bytes=40 * GB,
        context_length=32768,
        slots=4,
        tp=2,
        args=list(args),
    )
    key_file = tmp_path / "shard" / "engine.key"
    return Launch(
        spec=spec,
        weights=weights,
        host="10.0.0.7",
        port=18001,
        key_file=key_file,
        cpus=8,
        card_bytes=card_bytes,
        cache=tmp_path / "cache",
    )


def value(command: Command, flag: str) -> str:
    """What follows a flag, which stands once."""
    assert command.argv.count(flag) == 1
    return command.argv[command.argv.index(flag) + 1]


def test_the_command_line_of_vllm(tmp_path: Path, weights: Path) -> None:
    root = environment(tmp_path, "vllm", "0.30.0")
    command = Vllm(configured=str(root)).command(launch(tmp_path, weights, args=("--max-num-seqs=64", "-q", "fp8")))
    assert command.argv == (
        str(root / "bin" / "vllm"),
        "serve",
        str(weights),
        *("--served-model-name", "qwen"),
        *("--host", "10.0.0.7"),
        *("--port", "18001"),
        *("--max-model-len", "32768"),
        *("--tensor-parallel-size", "2"),
        *("--gpu-memory-utilization", "0.5000"),
        "--enable-prompt-tokens-details",
        *("--uvicorn-log-level", "warning"),
        *("--max-num-seqs", "64"),
        *("--quantization", "fp8"),
    )
    assert command.key_variable == "VLLM_API_KEY"
    assert command.key_text == ""
    assert command.env["PATH"].startswith(f"{root}/bin:")
    assert command.env["VLLM_CACHE_ROOT"] == str(tmp_path / "cache")
    assert command.env["HF_HUB_OFFLINE"] == "1"


def test_the_command_line_of_sglang(tmp_path: Path, weights: Path) -> None:
    root = environment(tmp_path, "sglang", "0.5.23")
    asked = launch(tmp_path, weights, args=("--schedule-policy", "lpm"))
    command = Sglang(configured=str(root)).command(asked)
    share = (40 * GB - PYTHON_ENGINE_BYTES) / CARD
    assert command.argv == (
        str(root / "bin" / "sglang"),
        "serve",
        *("--model-path", str(weights)),
        *("--config", str(tmp_path / "shard" / "engine.yaml")),
        *("--served-model-name", "qwen"),
        *("--host", "10.0.0.7"),
        *("--port", "18001"),
        *("--context-length", "32768"),
        *("--tp-size", "2"),
        *("--mem-fraction-static", f"{share:.4f}"),
        "--enable-metrics",
        "--enable-cache-report",
        *("--log-level-http", "warning"),
        *("--schedule-policy", "lpm"),
    )
    assert (command.key_variable, command.key_text) == ("", "api-key: '{key}'\n")
    assert key_config_of(asked) == tmp_path / "shard" / "engine.yaml"


@pytest.mark.parametrize(
    ("card_bytes", "share"),
    [(CARD, "0.5000"), (40 * GB, "0.9700"), (10_000 * GB, "0.0200"), (0, "")],
)
def test_a_share_of_a_card_is_bounded_and_left_to_the_engine_where_a_card_tells_no_size(
    tmp_path: Path, weights: Path, card_bytes: int, share: str
) -> None:
    engine = Vllm(configured=str(environment(tmp_path, "vllm", "0.30.0")))
    command = engine.command(launch(tmp_path, weights, card_bytes=card_bytes))
    if share:
        assert value(command, "--gpu-memory-utilization") == share
    else:
        assert "--gpu-memory-utilization" not in command.argv


@pytest.mark.parametrize("engine", [Vllm, Sglang])
def test_an_engine_is_found_where_it_was_named_or_on_path_and_else_not_spoken_of(
    engine: type[Vllm | Sglang], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = engine.name
    root = environment(tmp_path, name, "1.2.3")
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    assert engine().detect() is None
    for configured in (root, root / "bin" / name):
        build = engine(configured=str(configured)).detect()
        assert build is not None
        assert (build.engine, build.version, build.usable) == (name, "1.2.3", True)
    links = tmp_path / "links"
    links.mkdir()
    (links / name).symlink_to(root / "bin" / name)
    monkeypatch.setenv("PATH", str(links))
    build = engine().detect()
    assert build is not None
    assert build.version == "1.2.3"
    build = engine(configured=str(tmp_path / "nowhere")).detect()
    assert build is not None
    assert not build.usable
    assert build.why_not.startswith(f"engine_paths.{name} in agent.yaml is {tmp_path}/nowhere, and there is no ")


@pytest.mark.parametrize("engine", [Vllm, Sglang])
def test_what_it_cannot_load_or_is_not_here_is_a_sentence(
    engine: type[Vllm | Sglang], tmp_path: Path, weights: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    with pytest.raises(InvalidInput, match=f"not installed: name it as engine_paths.{engine.name} in agent.yaml"):
        engine().command(launch(tmp_path, weights))
    here = engine(configured=str(environment(tmp_path, engine.name, "1.0")))
    single = tmp_path / "model.gguf"
    single.write_bytes(b"GGUF")
    with pytest.raises(InvalidInput, match=r"model\.gguf is none: write the source as hf:ORG/REPO@REVISION"):
        here.command(launch(tmp_path, single))
    with pytest.raises(InvalidInput, match="needs the path of a model"):
        here.command(launch(tmp_path, None))


@pytest.mark.parametrize(
    ("engine", "args", "reason"),
    [
        ("vllm", ["--hf-overrides", "{}"], "fetches or connects"),
        ("vllm", ["--trust-remote-code"], "switches a protection off"),
        ("vllm", ["--trust-remote"], "switches a protection off"),
        ("vllm", ["--allowed-local=/"], "switches a protection off"),
        ("vllm", ["--allowed-local-media-path", "/"], "reads or writes files"),
        ("vllm", ["--api-key", "x"], "its own key"),
        ("vllm", ["--api-k=x"], "its own key"),
        ("vllm", ["--gpu-memory-utilization", "0.9"], "memory the placement reserved"),
        ("vllm", ["-tp", "4"], "set the profile's tp"),
        ("vllm", ["--tensor_parallel_size=4"], "set the profile's tp"),
        ("vllm", ["--speculative-config", "{}"], "JSON that can name files and code"),
        ("vllm", ["--compilation-config={}"], "JSON that can name files and code"),
        ("vllm", ["--middleware", "os.system"], "loads the code it names"),
        ("vllm", ["--worker-cls", "x.Y"], "loads the code it names"),
        ("vllm", ["--logits-processors", "x.Y"], "loads the code it names"),
        ("vllm", ["--tool-parser-plugin", "x.py"], "loads the code it names"),
        ("vllm", ["--otlp-traces-endpoint", "http://x"], "connects or listens somewhere else"),
        ("vllm", ["--download-dir", "/x"], "reads or writes files"),
        ("vllm", ["--load-format", "pt"], "expected one of auto, safetensors"),
        ("vllm", ["--config", "x.yaml"], "not one of the flags"),
        ("vllm", ["--limit-mm-per-prompt", '{"image": {"x": 1}}'], "expected counts such as"),
        ("vllm", ["--enable-auto-tool-choice"], "needs a --tool-call-parser"),
        ("vllm", ["--", "--trust-remote-code"], "write each flag by its name"),
        ("vllm", ["@flags"], "a file with arguments is not read"),
        ("vllm", ["—trust-remote-code"], "outside printable ASCII"),
        ("sglang", ["--trust-remote-code"], "switches a protection off"),
        ("sglang", ["--config", "x.yaml"], "reads a file"),
        ("sglang", ["--json-model-override-args", "{}"], "JSON that can name files and code"),
        ("sglang", ["--mem-fraction-static=0.9"], "memory the placement reserved"),
        ("sglang", ["--tp", "8"], "set the profile's tp"),
        ("sglang", ["--dist-init-addr", "x:1"], "connects or listens somewhere else"),
        ("sglang", ["--tool-server", "x"], "loads the code it names"),
        ("sglang", ["--speculative-draft-model-path", "x"], "reads or writes files"),
        ("sglang", ["--load-format=npcache"], "expected one of auto, safetensors"),
        ("sglang", ["--admin-api-key", "x"], "its own key"),
    ],
)
def test_an_argument_is_refused_with_its_reason(engine: str, args: list[str], reason: str) -> None:
    with pytest.raises(InvalidInput, match=reason):
        adapter(engine).check_args(args, {})


@pytest.mark.parametrize(
    ("engine", "args", "checked"),
    [
        ("vllm", ["--enable-prefix-caching"], ("--enable-prefix-caching",)),
        (
            "vllm",
            ["-ep", "--max-num-batched-tokens=16384"],
            ("--enable-expert-parallel", *("--max-num-batched-tokens", "16384")),
        ),
        (
            "vllm",
            ["--limit-mm-per-prompt", '{"image": 2, "video": 0}'],
            ("--limit-mm-per-prompt", '{"image": 2, "video": 0}'),
        ),
        ("sglang", ["--expert-parallel-size=8"], ("--ep-size", "8")),
        ("sglang", ["--is-embedding"], ("--is-embedding",)),
    ],
)
def test_an_argument_is_given_in_one_spelling(engine: str, args: list[str], checked: tuple[str, ...]) -> None:
    assert adapter(engine).check_args(args, {}) == checked


def adapter(name: str) -> Engine:
    """The adapter of that name."""
    return known_engines(AgentConfig(data="/x"))[name]


def test_only_engines_that_are_packages_are_named_in_the_configuration() -> None:
    check_agent_config(AgentConfig(data="/x", engine_paths={"vllm": "/opt/vllm", "sglang": "/opt/sglang/bin/sglang"}))
    with pytest.raises(InvalidInput, match="'llamacpp' is not one of vllm, sglang"):
        check_agent_config(AgentConfig(data="/x", engine_paths={"llamacpp": "/x"}))


@pytest.mark.parametrize("version", ["", "0.30.0", "0.30.0rc1", "1!2.0+cu128", "0.30.0@2026-09-24"])
def test_a_version_to_install_may_have_a_day(version: str) -> None:
    check_agent_config(AgentConfig(data="/x", engines={"vllm": version}))


@pytest.mark.parametrize(
    "version", ["../0.30.0", "--index-url=http://x/", "0.30.0 other", "0.30.0@", "0.30.0@today", "0.30.0@2026-13-45"]
)
def test_what_is_no_version_reaches_no_command_line(version: str) -> None:
    with pytest.raises(InvalidInput, match="is no version: write"):
        check_agent_config(AgentConfig(data="/x", engines={"vllm": version}))


HELP = """#!/bin/sh
echo "options:"
{lines}
"""


def told_help(root: Path, program: str, flags: list[str], *, code: int = 0) -> None:
    """The program prints a help with these flags."""
    lines = "\n".join(f"echo '  {flag} VALUE'" for flag in flags)
    (root / "bin" / program).write_text(HELP.replace("{lines}", lines) + f"exit {code}\n")


@pytest.mark.parametrize("engine", [Vllm, Sglang])
def test_flags_an_engine_no_longer_knows_are_found_by_its_help(engine: type[Vllm | Sglang], tmp_path: Path) -> None:
    root = environment(tmp_path, engine.name, "9.0")
    here = engine(configured=str(root))
    written, allowed = written_flags(here), allowed_flags(here)
    assert {"--host", "--port", "--served-model-name"} < set(written)
    assert "--quantization" in allowed
    flags = [*written, *allowed]
    told_help(root, engine.name, flags)
    found = check(here)
    assert (found.unknown_written, found.unknown_allowed, found.failed) == ((), (), "")
    assert (found.written, found.allowed) == (len(written), len(allowed))
    condensed = [
        f"--[no-]{flag[5:]}" if flag.startswith("--no-") else flag for flag in flags if flag != "--quantization"
    ]
    told_help(root, engine.name, [*condensed, "--quantization-config"])
    found = check(here)
    assert (found.unknown_written, found.unknown_allowed) == ((), ("--quantization",))
    assert not found.good
    assert found.said().endswith(
        f"{len(allowed) - 1} of {len(allowed)} flags that profiles may add, not --quantization"
    )
    told_help(root, engine.name, ["no module named torch"], code=3)
    found = check(here)
    assert found.said() == (
        f"{engine.name} 9.0 could not be asked: its help ended with exit code 3: no module named torch VALUE"
    )


def test_the_engines_that_are_part_of_llmgw_take_all_their_flags(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda name, path=None: None)
    for name in ("llamacpp", "sim"):
        found = check(adapter(name))
        assert (found.unknown_written, found.unknown_allowed, found.failed) == ((), (), "")
        assert found.written + found.allowed > 20


def test_the_report_says_a_line_an_engine_and_whether_all_is_well(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    config = AgentConfig(data=str(tmp_path), engine_paths={"sglang": str(tmp_path / "nowhere")})
    assert report(config, ["sim"])
    assert not report(config, ["vllm", "sglang"])
    first, second, third = capsys.readouterr().out.splitlines()
    assert first.startswith("sim ")
    assert first.endswith(" flags that profiles may add")
    assert second == "vllm is not installed here"
    assert third.startswith("sglang could not be asked: engine_paths.sglang in agent.yaml is ")
    with pytest.raises(InvalidInput, match="'nope' is not one of llamacpp, sim, vllm, "):
        report(config, ["nope"])
