"""A mistaken command line is answered with one sentence, by the command it was meant for."""

import argparse
from collections.abc import Callable
from pathlib import Path

import pytest

from llmgw.cli import agent, console, server, sim_fleet
from llmgw.cli.ctl import build_parser
from llmgw.cli.parsing import Parser, nearest


def refused(line: str, capsys: pytest.CaptureFixture[str]) -> str:
    """What ctl says to these words."""
    with pytest.raises(SystemExit) as caught:
        build_parser().parse_args(line.split())
    assert caught.value.code == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    return err


@pytest.mark.parametrize("way", ["--rpm -1", "--rpm=-1"])
def test_a_negative_figure_is_told_what_would_do(way: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert refused(f"keys limits x {way}", capsys) == (
        "llmgw ctl keys limits: --rpm: '-1' is no whole number from 0 on: give digits alone, 13 at most, or none; "
        "see llmgw ctl keys limits --help\n"
    )


def test_a_negative_position_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert "ctl model scale: MIN: '-1' is no whole number from 0 on: give digits" in refused(
        "model scale x -1 2", capsys
    )


def test_a_figure_too_many_is_told_which_options_take_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert refused("bands set batch -1", capsys).startswith(
        "llmgw ctl bands set: there is no place for '-1': it takes NAME and options such as --priority N, "
        "--queue-ttl S|none; see"
    )
    assert "'extra': it takes no word" in refused("status extra", capsys)


@pytest.mark.parametrize("way", [["--last", "-1h"], ["--last=-1h"]])
def test_a_value_of_a_dash_and_a_digit_reaches_whoever_reads_it(way: list[str]) -> None:
    assert build_parser().parse_args(["series", "work", *way]).last == "-1h"
    assert build_parser().parse_args(["keys", "budget", "x", "-5/day"]).budget == "-5/day"
    assert build_parser().parse_args(["config", "set", "a.b", "-.5"]).value == "-.5"
    assert build_parser().parse_args(["bands", "set", "batch", "--priority", "-5"]).priority == "-5"


@pytest.mark.parametrize("way", ["--arg --flag", "--arg"])
def test_a_missing_value_tells_how_one_with_dashes_is_written(way: str, capsys: pytest.CaptureFixture[str]) -> None:
    said = refused(f"model serve sim: {way}", capsys)
    assert "model serve: --arg needs a value after it; one that begins with a dash is written --arg=VALUE" in said
    assert build_parser().parse_args(["model", "serve", "sim:", "--arg=--flag"]).arg == ["--flag"]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("model serve sim: --nam x", "ctl model serve: there is no option '--nam'; did you mean '--name'?"),
        ("bands set batch --pri 3", "ctl bands set: there is no option '--pri'; did you mean '--priority'?"),
        ("bands set batch --prority=3", "there is no option '--prority'; did you mean '--priority'?"),
        ("status --jsno", "ctl status: there is no option '--jsno'; did you mean '--json'?"),
        ("status --rpm 1", "ctl status: there is no option '--rpm'; see"),
        ("status --json=yes", "ctl status: --json takes no value"),
        ("modle", "ctl: VERB: 'modle' is not known; did you mean 'model'"),
        ("keys lst", "ctl keys: VERB: 'lst' is not known; did you mean 'list'?"),
        ("usage --by colour", "--by: 'colour' is not known; known are key_model, key, team, tenant, model"),
        ("logs server --tail ten", "--tail: 'ten' is no whole number from 0 on"),
        ("keys limits --rpm 1", "ctl keys limits: the following arguments are required: ID"),
    ],
)
def test_what_is_not_known_is_said_with_what_is_near(line: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert said in refused(line, capsys)


@pytest.mark.parametrize(
    ("run", "arguments", "said"),
    [
        (
            agent.main,
            ["--cofnig", "x", "-c", "a"],
            "llmgw agent: there is no option '--cofnig'; did you mean '--config'?",
        ),
        (agent.main, ["join", "t", "u", "--dat", "x"], "llmgw agent join: there is no option '--dat'; did you mean"),
        (server.main, ["-c", "x", "--port=1"], "llmgw server: there is no option '--port'; see llmgw server --help"),
        (console.main, ["--theme", "drak"], "llmgw console: --theme: 'drak' is not known; did you mean 'dark'?"),
        (sim_fleet.main, ["--nodes", "many"], "llmgw sim-fleet: --nodes: 'many' is no whole number"),
    ],
)
def test_every_command_answers_so(
    run: Callable[[list[str]], int], arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        run(arguments)
    err = capsys.readouterr().err
    assert (caught.value.code, err.count("\n")) == (2, 1)
    assert err.startswith(said)


def test_what_a_wrong_word_holds_never_reaches_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        build_parser().parse_args(["status", "\x1b]0;t\x07" + "x" * 10_000])
    err = capsys.readouterr().err
    assert "\x1b" not in err
    assert len(err) < 300


def test_a_path_is_still_a_path() -> None:
    parser = Parser(prog="p")
    parser.add_argument("--to", type=Path)
    assert parser.parse_args(["--to", "a/b"], argparse.Namespace()).to == Path("a/b")


def test_names_near_a_word() -> None:
    assert nearest("--fo", ["--follow", "--force", "--from"]) == ("--follow", "--force")
    assert nearest("mod", ["modes", "model", "models", "module"]) == ("model", "models", "modes")
    assert nearest("--c", ["--a-long-one", "--context-length"]) == ("--context-length",)
    assert nearest("--", ["--follow"]) == ()
    assert nearest("zzz", ["--follow"]) == ()
