"""Ray's part of a replica over several nodes: what it is told, where it listens, and whom it takes in."""

import os
import stat
from pathlib import Path

import pytest

from agent import shared
from agent.config import AgentConfig
from agent.engines import known_engines
from agent.engines.base import Launch
from agent.engines.check import check
from agent.engines.ray import TOKEN_VARIABLE, further_ports
from agent.engines.ray_launcher import BETWEEN
from agent.engines.vllm import Vllm
from agent.ports import free_ports
from agent.shared import make_shared, remove_shared, shared_directory, token_of
from llmgw.core.errors import InvalidInput, Unavailable
from llmgw.wire.llmgw.v1 import ShardPlace, ShardSpec
from tests.support import ray_standin

KEY = "ek-0123456789abcdef"


def spec(rank: int, *, cards: int = 2) -> ShardSpec:
    places = [
        ShardPlace(node=f"n{i}", address=f"10.0.0.{i}", card_uuids=[f"GPU-{i}-{k}" for k in range(cards)])
        for i in (1, 2)
    ]
    return ShardSpec(
        shard_id=f"r1/{rank}",
        replica_id="r1",
        model="m",
        engine="vllm",
        rank=rank,
        places=places,
        card_uuids=places[rank].card_uuids,
        context_length=1024,
        slots=2,
        tp=2,
        pp=2,
    )


def launch(tmp_path: Path, rank: int) -> Launch:
    weights = tmp_path / "weights"
    weights.mkdir(exist_ok=True)
    (weights / "config.json").write_text("{}")
    wanted = spec(rank)
    return Launch(
        spec=wanted,
        weights=weights,
        host="127.0.0.1",
        port=18000,
        key_file=tmp_path / "engine.key",
        cpus=2,
        further=tuple(range(18001, 18001 + further_ports(wanted))),
        head="10.0.0.1:18001" if rank else "",
        shared=tmp_path / "shared",
    )


def flags(argv: tuple[str, ...]) -> dict[str, str]:
    """Flags with their values; the empty text for switches."""
    following = (*argv[1:], "--")
    return {a: "" if b.startswith("--") else b for a, b in zip(argv, following, strict=True) if a.startswith("--")}


def ports(given: dict[str, str]) -> list[str]:
    """Every port a command line names."""
    single = [value for flag, value in given.items() if flag.endswith("-port") or flag == "--port"]
    return [*single, *given["--worker-port-list"].split(",")]


def test_a_worker_is_ray_alone_and_joins_where_it_is_told(tmp_path: Path) -> None:
    ray = known_engines(
        AgentConfig(data=str(tmp_path), engine_paths={"vllm": str(ray_standin.install(tmp_path / "environment"))})
    )["ray"]
    command = ray.command(launch(tmp_path, 1))
    given = flags(command.argv)
    assert command.argv[:3] == (str(tmp_path / "environment" / "bin" / "ray"), "start", "--block")
    assert (given["--address"], given["--node-ip-address"], given["--num-gpus"]) == ("10.0.0.1:18001", "10.0.0.2", "2")
    assert given["--node-manager-port"] == "18000"
    assert "--head" not in given
    assert command.env["RAY_AUTH_MODE"] == "token"
    logs = int(command.env["RAY_ROTATION_MAX_BYTES"]) * (1 + int(command.env["RAY_ROTATION_BACKUP_COUNT"]))
    assert 0 < logs <= 64 * 2**20
    assert command.env["VLLM_HOST_IP"] == "10.0.0.2"
    assert (command.token_variable, command.key_variable) == (TOKEN_VARIABLE, "")
    assert len(set(ports(given))) == further_ports(spec(1)) + 1


def test_a_head_runs_ray_and_beside_it_the_engine(tmp_path: Path) -> None:
    root = ray_standin.install(tmp_path / "environment")
    command = Vllm(configured=str(root)).command(launch(tmp_path, 0))
    argv = list(command.argv)
    first = argv.index(BETWEEN)
    second = argv.index(BETWEEN, first + 1)
    assert argv[first - 1] == "10.0.0.1:18001"
    runtime, engine = flags(tuple(argv[first + 1 : second])), flags(tuple(argv[second + 1 :]))
    assert (runtime["--head"], runtime["--port"], runtime["--include-dashboard"]) == ("", "18001", "false")
    assert "--disable-usage-stats" in runtime
    assert engine["--distributed-executor-backend"] == "ray"
    assert (engine["--tensor-parallel-size"], engine["--pipeline-parallel-size"]) == ("2", "2")
    assert argv[second + 3] == str(tmp_path / "shared" / "model")
    assert (command.key_variable, command.token_variable) == ("VLLM_API_KEY", TOKEN_VARIABLE)
    assert len(set(ports(runtime))) == further_ports(spec(0))


def test_on_one_node_nothing_of_it_is_used(tmp_path: Path) -> None:
    root = ray_standin.install(tmp_path / "environment")
    alone = ShardSpec(shard_id="r1/0", model="m", engine="vllm", context_length=1024, slots=2, tp=2, pp=2)
    (tmp_path / "config.json").write_text("{}")
    command = Vllm(configured=str(root)).command(
        Launch(spec=alone, weights=tmp_path, host="127.0.0.1", port=1, key_file=tmp_path / "k", cpus=1)
    )
    assert flags(command.argv)["--pipeline-parallel-size"] == "2"
    assert "--distributed-executor-backend" not in command.argv
    assert command.token_variable == ""
    assert further_ports(alone) == 0


@pytest.mark.parametrize(("version", "why"), [("2.51.1", "2.52 or newer is needed"), ("unreadable", "2.52 or newer")])
def test_a_ray_without_tokens_is_not_used(tmp_path: Path, version: str, why: str) -> None:
    root = ray_standin.install(tmp_path / "environment", ray_version=version)
    ray = known_engines(AgentConfig(data=str(tmp_path), engine_paths={"vllm": str(root)}))["ray"]
    build = ray.detect()
    assert build is not None
    assert not build.usable
    assert why in build.why_not
    with pytest.raises(InvalidInput, match=r"2\.52 or newer"):
        ray.command(launch(tmp_path, 1))


def test_a_vllm_without_ray_serves_on_one_node_alone(tmp_path: Path) -> None:
    root = ray_standin.install(tmp_path / "environment")
    (root / "bin" / "ray").unlink()
    vllm = Vllm(configured=str(root))
    assert known_engines(AgentConfig(data=str(tmp_path), engine_paths={"vllm": str(root)}))["ray"].detect() is None
    with pytest.raises(InvalidInput, match="came without Ray"):
        vllm.command(launch(tmp_path, 0))


def test_it_is_found_where_a_link_to_the_engine_leads(tmp_path: Path) -> None:
    root = ray_standin.install(tmp_path / "environment")
    link = tmp_path / "bin" / "vllm"
    link.parent.mkdir()
    link.symlink_to(root / "bin" / "vllm")
    ray = known_engines(AgentConfig(data=str(tmp_path), engine_paths={"vllm": str(link)}))["ray"]
    build = ray.detect()
    assert build is not None
    assert (build.version, build.usable) == ("2.55.0", True)
    assert ray.command(launch(tmp_path, 1)).argv[0] == str((root / "bin" / "ray").resolve())


def test_its_flags_are_checked_against_its_help(tmp_path: Path) -> None:
    root = ray_standin.install(tmp_path / "environment")
    (root / "bin" / "ray").write_text("#!/bin/sh\necho '--address --block --head --port'\n")
    found = check(known_engines(AgentConfig(data=str(tmp_path), engine_paths={"vllm": str(root)}))["ray"])
    assert found.installed
    assert "--worker-port-list" in found.unknown_written
    assert "--port" not in found.unknown_written


def test_a_token_says_nothing_of_the_key_it_comes_from() -> None:
    assert token_of(KEY) == token_of(KEY) != token_of(KEY + "x")
    assert KEY not in token_of(KEY)


def test_ports_are_all_different_and_none_that_was_given(unused_ports: range) -> None:
    taken = {unused_ports[0], unused_ports[3]}
    found = free_ports("127.0.0.1", unused_ports, 5, taken=taken, hint="r1/0")
    assert len(set(found)) == 5
    assert not taken & set(found)
    with pytest.raises(Unavailable, match="widen engine_ports"):
        free_ports("127.0.0.1", unused_ports, len(unused_ports), taken=taken, hint="r1/0")


@pytest.fixture
def unused_ports() -> range:
    from tests.support.agent_node import free_ports as told

    first, _, last = told(60).partition("-")
    return range(int(first), int(last) + 1)


def test_the_shared_directory_is_this_accounts_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared, "ROOT", tmp_path)
    weights = tmp_path / "set"
    weights.mkdir()
    (weights / "config.json").write_text("{}")
    made = make_shared("r1", weights)
    assert made == shared_directory("r1") != shared_directory("r2")
    assert stat.S_IMODE(made.stat().st_mode) == 0o700
    assert (made / "model" / "config.json").read_text() == "{}"
    assert make_shared("r1", weights) == made
    remove_shared("r1")
    assert not made.exists()
    assert (weights / "config.json").exists()


@pytest.mark.parametrize("trap", ["open", "link", "file"])
def test_a_directory_that_somebody_else_put_there_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, trap: str
) -> None:
    monkeypatch.setattr(shared, "ROOT", tmp_path)
    where, elsewhere = shared_directory("r1"), tmp_path / "elsewhere"
    elsewhere.mkdir(mode=0o700)
    (elsewhere / "kept").touch()
    if trap == "open":
        where.mkdir()
        os.chmod(where, 0o777)
    elif trap == "link":
        where.symlink_to(elsewhere)
    else:
        where.touch()
    with pytest.raises(Unavailable):
        make_shared("r1", None)
    if trap == "link":
        remove_shared("r1")
        assert (elsewhere / "kept").exists()
