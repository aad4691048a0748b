"""The sim engine as a process: how it starts, says where it is, and ends."""

import os
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

DEADLINE_S = 20


@contextmanager
def engine(*flags: str, **environment: str) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, "-m", "llmgw.sim.engine", "--model", "m", *flags],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | environment,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def address(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line.startswith("listening on http://127.0.0.1:")
    return line.split()[2]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_with_0(number: signal.Signals) -> None:
    with engine() as process:
        with urllib.request.urlopen(address(process) + "/health", timeout=DEADLINE_S) as answer:
            assert answer.read() == b'{"status":"ok"}'
        process.send_signal(number)
        assert process.wait(DEADLINE_S) == 0


def test_it_can_ignore_term() -> None:
    with engine("--ignore-term") as process:
        url = address(process)
        process.send_signal(signal.SIGTERM)
        with urllib.request.urlopen(url + "/health", timeout=DEADLINE_S) as answer:
            assert answer.status == 200
        process.send_signal(signal.SIGINT)
        assert process.wait(DEADLINE_S) == 0


def test_it_can_crash_at_start_and_later() -> None:
    with engine("--crash-on-start") as process:
        assert process.wait(DEADLINE_S) == 1
    with engine("--exit-after", "0.1") as process:
        address(process)
        assert process.wait(DEADLINE_S) == 1


def test_bad_flags_and_a_taken_port_are_told() -> None:
    with engine("--rate", "fast") as process:
        _, said = process.communicate(timeout=DEADLINE_S)
        assert (process.returncode, "--rate" in said) == (2, True)
    with engine() as first:
        port = address(first).rsplit(":", 1)[1]
        with engine("--port", port) as second:
            _, said = second.communicate(timeout=DEADLINE_S)
            assert (second.returncode, port in said) == (1, True)


def test_the_key_may_come_in_the_environment() -> None:
    with engine(LLMGW_ENGINE_KEY="secret") as process:
        asked = urllib.request.Request(address(process) + "/v1/models", headers={"Authorization": "Bearer secret"})
        with urllib.request.urlopen(asked, timeout=DEADLINE_S) as answer:
            assert answer.status == 200
