"""agent.yaml and what follows from it; host figures from made-up machines."""

from pathlib import Path

import msgspec
import pytest

from agent.config import AgentConfig, check_agent_config, engine_address, load_agent_config, node_name
from agent.discovery.host import (
    cpu_model,
    disk_free,
    host_facts,
    meminfo,
    memory_available,
    memory_total,
    os_name,
    usable_cpus,
)
from agent.provision.wishes import merged
from llmgw.core.errors import InvalidInput

KIB = 1024


def config(**fields: object) -> AgentConfig:
    """A configuration with these keys."""
    return msgspec.convert({"data": "/d", **fields}, AgentConfig)


def test_a_file_is_loaded_with_its_directory(tmp_path: Path) -> None:
    path = tmp_path / "agent.yaml"
    path.write_text("data: node\nservers: ['10.0.0.1:9443']\nengine_ports: 18000-18010\nskip_gpus: ['0']\n")
    loaded = load_agent_config(path)
    assert loaded.data_path == tmp_path / "node"
    assert list(loaded.ports) == list(range(18000, 18011))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("data: x\nlama_server: /x\n", "lama_server"),
        ("data: ''\n", "data"),
        ("{}", "data"),
        ("data: x\nengine_ports: 18000\n", "engine_ports"),
        ("data: x\nengine_ports: 2-1\n", "range of ports"),
        ("data: x\nengine_ports: 1-70000\n", "range of ports"),
        ("data: x\nservers: [nonsense]\n", "servers"),
        ("data: x\nmemory_reserve_gb: -1\n", "memory_reserve_gb"),
        ("data: x\nname: ../x\n", "name"),
        ("data: x\nengine_env: {'A=B': c}\n", "engine_env"),
        ("data: x\ndcgm_exporter: https://node:9400/metrics\n", "dcgm_exporter"),
        ("data: x\ndcgm_exporter: ''\n", "neither off nor http"),
        ("data: x\ndcgm_exporter: 'http://[::1'\n", "dcgm_exporter"),
        ("data: x\ndcgm_exporter: http://n:99999/\n", "dcgm_exporter"),
        ("data: x\nengines: {llamacpp: 0.30.0}\n", "engines.llamacpp: '0.30.0' is no release of llama.cpp"),
        ("data: x\nengines: {vllm: b10991}\n", "engines.vllm: 'b10991' is no version"),
        ("data: x\nengines: {sim: ''}\n", "'sim' is not one of vllm, sglang, freetoken, llamacpp"),
        ("data: x\nllamacpp_variant: rocm\n", "llamacpp_variant"),
        ("data: x\nllamacpp_sha256: abc\n", "'abc' is not 64 hex digits"),
        ("data: x\nllamacpp_releases: releases\n", "llamacpp_releases: 'releases' is no address"),
        ("data: x\nllamacpp_archive: https://h/a.zip\n", r"does not end with \.tar\.gz"),
        ("data: x\nwheelhouse: mirror:wheels\n", "is written mirror:/DIRECTORY"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "agent.yaml"
    path.write_text(text)
    with pytest.raises(InvalidInput, match=words):
        load_agent_config(path)


def test_engines_end_with_the_agent_by_file_or_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LLMGW_STOP_ENGINES", raising=False)
    assert not config().ends_engines
    assert config(stop_engines_on_exit=True).ends_engines
    monkeypatch.setenv("LLMGW_STOP_ENGINES", "1")
    assert config().ends_engines


def test_the_address_is_loopback_only_beside_loopback_servers() -> None:
    assert engine_address(config(), ("127.0.0.1:1", "[::1]:2", "localhost:3")) == "127.0.0.1"
    assert engine_address(config(address="node-7.lan"), ("10.0.0.1:1",)) == "node-7.lan"
    assert engine_address(config(), ()) == "127.0.0.1"


@pytest.mark.parametrize(
    ("host", "name"), [("GPU-Box.lan.example", "gpu-box"), ("a b_c", "a-b_c"), ("...", "node"), ("ÄÖ", "node")]
)
def test_a_node_is_called_after_its_host(host: str, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("socket.gethostname", lambda: host)
    assert node_name(config()) == name
    check_agent_config(config(name=name))


def machine(root: Path, **files: str) -> Path:
    """A root with these files; `__` in a name stands for `/`."""
    for name, text in files.items():
        path = root / name.replace("__", "/").replace("DOT", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def test_a_cgroup_limit_is_the_machines_size(tmp_path: Path) -> None:
    top = "sys__fs__cgroup__"
    root = machine(
        tmp_path,
        proc__meminfo="MemTotal:  1000 kB\nMemAvailable:  900 kB\n",
        proc__self__cgroup="0::/a/b\n",
        **{
            f"{top}a__memoryDOTmax": str(400 * KIB),
            f"{top}a__memoryDOTcurrent": str(300 * KIB),
            f"{top}a__memoryDOTstat": f"anon 1\ninactive_file {50 * KIB}\n",
            f"{top}a__b__memoryDOTmax": "max\n",
            f"{top}a__b__cpuDOTmax": "100000 100000\n",
        },
    )
    assert memory_total(root=root) == 400 * KIB
    assert memory_available(root=root) == 150 * KIB
    assert usable_cpus(root=root) == 1


@pytest.mark.parametrize("theirs", [True, False], ids=["a card's", "an expander's"])
def test_what_a_card_hands_to_the_kernel_is_not_the_nodes_as_well(tmp_path: Path, theirs: bool) -> None:
    """A GH200, as it says itself: the kernel's total has the card's 95 GiB in it, which the card is told with."""
    nodes = {
        f"sys__devices__system__node__node{number}__{name}": text
        for number, total, free, cpus in (
            (0, 502_070_272, 165_880_832, "0-71"),
            (1, 99_614_720, 99_606_528, ""),
            (2, 0, 0, ""),
        )
        for name, text in (
            ("cpulist", f"{cpus}\n"),
            ("meminfo", f"Node {number} MemTotal:       {total} kB\nNode {number} MemFree:        {free} kB\n"),
        )
    }
    root = machine(
        tmp_path,
        proc__meminfo="MemTotal:       601684992 kB\nMemFree:  265487360 kB\nMemAvailable:   551693760 kB\n",
        proc__iomem=f"00000000-00000000 : System RAM{' (NVIDIA)' if theirs else ' (kmem)'}\n",
        **nodes,
    )
    total, available = (502_070_272, 452_087_232) if theirs else (601_684_992, 551_693_760)
    assert (memory_total(root=root), memory_available(root=root)) == (total * KIB, available * KIB)


def test_a_machine_without_cgroups_is_as_large_as_it_is(tmp_path: Path) -> None:
    root = machine(tmp_path, proc__meminfo="MemTotal:  1000 kB\nMemAvailable:  900 kB\n")
    assert (memory_total(root=root), memory_available(root=root)) == (1000 * KIB, 900 * KIB)
    assert usable_cpus(root=root) >= 1
    assert memory_available(root=tmp_path / "nothing") is None
    assert memory_total(root=tmp_path / "nothing") == 0


def test_texts_of_the_host_are_read() -> None:
    assert meminfo("A: 3 kB\nB: 4\nC:\nnonsense\n") == {"A": 3 * KIB, "B": 4}
    assert cpu_model("processor: 0\nmodel name\t: AMD EPYC\n") == "AMD EPYC"
    assert cpu_model("") != ""
    assert os_name('NAME=x\nPRETTY_NAME="Debian 12"\n') == "Debian 12"


def test_this_machine_has_everything(tmp_path: Path) -> None:
    facts = host_facts(tmp_path / "not" / "yet")
    assert facts.cpus >= 1
    assert facts.memory_total_bytes > 0
    assert facts.disk_total_bytes > 0
    assert (disk_free(tmp_path / "not" / "yet") or 0) > 0


@pytest.mark.parametrize(
    ("engine", "version"),
    [("llamacpp", "b10991"), ("vllm", "0.30.0"), ("sglang", "0.5.23"), ("freetoken", "0.2.1")],
)
def test_the_default_version_is_the_one_whose_flags_were_compared(engine: str, version: str) -> None:
    check_agent_config(AgentConfig(data="/x", engines={engine: "default"}))
    assert merged({engine: "default"}, {}) == {engine: version}
    assert merged({engine: "1.0"}, {engine: "default"}) == {engine: version}
    assert merged({engine: "default"}, {engine: "none"}) == {}
    assert merged({engine: ""}, {}) == {}
