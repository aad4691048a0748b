"""What the real llama.cpp takes for a model, beside what was estimated: the cache alone, and the whole process.

    python -m tests.bench.engine_memory MODEL.gguf [--shapes 512x1,2048x4]

The cache is what the engine itself says it allocates; the whole is the most its process held (`VmHWM`) after a prompt
of more than one batch, where the context has room for one, so that its compute buffers were in use.
"""

import argparse
import json
import re
import secrets
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from llmgw.core.fit import MemoryNeed, estimate
from llmgw.core.gguf import facts, read_header
from llmgw.core.units import size

SHAPES = ((512, 1), (2048, 1), (2048, 4), (4096, 4), (8192, 4), (8192, 8))
"""Tokens of a slot, and slots."""
START_S = 120.0
_CACHE = re.compile(r"(?:KV|RS) buffer size = +([0-9.]+) MiB")
PROMPT_TOKENS = 600
"""More than llama.cpp computes at once."""


@dataclass(frozen=True, kw_only=True)
class EngineMemory:
    """One start of the engine; bytes."""

    context: int
    slots: int
    cache: int
    peak: int
    need: MemoryNeed

    @property
    def cache_error(self) -> float:
        """Of the estimated cache, to the real one."""
        return self.need.kv_bytes / self.cache - 1

    @property
    def error(self) -> float:
        """Of the whole estimate, to what the process held at most."""
        return self.need.total_bytes / self.peak - 1


def measure(model: Path, context: int, slots: int, *, threads: int = 1, args: Sequence[str] = ()) -> EngineMemory:
    """Start the engine with a profile's `args`, ask it once, read its memory, and end it.

    Raises RuntimeError with the engine's last words.
    """
    with model.open("rb") as stream:
        found = facts(read_header(stream, file_bytes=model.stat().st_size), model.stat().st_size)
    need = estimate(found, engine="llamacpp", context_length=context, slots=slots, args=args)
    key, port = secrets.token_hex(8), _free_port()
    with tempfile.TemporaryDirectory(prefix="llmgw-engine-") as made:
        key_file, log = Path(made) / "key", Path(made) / "log"
        key_file.write_text(key)
        flags = ["--model", str(model), "--alias", "m", "--host", "127.0.0.1", "--port", str(port)]
        flags += ["--ctx-size", str(context * slots), "--parallel", str(slots), "--api-key-file", str(key_file)]
        flags += ["--threads", str(threads), *args]
        with log.open("wb") as out:
            command = [sys.executable, "-m", "tests.bench.engine_child", *flags]
            engine = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT)
        try:
            _ask(engine, f"http://127.0.0.1:{port}", key, context, log)
            cache, peak = _told(log), _peak(engine.pid)
        finally:
            engine.kill()
            engine.wait()
    return EngineMemory(context=context, slots=slots, cache=cache, peak=peak, need=need)


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port: int = probe.getsockname()[1]
    return port


def _ask(engine: "subprocess.Popen[bytes]", url: str, key: str, context: int, log: Path) -> None:
    """Wait until it serves, and have it answer one long prompt."""
    body = json.dumps({"prompt": "word " * min(PROMPT_TOKENS, context // 2), "n_predict": 4}).encode()
    request = urllib.request.Request(f"{url}/completion", data=body, headers={"Authorization": f"Bearer {key}"})
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline:
        if engine.poll() is not None:
            break
        try:
            with urllib.request.urlopen(f"{url}/health", timeout=5):
                pass
            with urllib.request.urlopen(request, timeout=START_S) as answer:
                answer.read()
            return
        except OSError:
            time.sleep(0.2)
    raise RuntimeError(f"the engine did not serve: {log.read_text(errors='replace')[-500:]}")


def _told(log: Path) -> int:
    """Bytes of cache the engine says it allocates, over all kinds of layers."""
    return round(sum(float(mib) * (1 << 20) for mib in _CACHE.findall(log.read_text(errors="replace"))))


def _peak(pid: int) -> int:
    """The most it held, in bytes."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:"))


def table(found: Sequence[EngineMemory]) -> str:
    """Markdown, a row a shape."""
    lines = ["| slots × context | its cache | estimated | error | at most held | estimated | error |"]
    lines.append("|---|---|---|---|---|---|---|")
    for one in found:
        cache = f"{size(one.cache)} | {size(one.need.kv_bytes)} | {one.cache_error:+.2%}"
        whole = f"{size(one.peak)} | {size(one.need.total_bytes)} | {one.error:+.1%}"
        lines.append(f"| {one.slots} × {one.context} | {cache} | {whole} |")
    return "\n".join(lines)


def main(argv: Sequence[str] | None = None) -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.engine_memory", description=__doc__.split("\n")[0])
    parser.add_argument("model", type=Path, help="a GGUF file")
    parser.add_argument("--shapes", default=",".join(f"{c}x{s}" for c, s in SHAPES), help="CONTEXTxSLOTS,…")
    flags = parser.parse_args(argv)
    shapes = [tuple(map(int, shape.split("x"))) for shape in flags.shapes.split(",")]
    print(table([measure(flags.model, context, slots) for context, slots in shapes]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
