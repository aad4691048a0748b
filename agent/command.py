"""A foreign tool is run under a deadline and an output cap; whatever it does, the agent gets a result or a sentence."""

import os
import select
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

MAX_OUTPUT_BYTES = 1024 * 1024
_PLAIN_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


class ToolFailed(Exception):
    """The tool could not be started, took too long or said too much; the text is a sentence."""


@dataclass(frozen=True, kw_only=True)
class ToolResult:
    """What a tool said."""

    code: int
    """Exit status; negative is the signal that ended it."""
    output: str
    """stdout and stderr together."""


def run_tool(
    argv: Sequence[str],
    *,
    timeout_s: float,
    max_bytes: int = MAX_OUTPUT_BYTES,
    env: Mapping[str, str] | None = None,
) -> ToolResult:
    """Run `argv` to its end, blocking; raises ToolFailed. Call it from a worker thread.

    The environment is PATH and the C locale, so that figures have points, and `env` besides.
    """
    environment = {"PATH": os.environ.get("PATH", _PLAIN_PATH), "LC_ALL": "C", **(env or {})}
    try:
        process = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=environment,
            start_new_session=True,
        )
    except OSError as error:
        raise ToolFailed(f"{argv[0]} cannot be started: {error.strerror}") from error
    assert process.stdout is not None
    with process, process.stdout as stdout:
        try:
            output = _read(stdout.fileno(), argv[0], time.monotonic() + timeout_s, timeout_s, max_bytes)
            code = process.wait(timeout=timeout_s)
        except subprocess.TimeoutExpired as error:
            raise ToolFailed(f"{argv[0]} did not end within {timeout_s:g} s") from error
        finally:
            if process.returncode is None:
                # Not waited for yet, so the number is still its own. A wrapper's children end with it.
                os.killpg(process.pid, signal.SIGKILL)
    return ToolResult(code=code, output=output.decode(errors="replace"))


def _read(fd: int, name: str, deadline: float, timeout_s: float, max_bytes: int) -> bytes:
    output = b""
    poller = select.poll()  # select.select cannot watch descriptors above 1023
    poller.register(fd, select.POLLIN)
    while True:
        left_s = deadline - time.monotonic()
        if left_s <= 0 or not poller.poll(left_s * 1000):
            raise ToolFailed(f"{name} did not answer within {timeout_s:g} s")
        chunk = os.read(fd, 64 * 1024)
        if not chunk:
            return output
        output += chunk
        if len(output) > max_bytes:
            raise ToolFailed(f"{name} said more than {max_bytes} bytes")
