"""Where ctl's answer goes may be full or closed: that is a sentence and an exit code, never a traceback."""

import subprocess
from collections.abc import Iterator

import pytest

from tests.support.admin_server import Running, running
from tests.support.cluster import llmgw


@pytest.fixture(scope="module")
def admin(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with running(tmp_path_factory.mktemp("admin")) as server:
        yield server


def shell(admin: Running, redirection: str) -> "subprocess.CompletedProcess[str]":
    command = " ".join(llmgw("ctl", "--server", admin.unix, "status"))
    return subprocess.run(["sh", "-c", f"{command} {redirection}"], capture_output=True, text=True, timeout=60)


def test_a_full_disk_is_told(admin: Running) -> None:
    done = shell(admin, "> /dev/full")
    assert (done.returncode, done.stderr) == (
        1,
        "llmgw ctl: what was answered cannot be written: No space left on device\n",
    )


@pytest.mark.parametrize("redirection", [">&-", "2>&-", ">&- 2>&-"])
def test_a_closed_stream_is_nowhere(admin: Running, redirection: str) -> None:
    done = shell(admin, redirection)
    assert (done.returncode, "Traceback" in done.stderr) == (0, False)
    assert bool(done.stdout) == (redirection == "2>&-")
