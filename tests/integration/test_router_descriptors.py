"""A router serves as many streams as the machine allows, whatever limit its server happened to run under."""

import contextlib
import os
import resource
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from llmgw.core.layout import ServerLayout
from llmgw.core.secrets import CLUSTER_SECRET_BYTES

SOFT = 200
DEADLINE_S = 20.0


def limits_of(pid: int) -> tuple[int, int]:
    """Soft and hard limit of open files."""
    return resource.prlimit(pid, resource.RLIMIT_NOFILE)


@pytest.mark.skipif(resource.getrlimit(resource.RLIMIT_NOFILE)[1] <= SOFT, reason="this machine allows too few files")
def test_a_router_raises_its_limit_of_open_files(tmp_path: Path) -> None:
    layout = ServerLayout(data=tmp_path / "data")
    for made in (layout.data, layout.run, layout.secrets):
        made.mkdir(mode=0o700)
    layout.cluster_secret.write_bytes(os.urandom(CLUSTER_SECRET_BYTES))
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        router = [sys.executable, "-m", "llmgw.router.process", "--index", "0", "--data", str(layout.data)]
        router += ["--fd", str(listener.fileno()), "--drain-s", "0"]
        argv = ["sh", "-c", f'ulimit -Sn {SOFT} && exec "$@"', "sh", *router]
        process = subprocess.Popen(argv, pass_fds=(listener.fileno(),), stderr=subprocess.DEVNULL)
        stack.callback(process.wait)
        stack.callback(process.kill)
        deadline = time.monotonic() + DEADLINE_S
        while not layout.router_state(0).exists():
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.02)
        soft, hard = limits_of(process.pid)
    assert soft == hard == resource.getrlimit(resource.RLIMIT_NOFILE)[1]
