"""Strata: where it is meant for, its command line, its context and slots, and what a profile may not give it."""

from pathlib import Path

import pytest

from agent.config import AgentConfig, check_agent_config
from agent.engines.base import Launch
from agent.engines.check import check
from agent.engines.strata import Strata
from agent.provision.meant import Machine
from agent.provision.wishes import sound
from llmgw.api.types import ServeRequest
from llmgw.control.models import checked
from llmgw.control.serve import model_for
from llmgw.core.catalog import ModelFacts
from llmgw.core.cluster import Card, EngineBuild
from llmgw.core.engine_builds import check_build
from llmgw.core.engine_flags import ALLOWED
from llmgw.core.errors import InvalidInput
from llmgw.core.placement import place
from llmgw.wire.llmgw.v1 import ShardSpec
from tests.support.builders import GB, a_card, a_model, a_node, a_profile, a_snapshot, an_entry
from tests.support.strata_stand_in import strata_stand_in

SOURCE = "hf:ISTA-DASLab/Flash-GGUF@0123456789abcdef0123456789abcdef01234567/m-IQ2_XS-00001-of-00002.gguf"
MODEL = ("--family", "qwen", "--model", "IQ2_XS")


def machine(*cards: Card, architecture: str = "x86_64") -> Machine:
    return Machine(architecture=architecture, cards=lambda: cards, toolkit=lambda _: None, program=lambda _: None)


def card(capability: str = "8.9", driver: str = "580.65.06", index: int = 2) -> Card:
    return a_card(index, compute_capability=capability, driver=driver)


def launch(tmp_path: Path, *, args: tuple[str, ...] = MODEL, cards: int = 1) -> Launch:
    weights = tmp_path / "set"
    weights.mkdir()
    (weights / "m-00001-of-00002.gguf").touch()
    (weights / "m-00002-of-00002.gguf").touch()
    spec = ShardSpec(
        model="flash",
        card_uuids=[f"GPU-n1-{i + 2}" for i in range(cards)],
        context_length=32768,
        slots=1,
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


def test_the_command_line_sets_it_up_with_the_context_that_is_served(tmp_path: Path) -> None:
    root = strata_stand_in(tmp_path / "strata")
    command = Strata(configured=str(root), machine=machine(card())).command(launch(tmp_path))
    data = str(tmp_path / "cache" / "data")
    assert command.argv[1:] == (
        *("-P", "-m", "agent.engines.strata_launcher"),
        *(str(root), data, "flash", "10.0.0.7", "18001"),
        *("--setup", "--yes", "--no-start", "--no-browser"),
        *("--gguf-dir", str(tmp_path / "set")),
        *("--data-dir", data),
        *("--context", "32768"),
        *("--vision", "no"),
        *("--experimental-speed-projection", "off"),
        *("--gpu", "2"),
        *MODEL,
    )
    assert command.key_variable == "STRATA_API_KEY"
    assert command.patience_s >= 3600
    assert command.directories == (tmp_path / "cache" / "data",)


def test_its_help_is_asked_for_every_flag(tmp_path: Path) -> None:
    known = (
        "--setup --yes --no-start --no-browser --gguf-dir --data-dir --context --vision "
        "--experimental-speed-projection --gpu "
    )
    root = strata_stand_in(tmp_path / "a", flags=known + " ".join(ALLOWED["strata"]))
    found = check(Strata(configured=str(root), machine=machine(card())))
    assert (found.failed, found.unknown_written, found.unknown_allowed) == ("", (), ())
    older = strata_stand_in(tmp_path / "b", flags=known)
    assert "--kv" in check(Strata(configured=str(older), machine=machine(card()))).unknown_allowed


@pytest.mark.parametrize(
    ("here", "words"),
    [
        (machine(card("8.9", "575.57.08")), ""),
        (machine(card("6.1", "580.65.06")), ""),
        (machine(card("12.0", "580.65.06")), ""),
        (machine(card("8.9", "570.10.01")), "needs driver 575 or newer and this node has 570.10.01"),
        (machine(card("12.0", "575.57.08")), "needs driver 580 or newer and this node has 575.57.08"),
    ],
)
def test_older_cards_do_with_an_older_driver(tmp_path: Path, here: Machine, words: str) -> None:
    build = Strata(configured=str(strata_stand_in(tmp_path / "strata")), machine=here).detect()
    assert build is not None
    assert (build.version, build.usable) == ("0.2.7", not words)
    assert words in build.why_not


def test_it_is_opt_in_and_no_fault_where_it_cannot_run(tmp_path: Path) -> None:
    root = str(strata_stand_in(tmp_path / "strata"))
    assert Strata(machine=machine(card())).detect() is None
    assert Strata(configured=root, machine=machine()).detect() is None
    assert Strata(configured=root, machine=machine(card("5.2"))).detect() is None
    assert Strata(configured=root, machine=machine(card(), architecture="aarch64")).detect() is None
    (tmp_path / "strata" / ".venv" / "bin" / "python").unlink()
    build = Strata(configured=root, machine=machine(card())).detect()
    assert build is not None
    assert build.why_not.endswith("there is no .venv/bin/python in it: its own setup.sh makes it")
    with pytest.raises(InvalidInput, match=r"name its directory as engine_paths\.strata"):
        Strata(machine=machine(card())).command(launch(tmp_path))


def test_several_cards_are_refused(tmp_path: Path) -> None:
    root = str(strata_stand_in(tmp_path / "strata"))
    with pytest.raises(InvalidInput, match="runs on one card, and this replica has 2"):
        Strata(configured=root, machine=machine(card())).command(launch(tmp_path, cards=2))


def test_a_model_names_what_it_is_and_answers_one_request_at_a_time() -> None:
    request = ServeRequest(source=SOURCE, engine="strata", gpu_class="rtx4090-24g", args=MODEL)
    model = model_for(request)
    checked(model)
    assert [profile.slots for profile in model.profiles] == [1]
    with pytest.raises(InvalidInput, match="answers one request at a time: slots is 1"):
        checked(a_model(source=SOURCE, profiles=(a_profile(engine="strata", gpu_class="c", slots=4, args=MODEL),)))
    with pytest.raises(InvalidInput, match="add --family and --model, as in --family qwen --model IQ2_XS"):
        model_for(ServeRequest(source=SOURCE, engine="strata", gpu_class="c"))
    with pytest.raises(InvalidInput, match="strata loads GGUF files"):
        model_for(ServeRequest(source="hf:a/b@0123456", engine="strata", gpu_class="c", args=MODEL))
    with pytest.raises(InvalidInput, match="strata runs on cards: say which"):
        model_for(ServeRequest(source=SOURCE, engine="strata", args=MODEL))


def test_weights_larger_than_the_card_are_placed_and_too_little_memory_is_not() -> None:
    facts = ModelFacts(weights_bytes=80 * GB, experts=128, expert_bytes=(GB,) * 48)
    profile = a_profile(engine="strata", gpu_class="rtx4090-24g", slots=1, args=MODEL)
    entry = an_entry(a_model(source=SOURCE, profiles=(profile,)), facts=facts)
    cards = (a_card(memory=24 * GB, gpu_class="rtx4090-24g"),)
    engines = (EngineBuild(engine="strata", version="0.2.7"),)
    enough = place(entry, a_snapshot(nodes=(a_node(memory=64 * GB, cards=cards, engines=engines),)))
    assert enough.placement is not None
    assert enough.placement.host_bytes == 52 * GB
    less = place(entry, a_snapshot(nodes=(a_node(memory=32 * GB, cards=cards, engines=engines),)))
    assert less.message == "n1: needs 52 GB of memory beside the card, has 31.5 GB free, 20.5 GB missing"


@pytest.mark.parametrize(
    ("args", "reason"),
    [
        (["--context", "4096"], "set context_length instead"),
        (["--cont=4096"], "it may be read as --context: set context_length instead"),
        (["--parallel", "4"], "one request at a time"),
        (["--gpu-roles", "2"], "the one card the scheduler chose"),
        (["--backend", "hip"], "the one card the scheduler chose"),
        (["--experimental-speed-projection", "on"], "changes what the model answers"),
        (["--exper=on"], "it may be read as --experimental-speed-projection"),
        (["--api-key", "x"], "its own key"),
        (["--host", "0.0.0.0"], "where the engine listens"),
        (["--data-dir", "/"], "weights come by source"),
        (["--vision", "yes"], "further model files"),
        (["--model", "../x"], "expected a name"),
        (["--kv", "fp64"], "expected one of int8"),
    ],
)
def test_what_its_setup_sets_is_refused_abbreviated_too(args: list[str], reason: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        Strata().check_args(args, {})
    assert reason in refused.value.message


def test_no_version_of_it_is_fetched_unchecked_and_the_sentence_says_what_to_set() -> None:
    words = r"nothing is run unchecked.* name its directory as engine_paths\.strata in agent\.yaml"
    with pytest.raises(InvalidInput, match=words) as refused:
        check_agent_config(AgentConfig(data="/x", engines={"strata": "0.2.7"}))
    assert refused.value.field == "engines.strata"
    # What the cluster asks of a node is held to the same, and so is a node that is asked all the same.
    with pytest.raises(InvalidInput, match=words):
        check_build("strata", "0.2.7")
    assert sound({"strata": "0.2.7", "vllm": "0.30.0"}) == {"vllm": "0.30.0"}
    check_agent_config(AgentConfig(data="/x", engine_paths={"strata": "/opt/strata"}))
