"""`llmgw demo` on a terminal: the demo itself runs in a session of its own, and in front of it is the console.

Leaving the console leaves the demo as it is; it ends when that is chosen, when this process is asked to end before or
by SIGTERM, or by a signal of its own. Its narration goes to a file, since the screen is the console's.
"""

import argparse
import os
import select
import signal
import subprocess
import sys
import time
from importlib import import_module
from pathlib import Path
from typing import Any

from llmgw.api.problems import ClientError
from llmgw.api.targets import ServerTarget
from llmgw.demo import steps
from llmgw.demo.children import STOP_S, command
from llmgw.demo.files import DemoFiles

START_S = 120.0
"""Longest wait for the server: a first start makes a database."""
POLL_S = 0.1


def wanted(args: argparse.Namespace) -> bool:
    """Whether there is a terminal to open the console on."""
    terminal = sys.stdin.isatty() and sys.stdout.isatty() and os.environ.get("TERM", "") not in ("", "dumb")
    return terminal and not args.no_console


def run(files: DemoFiles, args: argparse.Namespace, *, runs: bool) -> int:
    """Open the console on the demo, starting it as `args` say unless it `runs`; the exit code."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    log = files.children_log / "demo.out"
    demo: subprocess.Popen[bytes] | None = None
    try:
        if not runs:
            print(f"starting the demo in {files.data}; what it says goes to {log}", file=sys.stderr, flush=True)
            demo = _start(args, log)
        if not _until_answering(files, demo):
            print(f"llmgw demo: {_why(log)}", file=sys.stderr)
            if demo is not None:
                _stop(demo)
            return 1
        ending = _console(files)
    except KeyboardInterrupt:
        ending = "ended"
    if ending == "stop" or (ending == "ended" and demo is not None):
        return _end(files, demo)
    pid = _holder(files)
    print(f"the demo goes on; `llmgw demo` opens its console again, `kill {pid}` ends it", file=sys.stderr)
    return 0


def _start(args: argparse.Namespace, log: Path) -> "subprocess.Popen[bytes]":
    options = ["--data", str(args.data), "--port", str(args.port), "--admin-port", str(args.admin_port)]
    options += ["--model", args.model]
    options += ["--fleet", args.fleet] if args.fleet else []
    options += ["--no-visitors"] if args.no_visitors else []
    with log.open("wb") as output:
        return subprocess.Popen(
            command("demo", "--no-console", *options),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )


def _console(files: DemoFiles) -> str:
    """How it was left: `left`, `stop`, or `ended` by SIGTERM."""
    module: Any = import_module("console.main")
    cli: Any = import_module("llmgw.cli.console")
    return str(module.run(ServerTarget(socket=files.server.admin_socket), demo=True, **cli.look()).value)


def _until_answering(files: DemoFiles, demo: "subprocess.Popen[bytes] | None") -> bool:
    """Whether the server answers in time; a demo that ends before has failed."""
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline:
        try:
            steps.client(files).status()
        except ClientError:
            # One that ends well has found another on its directory, started in between: that one will answer.
            if demo is not None and demo.poll():
                return False
            time.sleep(POLL_S)
        else:
            return True
    return False


def _why(log: Path) -> str:
    """What the demo said last, but for how it ended."""
    try:
        lines = [line for line in log.read_text(errors="replace").splitlines() if not line.startswith("stopping")]
    except OSError:
        lines = []
    return lines[-1] if lines else f"the server did not answer within {START_S:.0f} s; see {log}"


def _end(files: DemoFiles, demo: "subprocess.Popen[bytes] | None") -> int:
    """Stop the demo, whoever started it, and wait until nothing of it is left."""
    print("stopping the demo: agent and engines, then routers, server and database", file=sys.stderr, flush=True)
    pid = _holder(files)
    stopped = (demo is None or _stop(demo)) and (pid is None or _stop_other(pid))
    print("stopped" if stopped else f"process {pid} has not ended within {2 * STOP_S:.0f} s", file=sys.stderr)
    return 0 if stopped else 1


def _stop(demo: "subprocess.Popen[bytes]") -> bool:
    """End our own; whether it is gone."""
    demo.terminate()
    try:
        demo.wait(2 * STOP_S)
    except subprocess.TimeoutExpired:
        return False
    return True


def _stop_other(pid: int) -> bool:
    """End one that was there before; whether it is gone."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        signal.pidfd_send_signal(descriptor, signal.SIGTERM)
        readable, _, _ = select.select([descriptor], [], [], 2 * STOP_S)
    except ProcessLookupError:
        return True
    finally:
        os.close(descriptor)
    return bool(readable)


def _holder(files: DemoFiles) -> int | None:
    """Pid of the demo that holds the directory."""
    try:
        return int(files.lock.read_text())
    except (OSError, ValueError):
        return None
