"""The real `llmgw ctl` as scripts and people meet it: documents on stdout, sentences on stderr, exit codes."""

import contextlib
import json
import os
import pty
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from llmgw.api.types import ServeRequest
from tests.support.admin_server import TOKENS, Running, running
from tests.support.fake_control import KEY, FakeControl
from tests.support.waiting import until_sync

LLMGW = [sys.executable, "-m", "llmgw.cli.main"]


@pytest.fixture
def admin(tmp_path: Path) -> Iterator[Running]:
    with running(tmp_path) as server:
        yield server


def environment(home: Path, **more: str) -> dict[str, str]:
    kept = {key: os.environ[key] for key in ("PATH", "LANG", "PYTHONPATH") if key in os.environ}
    return {**kept, "HOME": str(home), **more}


class Ctl:
    """Runs ctl against one server."""

    def __init__(self, admin: Running) -> None:
        self.admin = admin

    def __call__(
        self, *arguments: str, server: str | None = None, stdin: str | None = None
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*LLMGW, "ctl", "--server", server or self.admin.unix, *arguments],
            env=environment(self.admin.socket.parent),
            input=stdin if stdin is not None else "",
            capture_output=True,
            text=True,
            timeout=30,
        )


@pytest.fixture
def ctl(admin: Running) -> Ctl:
    return Ctl(admin)


def test_tables_for_people_and_documents_for_scripts(ctl: Ctl) -> None:
    served = ctl(
        "model", "serve", "sim:", "--name", "qwen", "--alias", "q,r", "--alias", "s", "--max", "2", "--arg=--x=1,2"
    )
    assert (served.returncode, served.stdout, served.stderr) == (0, "", "qwen is served\n")
    request = next(c[1] for c in ctl.admin.control.calls if c[0] == "serve")
    assert isinstance(request, ServeRequest)
    assert (request.aliases, request.args, request.scaling.max) == (("q", "r", "s"), ("--x=1,2",), 2)

    status = ctl("status")
    assert "qwen cannot be placed: 3.2 GB are missing on gpu0" in status.stdout
    assert re.search(r"^qwen +ready +1/1 ", status.stdout, re.MULTILINE)
    assert "\x1b" not in status.stdout
    document = json.loads(ctl("status", "--json").stdout)
    assert {"version", "leader", "servers", "routers", "nodes", "replicas", "models"} <= set(document)
    assert document["routers"] == [
        {"pid": 42, "port": 8080, "requests": 7, "open_requests": 0, "version": "", "connected": True}
    ]
    for verb in (["nodes"], ["models"], ["replicas"], ["keys"], ["config"], ["audit"]):
        assert isinstance(json.loads(ctl("--json", *verb).stdout), list), verb
        assert ctl(*verb).returncode == 0


def test_a_key_is_the_only_thing_on_stdout(ctl: Ctl) -> None:
    made = ctl("keys", "create", "laptop", "--models", "a,b")
    assert made.stdout == KEY + "\n"
    assert "not shown again" in made.stderr
    assert KEY not in made.stderr
    created = json.loads(ctl("keys", "create", "ci", "--json").stdout)
    assert (created["id"], created["name"], created["key"]) == ("k2", "ci", KEY)
    listed = ctl("keys", "list")
    assert KEY not in listed.stdout
    assert re.search(r"^k1 +laptop +- +a,b +in force", listed.stdout, re.MULTILINE)
    assert ctl("keys", "revoke", "k1", "--yes").stderr == "k1 is refused here now, and everywhere within 30 s\n"


def test_fallbacks_are_set_in_their_order_and_ended_by_a_word(ctl: Ctl) -> None:
    ctl("model", "serve", "sim:", "--name", "qwen")
    assert ctl("model", "fallbacks", "qwen", "b", "a").stderr == "qwen falls back to b, then a\n"
    assert ctl("model", "fallbacks", "qwen", "none").stderr == "qwen falls back to no other model\n"
    mixed = ctl("model", "fallbacks", "qwen", "a", "none")
    assert (mixed.returncode, "none stands alone" in mixed.stderr) == (2, True)
    calls = [call[1:3] for call in ctl.admin.control.calls if call[0] == "fallbacks"]
    assert calls == [("qwen", ("b", "a")), ("qwen", ())]


def test_exit_codes(ctl: Ctl, tmp_path: Path) -> None:
    assert ctl("status").returncode == 0
    refused = ctl("model", "show", "none")
    assert (refused.returncode, refused.stdout, refused.stderr) == (1, "", "llmgw ctl: there is no model 'none'\n")
    assert ctl("model", "serve", "sim:full").returncode == 1
    for usage in (
        ["status", "--rpm", "1"],
        ["keys", "create", "x", "--colour", "red"],
        ["usage", "now"],
        [],
        ["model", "scale", "x", "3", "2"],
    ):
        answer = ctl(*usage)
        assert (answer.returncode, answer.stdout) == (2, ""), usage
        assert answer.stderr.startswith("llmgw ctl"), answer.stderr
    for server in ("unix:" + str(tmp_path / "none.sock"), "http://127.0.0.1:1"):
        gone = ctl("status", server=server)
        assert gone.returncode == 3
        assert server in gone.stderr
        assert "Traceback" not in gone.stderr
    token = tmp_path / "token"
    token.write_text(TOKENS["viewer"])
    assert ctl("status", "--token-file", str(token), server=ctl.admin.tcp).returncode == 0
    denied = ctl("model", "serve", "sim:", "--token-file", str(token), server=ctl.admin.tcp)
    assert denied.returncode == 4
    assert denied.stderr == "llmgw ctl: token:viewer is viewer; model.serve needs the role operator\n"
    assert ctl("status", server=ctl.admin.tcp).returncode == 4


def test_something_else_at_the_port_is_said(tmp_path: Path) -> None:
    # A server that is no admin API: the public app has none of its routes.
    from llmgw.web.public import public_app

    with running(tmp_path, app=public_app(FakeControl())) as public:
        assert Ctl(public)("status").stderr == "llmgw ctl: there is nothing at this path\n"


def test_danger_is_asked_about(ctl: Ctl) -> None:
    ctl("model", "serve", "sim:", "--name", "qwen")
    for verb in (["model", "stop", "qwen"], ["model", "remove", "qwen"], ["restart", "qwen"], ["keys", "revoke", "k1"]):
        answer = ctl(*verb)
        assert answer.returncode == 2
        assert "--yes" in answer.stderr
    assert {c[0] for c in ctl.admin.control.calls} == {"serve"}
    assert ctl("model", "stop", "qwen", "--yes").stderr == "qwen is stopped\n"
    assert ctl("--yes", "model", "remove", "qwen", "--purge").returncode == 0
    assert ctl.admin.control.calls[-1][:3] == ("remove", "qwen", True)


@pytest.mark.parametrize(("answer", "code"), [("y\n", 0), ("\n", 1), ("no\n", 1)])
def test_a_terminal_is_asked_in_figures(ctl: Ctl, answer: str, code: int) -> None:
    ctl("model", "serve", "sim:", "--name", "qwen")
    pid, terminal = pty.fork()
    if pid == 0:
        os.execve(
            LLMGW[0], [*LLMGW, "ctl", "--server", ctl.admin.unix, "model", "remove", "qwen"], environment(Path("/"))
        )
    shown = b""
    while b"[y/N]" not in shown:
        shown += os.read(terminal, 4096)
    assert b"Removes qwen: ends 1 replicas; 0 requests are in flight." in shown
    os.write(terminal, answer.encode())
    with contextlib.suppress(OSError):
        while chunk := os.read(terminal, 4096):
            shown += chunk
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == code
    os.close(terminal)
    assert ("qwen" in ctl.admin.control.catalog) == (code != 0)


def test_a_model_from_a_file_or_stdin(ctl: Ctl, tmp_path: Path) -> None:
    path = tmp_path / "m.yaml"
    path.write_text("name: m\nsource: sim:x\nprofiles:\n- {name: cpu, engine: sim}\n")
    assert ctl("model", "add", "-f", str(path)).returncode == 0
    assert ctl("model", "add", "--file", str(path)).returncode == 1
    assert ctl("model", "add", "-f", "-", "--replace", stdin=path.read_text()).returncode == 0
    path.write_text("name: m\nsource: sim:x\nprofiles:\n- {name: cpu, engin: sim}\n")
    wrong = ctl("model", "add", "-f", str(path))
    assert wrong.returncode == 2
    assert f"{path}:4: unknown key 'engin'; did you mean 'engine'?" in wrong.stderr
    assert "stdin:1: " in ctl("model", "add", "-f", "-", stdin="nme: x\n").stderr
    bad = ctl("model", "add", "-f", "-", stdin="name: ../x\nsource: s\n")
    assert (bad.returncode, "stdin: name: '../x' is not a name" in bad.stderr) == (2, True)
    assert ctl("model", "add", "-f", str(tmp_path / "none")).returncode == 2


def test_waiting_ends_with_ready_or_with_the_reason(ctl: Ctl) -> None:
    ready = ctl("model", "serve", "sim:", "--name", "a", "--wait")
    assert (ready.returncode, ready.stderr) == (0, "a is served\na is ready: 1 of 1 ready\n")
    failed = ctl("model", "serve", "sim:broken", "--name", "b", "--wait")
    assert (failed.returncode, "b is failed" in failed.stderr) == (1, True)
    document = json.loads(ctl("model", "start", "a", "--wait", "--json").stdout)
    assert document["model"]["state"] == "ready"


def test_explain(ctl: Ctl) -> None:
    ctl("model", "serve", "sim:", "--name", "qwen")
    shown = ctl("explain", "qwen").stdout
    assert re.search(r"^gpu0 +cpu +no +memory +3.2 GB +short", shown, re.MULTILINE)
    assert re.search(r"^  card 0 NVIDIA H100 +no +held +- +qwen-1 holds it", shown, re.MULTILINE)
    dry = json.loads(ctl("explain", "new", "--source", "sim:", "--context", "4096", "--json").stdout)
    assert (dry["dry_run"], dry["would_place"], dry["model"]) == (True, "gpu1", "new")
    alone = ctl("explain", "qwen", "--slots", "2")
    assert (alone.returncode, "--source" in alone.stderr) == (2, True)


def test_settings(ctl: Ctl) -> None:
    key = "router.timeouts.connect"
    assert ctl("config", "get", key).stdout == "2.0\n"
    assert ctl("config", "set", key, "2.5").stderr == f"{key} is 2.5 s\n"
    assert ctl("config", "get", key).stdout == "2.5\n"
    assert re.search(rf"^{key} +2.5 +default 2.0$", ctl("config").stdout, re.MULTILINE)
    assert "Seconds to connect" in ctl("config", "reference").stdout
    wrong = ctl("config", "set", key, "soon")
    assert (wrong.returncode, wrong.stderr) == (1, f'llmgw ctl: {key}: "soon" is not a number of seconds\n')


def test_audit_and_join_token(ctl: Ctl) -> None:
    assert re.search(r"unix:root +model.scale +qwen +min: 1 → 2", ctl("audit", "--since", "1h").stdout)
    assert ctl("audit", "--since", "soon").returncode == 2
    token = ctl("join-token", "--minutes", "5")
    assert token.stdout == "llmgw agent join llmgw-join.secret.fingerprint here:9443\n"
    assert "works once" in token.stderr


def test_logs_are_safe_lines(ctl: Ctl) -> None:
    ctl.admin.control.log_lines = ["plain", "\x1b[31mred\x1b[0m\ttab", "\u202eevil"]
    assert ctl("logs", "gpu0", "--tail", "3").stdout == "plain\n␛[31mred␛[0m    tab\n<U+202E>evil\n"
    assert [json.loads(line) for line in ctl("logs", "gpu0", "--tail", "2", "--json").stdout.splitlines()] == [
        {"line": "\x1b[31mred\x1b[0m\ttab"},
        {"line": "\u202eevil"},
    ]
    assert ctl("logs", "nobody").returncode == 1
    assert ctl("logs", "gpu0", "--tail", "99999").returncode == 2


def test_following_ends_with_ctrl_c_and_at_a_stop(ctl: Ctl) -> None:
    command = [*LLMGW, "ctl", "--server", ctl.admin.unix, "logs", "gpu0", "--follow", "--tail", "1"]
    for end, code in ((signal.SIGINT, 130), (None, 0)):
        with subprocess.Popen(
            command, env=environment(Path("/")), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        ) as process:
            try:
                assert process.stdout is not None
                assert process.stdout.readline() == "line 499\n"
                if end is not None:
                    process.send_signal(end)
                else:
                    ctl.admin.stop()
                _, errors = process.communicate(timeout=60)
            finally:
                process.kill()
        assert (process.returncode, errors.strip()) == (code, "")
        until_sync(lambda: ctl.admin.control.open_logs == 0, deadline_s=5)


def test_a_reader_that_leaves_is_no_error(ctl: Ctl) -> None:
    ctl.admin.control.log_lines = ["x" * 1000] * 5000
    process = subprocess.Popen(
        [*LLMGW, "ctl", "--server", ctl.admin.unix, "logs", "gpu0", "--tail", "5000"],
        env=environment(Path("/")),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"x" * 1000 + b"\n"
    process.stdout.close()
    assert process.stderr is not None
    assert process.stderr.read() == b""
    process.stderr.close()
    assert process.wait(60) == 141


def test_any_locale_prints_any_name(ctl: Ctl) -> None:
    ctl.admin.control.log_lines = ["モデル"]
    environ = environment(Path("/"), LC_ALL="C", PYTHONUTF8="0", PYTHONCOERCECLOCALE="0")
    result = subprocess.run(
        [*LLMGW, "ctl", "--server", ctl.admin.unix, "logs", "gpu0", "--tail", "1"],
        env=environ, capture_output=True, timeout=30,
    )  # fmt: skip
    assert (result.returncode, result.stdout) == (0, b"\\u30e2\\u30c7\\u30eb\n")


def test_the_servers_order_of_choice(admin: Running, tmp_path: Path) -> None:
    def run(**more: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*LLMGW, "ctl", "keys"], env=environment(tmp_path, **more), capture_output=True, text=True, timeout=30
        )

    if Path("/run/llmgw/admin.sock").exists():
        pytest.skip("a server of the system runs here")
    assert run().returncode == 3
    assert run(LLMGW_SERVER=admin.unix).returncode == 0
    token = tmp_path / "token"
    token.write_text(TOKENS["viewer"])
    assert run(LLMGW_SERVER=admin.tcp, LLMGW_TOKEN_FILE=str(token)).returncode == 0
    profiles = tmp_path / ".config/llmgw/profiles.yaml"
    profiles.parent.mkdir(parents=True)
    profiles.write_text(f"current: here\nservers:\n  here: {{server: '{admin.unix}'}}\n")
    assert run().returncode == 0


def test_ctl_is_quick(admin: Running, ctl: Ctl) -> None:
    began = time.monotonic()
    for _ in range(3):
        assert ctl("keys").returncode == 0
    # 0.1 s each on an idle machine; the limit allows for a busy one.
    assert time.monotonic() - began < 9
