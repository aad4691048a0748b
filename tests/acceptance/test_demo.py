"""The demo as a whole: it ends without a trace, finds its state again, and refuses what cannot work with a sentence."""

import signal
import subprocess
from pathlib import Path

import psutil
import pytest

from tests.support.cluster import free_port, llmgw, processes_of, running_demo, start_demo, wait_for
from tests.support.streams import chat_body, post

pytestmark = pytest.mark.acceptance


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_stopped_demo_leaves_nothing_and_a_second_one_finds_all(tmp_path: Path, number: signal.Signals) -> None:
    with running_demo(tmp_path, model="sim") as first:
        key = first.key
        first.ctl("model", "serve", "sim:other", "--name", "other")
        assert first.stop(number) == 0
        assert processes_of(tmp_path) == []
        assert _left(tmp_path) == []
    with running_demo(tmp_path, model="sim") as second:
        assert second.key == key
        assert sorted(m.name for m in second.admin.models()) == ["other", "sim"]
        assert post(second, "/v1/chat/completions", chat_body("sim", tokens=2), key=key).status == 200


@pytest.mark.parametrize("killed", [("server",), ("agent",), ("server", "agent")])
def test_a_demo_stopped_before_what_was_killed_is_back_leaves_nothing(tmp_path: Path, killed: tuple[str, ...]) -> None:
    with running_demo(tmp_path, model="sim") as demo:
        children = {" ".join(child.cmdline()): child for child in psutil.Process(demo.process.pid).children()}
        for line, child in children.items():
            if any(f" {name} -c " in line for name in killed):
                child.kill()
        assert demo.stop() == 0
        assert processes_of(tmp_path) == []
        assert _left(tmp_path) == []


def test_a_second_interrupt_does_not_cut_the_stopping_short(tmp_path: Path) -> None:
    with running_demo(tmp_path, model="sim") as demo:
        demo.process.send_signal(signal.SIGINT)
        wait_for("it stops", lambda: len(processes_of(tmp_path)) < 5)
        assert demo.stop(signal.SIGINT) == 0
        assert processes_of(tmp_path) == []
        assert _left(tmp_path) == []


def _left(data: Path) -> list[str]:
    """Sockets and locks in the demo's directory; usage that waits for the next start has one of its own beside it."""
    found = [p for p in data.rglob("*") if p.is_socket() or p.name in ("lock", "demo.lock", "postmaster.pid")]
    return [str(p) for p in found if not p.is_relative_to(data / "spool")]


def test_a_killed_supervisor_leaves_nothing_running_and_its_directory_starts_again(tmp_path: Path) -> None:
    with running_demo(tmp_path, model="sim") as first:
        first.process.kill()
        first.process.wait()
        wait_for("everything ended with its supervisor", lambda: not processes_of(tmp_path), within_s=60)
    with running_demo(tmp_path, model="sim") as second:
        assert post(second, "/v1/chat/completions", chat_body("sim", tokens=2)).status == 200


def test_a_demo_whose_key_was_revoked_makes_another(tmp_path: Path) -> None:
    with running_demo(tmp_path, model="sim") as first:
        key = first.key
        first.ctl("keys", "create", "demo")
        first.ctl("keys", "revoke", first.admin.keys()[0].id, "--yes")
        assert first.stop() == 0
    with running_demo(tmp_path, model="sim") as second:
        assert second.key != key
        assert post(second, "/v1/chat/completions", chat_body("sim", tokens=2)).status == 200


def test_a_second_demo_on_the_same_directory_attaches(tmp_path: Path) -> None:
    with running_demo(tmp_path, model="sim") as first:
        second = start_demo(tmp_path, model="sim")
        assert second.process.wait(30) == 0
        assert second.process.stdout is not None
        second.process.stdout.close()
        assert second.ready == first.ready


def test_a_port_in_use_is_told_with_the_option_that_helps(tmp_path: Path) -> None:
    import socket

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        done = subprocess.run(
            llmgw("demo", "--no-console", "--data", str(tmp_path), "--model", "sim", "--port", str(port)),
            capture_output=True,
            text=True,
            timeout=60,
        )
    assert done.returncode == 1
    assert f"127.0.0.1:{port}" in done.stderr
    assert "--port" in done.stderr
    assert processes_of(tmp_path) == []


def test_one_port_for_both_is_told_before_anything_starts(tmp_path: Path) -> None:
    done = subprocess.run(
        llmgw("demo", "--no-console", "--data", str(tmp_path / "d"), "--port", "18080", "--admin-port", "18080"),
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 2
    assert "both 18080" in done.stderr
    assert not (tmp_path / "d").exists()


def test_a_second_server_on_the_directory_exits_naming_the_holder(tmp_path: Path) -> None:
    with running_demo(tmp_path, model="sim") as first:
        holder = first.server_pid()
        done = subprocess.run(
            llmgw("server", "-c", str(tmp_path / "server.yaml"), "--listen", f"127.0.0.1:{free_port()}"),
            capture_output=True,
            text=True,
            timeout=60,
        )
    assert done.returncode == 1
    assert f"process {holder}" in done.stderr
