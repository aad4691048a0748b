"""Which server a client talks to, in the documented order, and what is refused on the way."""

import os
from pathlib import Path

import pytest

from llmgw.api import targets
from llmgw.api.problems import Exit, Unreachable, Usage, error_of, problem_of
from llmgw.api.targets import ServerTarget, parse_server, resolve
from llmgw.api.types import Problem
from llmgw.core.errors import Conflict, InvalidInput, NotAllowed, Unauthenticated


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("unix:/run/x/admin.sock", "unix:/run/x/admin.sock"),
        ("unix:///run/x", "unix:/run/x"),
        ("/run/x y", "unix:/run/x y"),
        ("./x", "unix:x"),
        ("http://127.0.0.1:9090", "http://127.0.0.1:9090"),
        ("http://h/", "http://h:80"),
        ("https://h", "https://h:443"),
        ("http://[::1]:9", "http://[::1]:9"),
    ],
)
def test_forms(text: str, shown: str) -> None:
    assert str(parse_server(text, source="--server")) == shown


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x",
        "unix:",
        "ftp://x",
        "http://",
        "http://x:99999",
        "http://u:p@x",
        "http://x/api",
        "http://x?y",
        "http://[x",
    ],
)
def test_refusals_name_the_source(text: str) -> None:
    with pytest.raises(Usage) as caught:
        parse_server(text, source="LLMGW_SERVER")
    assert caught.value.message.startswith("LLMGW_SERVER: ")
    assert "admin.sock" in caught.value.message


def test_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    environ = {"HOME": str(tmp_path)}
    monkeypatch.setattr(targets, "SYSTEM_SOCKET", tmp_path / "system.sock")
    with pytest.raises(Unreachable) as caught:
        resolve(server=None, token_file=None, environ=environ)
    assert caught.value.exit_code == 3

    demo = tmp_path / targets.DEMO_SOCKET
    demo.parent.mkdir(parents=True)
    demo.touch()
    assert resolve(server=None, token_file=None, environ=environ) == ServerTarget(socket=demo)
    (tmp_path / "system.sock").touch()
    assert resolve(server=None, token_file=None, environ=environ) == ServerTarget(socket=tmp_path / "system.sock")

    profiles = tmp_path / ".config/llmgw/profiles.yaml"
    profiles.parent.mkdir(parents=True)
    profiles.write_text("servers: {a: {server: 'http://a:1', token_file: t}}\n")
    assert resolve(server=None, token_file=None, environ=environ).socket == tmp_path / "system.sock"
    token = tmp_path / "t"
    token.write_text("secret-token-1\nrest\n")
    profiles.write_text(f"current: a\nservers: {{a: {{server: 'http://a:1', token_file: '{token}'}}}}\n")
    assert resolve(server=None, token_file=None, environ=environ) == ServerTarget(
        host="a", port=1, token="secret-token-1"
    )

    environ["LLMGW_SERVER"] = "http://b:2"
    assert resolve(server=None, token_file=None, environ=environ) == ServerTarget(host="b", port=2)
    assert resolve(server="http://c:3", token_file=str(token), environ=environ).token == "secret-token-1"


def test_a_wrong_profile_is_named(tmp_path: Path) -> None:
    path = tmp_path / "llmgw/profiles.yaml"
    path.parent.mkdir()
    environ = {"HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path)}
    for text, part in (
        ("current: b\nservers: {a: {server: x}}\n", "not among servers (a)"),
        ("curent: a\n", "did you mean"),
    ):
        path.write_text(text)
        with pytest.raises(Usage) as caught:
            resolve(server=None, token_file=None, environ=environ)
        assert part in caught.value.message
        assert str(path) in caught.value.message


def test_token_files(tmp_path: Path) -> None:
    path = tmp_path / "token"
    for content in (b"", b"\n", b"two words\n", "é\n".encode()):
        path.write_bytes(content)
        with pytest.raises(Usage, match="not a token"):
            targets.read_token(path)
    with pytest.raises(Usage, match="No such file"):
        targets.read_token(tmp_path / "none")
    assert os.fspath(path)


def test_errors_travel_as_problems() -> None:
    problem = problem_of(InvalidInput("is wrong", field="scaling.min"))
    assert problem == Problem(code="invalid", message="scaling.min: is wrong", status=400, field="scaling.min")
    codes = [
        error_of(problem_of(kind("x"))).exit_code for kind in (Conflict, InvalidInput, NotAllowed, Unauthenticated)
    ]
    assert codes == [Exit.REFUSED, Exit.REFUSED, Exit.DENIED, Exit.DENIED]
