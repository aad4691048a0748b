"""The registry is whole: each action has its own route, a permission, and a verb whose arguments fill its path."""

import re

import pytest

from llmgw.api.actions import ACTIONS, BY_ID, Action, Danger, Permission
from llmgw.api.paths import PREFIX, fill, parameters, with_query
from llmgw.cli.ctl import build_parser
from llmgw.cli.groups import HANDLERS

each = pytest.mark.parametrize("action", ACTIONS, ids=lambda action: action.id)


def test_ids_and_routes_and_verbs_are_unique() -> None:
    assert len(BY_ID) == len(ACTIONS)
    assert len({(a.method, re.sub(r"\{[a-z_]+\}", "{}", a.path)) for a in ACTIONS}) == len(ACTIONS)
    verbs = [verb for a in ACTIONS for verb in (a.verb, *a.views) if verb]
    assert len(set(verbs)) == len(verbs)


@each
def test_an_action_is_whole(action: Action) -> None:
    assert action.path.startswith(PREFIX + "/")
    assert action.permission in Permission
    assert action.help[0].islower() or action.help.startswith("API")
    assert not action.help.endswith(".")
    names = {argument.key for argument in action.arguments}
    if action.verb:
        assert set(parameters(action.path)) <= names
    else:
        assert any(action.id in other.covers for other in ACTIONS)


@each
def test_whoever_only_looks_can_break_nothing(action: Action) -> None:
    if action.method == "GET":
        assert action.danger is Danger.NONE
        assert action.request is None
    if action.permission is Permission.VIEWER:
        assert action.danger is Danger.NONE
        assert action.method == "GET" or action.id in ("model.explain-serve", "node.sample")


def test_every_verb_has_a_handler_and_every_handler_a_verb() -> None:
    assert {verb for a in ACTIONS for verb in (a.verb, *a.views) if verb} == set(HANDLERS)


def test_the_verbs_of_this_version() -> None:
    spelled = {" ".join(verb) for verb in HANDLERS}
    assert spelled == {
        "status", "nodes", "node show", "node cordon", "node uncordon", "node builds", "node build", "node sample",
            "models", "model serve", "model add",
        "model show", "model stop", "model start", "model scale", "model fallbacks", "model remove", "replicas",
        "restart", "explain",
        "keys list", "keys create", "keys limits", "keys budget", "keys move", "keys revoke", "keys band", "usage",
        "teams list", "teams create", "teams limits", "teams budget", "teams move", "teams remove", "teams band",
        "bands list", "bands set", "bands remove",
        "tenants list", "tenants create", "tenants limits", "tenants budget", "tenants remove",
        "join-token", "logs", "config list", "config get", "config set", "config reference",
        "requests", "why",
        "audit", "weights list", "weights fetch", "weights verify", "weights remove", "weights orphans",
        "watch", "history", "top", "series", "engine-check",
    }  # fmt: skip


@pytest.mark.parametrize(
    "line",
    [
        "keys create x --rpm many",
        "keys limits x --rpm -1",
        "keys limits --rpm 1",
        "keys revoke",
        "keys cache",
        "tenants move x y",
        "usage --by colour",
        "model serve sim: --on-demand",
        "model serve sim: --nam x",
        "weights pin x",
        "node drain gpu0",
        "events",
        "model update x",
        "status extra",
        "model scale x 1",
        "model scale x one 2",
        "model serve",
        "model",
        "logs server --tail -1",
        "",
    ],
)
def test_what_comes_later_is_unknown_not_ignored(line: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        build_parser().parse_args(line.split())
    assert caught.value.code == 2
    assert "--help" in capsys.readouterr().err


@pytest.mark.parametrize("line", ["--json --server s status", "status --json --server s", "--server s status --json"])
def test_global_options_stand_before_or_after_the_verb(line: str) -> None:
    args = build_parser().parse_args(line.split())
    assert (args.json, args.server, args.yes, args.token_file) == (True, "s", False, None)


def test_global_options_in_the_middle_of_a_group() -> None:
    args = build_parser().parse_args(["--yes", "keys", "--json", "create", "--server", "s", "x", "--models", "a,b"])
    assert (args.yes, args.json, args.server, args.name, args.models) == (True, True, "s", "x", ["a,b"])
    assert build_parser().parse_args(["keys"])._verb == ("keys", "list")


def test_paths_are_filled_and_quoted() -> None:
    assert fill("/a/{name}/b", {"name": "org/m ?#%"}) == "/a/org%2Fm%20%3F%23%25/b"
    assert with_query("/a", {"x": True, "y": None, "z": 3, "s": "a&b"}) == "/a?x=true&z=3&s=a%26b"
    assert with_query("/a", {"y": None}) == "/a"
