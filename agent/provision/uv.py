"""uv, run while it moves: every line it says goes to a file and, the last one, to whoever watches."""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from llmgw.core.errors import LlmgwError
from llmgw.transfer.tool_moves import written_bytes

STALL_S = 1800.0
"""A tool that says and writes nothing for so long is ended. uv says nothing while it downloads, and it writes."""
MAX_LOG_BYTES = 4 * 1024 * 1024
"""Of a log that a new build goes on with; one that fails is tried again for as long as nobody mends it."""
LAST_LINES = 3
MAX_REASON_LINES = 6
"""Of uv's own account of an error, which ends with what caused it."""
_KEPT = ("HOME", "LANG", "SSL_CERT_FILE", "SSL_CERT_DIR", "TMPDIR", "XDG_CONFIG_HOME", "XDG_CONFIG_DIRS")
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


class BuildFailed(LlmgwError):
    """An engine could not be installed; the text says at what, and what would help."""

    code = "engine_not_installed"


class ToolFailed(BuildFailed):
    """A tool ended by itself and with a failure."""


def find_uv() -> str:
    """The program; raises BuildFailed."""
    found = shutil.which("uv", path=f"{Path(sys.executable).parent}:{_PATH}") or shutil.which("uv")
    if found is None:
        raise BuildFailed("uv, which installs engines, is not on PATH: `pip install uv` beside llmgw brings it")
    return found


def environment(cache: Path) -> dict[str, str]:
    """What uv is given of the agent's environment: its own settings, proxies and certificates, and nothing of ours."""
    passed = {
        name: value
        for name, value in os.environ.items()
        if name in _KEPT or name.startswith("UV_") or name.lower().endswith("_proxy")
    }
    return {"PATH": _PATH, "LANG": "C.UTF-8", **passed, "UV_CACHE_DIR": str(cache), "UV_NO_PROGRESS": "1"}


class Runner:
    """Runs one tool after the other until it is stopped."""

    def __init__(self, output: Path, told: Callable[[str], None]) -> None:
        """Lines are appended to `output`, and the last one is passed to `told`."""
        self._output = output
        self._told = told
        self._stopped = threading.Event()
        self._process: subprocess.Popen[str] | None = None

    def stop(self) -> None:
        """End what runs, and start nothing more. From any thread."""
        self._stopped.set()
        process = self._process
        if process is not None:
            _end(process)

    def begin(self) -> None:
        """A new build: of what earlier ones said, keep the last file's worth beside it. Raises OSError."""
        self._output.parent.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(FileNotFoundError):
            if self._output.stat().st_size > MAX_LOG_BYTES:
                self._output.replace(self._output.with_name(f"{self._output.name}.1"))

    def note(self, line: str) -> None:
        """A line of our own among those of the tools; a disk that takes none has been said, or soon will be."""
        with contextlib.suppress(OSError), self._output.open("a", encoding="utf-8") as log:
            print("#", line, file=log)
        self._told(line)

    def run(
        self, argv: Sequence[str], *, env: Mapping[str, str], what: str, timeout_s: float | None = None
    ) -> list[str]:
        """The lines it said; raises BuildFailed when it fails, hangs or is stopped. Blocking.

        Without `timeout_s` it may take as long as it moves.
        """
        if self._stopped.is_set():
            raise BuildFailed(f"{what} was stopped")
        lines: list[str] = []
        with self._output.open("a", encoding="utf-8") as log:
            print("$", *argv, file=log, flush=True)
            try:
                process = subprocess.Popen(
                    argv,
                    env=dict(env),
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    text=True,
                    errors="replace",
                    start_new_session=True,
                )
            except OSError as error:
                raise BuildFailed(f"{argv[0]} cannot be started: {error.strerror}") from error
            self._process = process
            if self._stopped.is_set():  # by somebody who did not see it yet
                _end(process)
            watch = _Watch(process, timeout_s)
            try:
                assert process.stdout is not None
                for line in process.stdout:
                    watch.heard()
                    print(line, end="", file=log, flush=True)
                    if text := line.strip():
                        lines.append(text)
                        self._told(text)
                code = process.wait()
            finally:
                watch.end()
                _end(process)
                process.wait()
                self._process = None
                if process.stdout is not None:
                    process.stdout.close()
        if self._stopped.is_set():
            raise BuildFailed(f"{what} was stopped")
        if watch.why:
            raise BuildFailed(f"{what} {watch.why}")
        if code != 0:
            raise ToolFailed(f"{what} failed: {_reason(lines) or f'exit code {code}'}")
        return lines


def _reason(lines: Sequence[str]) -> str:
    """What it failed at: uv's account of the error from its beginning, or the last lines of whatever said none."""
    began = max((at for at, line in enumerate(lines) if line.startswith("error:")), default=None)
    told = lines[-LAST_LINES:] if began is None else lines[began : began + MAX_REASON_LINES]
    return " / ".join(told)


class _Watch:
    """Ends a tool that takes too long or has stalled."""

    def __init__(self, process: subprocess.Popen[str], timeout_s: float | None) -> None:
        self.why = ""
        self._process = process
        self._timeout_s = timeout_s
        self._over = threading.Event()
        self._written = 0
        self._began = self._moved_at = time.monotonic()
        self._thread = threading.Thread(target=self._run, name="tool-watch", daemon=True)
        self._thread.start()

    def heard(self) -> None:
        """It said something."""
        self._moved_at = time.monotonic()

    def end(self) -> None:
        """It has ended."""
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._over.wait(0.2):
            now = time.monotonic()
            if (written := written_bytes(self._process.pid)) > self._written:
                self._written, self._moved_at = written, now
            if self._timeout_s is not None and now - self._began > self._timeout_s:
                self.why = f"did not end within {self._timeout_s:g} s"
            elif now - self._moved_at > STALL_S:
                self.why = f"neither said nor wrote anything for {STALL_S:g} s"
            if self.why:
                _end(self._process)
                return


def _end(process: subprocess.Popen[str]) -> None:
    """Kill it with what it started: that may go on, and hold its output open, when it has ended itself."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
