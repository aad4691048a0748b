"""Weights on loopback: what a node's fetch costs beside curl, hashing beside sha256sum and openssl, and memory.

A mirror serves over mutual TLS what lies on this machine; a node fetches it to disk and reads it back. curl fetches the
same files from the same mirror with the same certificate. Rounds are interleaved, and everything is a process of its
own; the node's files are synced to the disk, curl's are not. Then mirror and node are watched while a set goes through
them that is far larger than what they may hold: its files are sparse on the mirror's side.
"""

import json
import os
import shutil
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from llmgw.core.units import GB, size
from tests.bench.native import Missing
from tests.bench.proc import memory
from tests.bench.report import MIB, table

FILES = 4
"""Of a set; fetched and hashed at the same time."""
SAMPLE_S = 0.1
FLAT_WITHIN = 8 * MIB
"""Between the first and the last third of a long fetch."""
START_S = 600.0
RESERVE = 4 * GB
"""Left free of a disk that a large set is put on."""
_HEAD_BYTES = 128
"""Of each file; the one tensor behind it fills the rest."""


@dataclass(kw_only=True)
class Held:
    """Memory of one process through a long fetch."""

    rss: list[int] = field(default_factory=list)

    @property
    def grown(self) -> int:
        """Bytes that the last third holds more than the first, by medians."""
        third = max(1, len(self.rss) // 3)
        return round(statistics.median(self.rss[-third:]) - statistics.median(self.rss[:third])) if self.rss else 0


@dataclass(kw_only=True)
class WeightsFigures:
    """Seconds of each round, by what and by whom."""

    file_bytes: int
    large_bytes: int = 0
    seconds: dict[str, dict[str, list[float]]] = field(default_factory=dict)
    held: dict[str, Held] = field(default_factory=dict)
    large_s: float = 0.0
    skipped: dict[str, str] = field(default_factory=dict)
    differs: list[str] = field(default_factory=list)

    def add(self, what: str, who: str, seconds: float) -> None:
        """One round's figure."""
        self.seconds.setdefault(what, {}).setdefault(who, []).append(seconds)

    def wrong(self) -> list[str]:
        """What arrived as something else."""
        return self.differs


def measure_weights(rounds: int, file_bytes: int, large_bytes: int, directory: Path) -> WeightsFigures:
    """All of it; raises Missing without curl."""
    if shutil.which("curl") is None:
        raise Missing("curl is not installed (apt install curl)")
    figures = WeightsFigures(file_bytes=file_bytes)
    one, many = directory / "one", directory / "many"
    _write_set(one, 1, file_bytes)
    _write_set(many, FILES, file_bytes)
    for what, made in (("one file", one), (f"{FILES} files", many)):
        with _mirror(directory / f"{made.name}-mirror", made) as (url, _):
            fetches = [_fetch_ours, _fetch_curl]
            for i in range(1 + rounds):
                # The first round is not kept: it is the one that takes memory nobody had before.
                kept = figures if i else WeightsFigures(file_bytes=file_bytes)
                for fetch in fetches:
                    fetch(kept, what, made, url, directory)
                fetches.reverse()
                figures.differs += kept.differs if not i else []
    for _ in range(rounds):
        _hash(figures, "hash one file", sorted(one.glob("*.safetensors")))
        _hash(figures, f"hash {FILES} files", sorted(many.glob("*.safetensors")))
    for made in (one, many):
        shutil.rmtree(made)
    if large_bytes:
        _large(figures, large_bytes, directory)
    return figures


def _write_set(directory: Path, files: int, total: int, *, sparse: bool = False) -> None:
    directory.mkdir()
    (directory / "config.json").write_text("{}")
    piece = os.urandom(MIB)
    for i in range(files):
        with (directory / f"model-{i + 1:05d}-of-{files:05d}.safetensors").open("wb") as file:
            file.write(_head(total // files))
            while not sparse and file.tell() < total // files:
                file.write(piece)
            file.truncate(total // files)


def _head(file_bytes: int) -> bytes:
    """The start of a safetensors file of that size."""
    held = file_bytes - _HEAD_BYTES
    told = json.dumps({"w": {"dtype": "U8", "shape": [held], "data_offsets": [0, held]}}).encode()
    return (_HEAD_BYTES - 8).to_bytes(8, "little") + told.ljust(_HEAD_BYTES - 8)


@contextmanager
def _mirror(root: Path, source: Path) -> Iterator[tuple[str, int]]:
    """Address of the set's files, and the mirror's pid."""
    root.mkdir()
    command = [sys.executable, "-m", "tests.bench.weights_child", "mirror", str(root), f"file:{source}"]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert child.stdout is not None
        url = child.stdout.readline().strip()
        if not url:
            raise RuntimeError("the mirror did not start")
        yield url, child.pid
    finally:
        child.kill()
        child.communicate()


def _node(root: Path, keys: Path, url: str, source: Path) -> "subprocess.Popen[str]":
    command = [sys.executable, "-m", "tests.bench.weights_child", "node", str(root), url, str(keys), f"file:{source}"]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def _fetch_ours(figures: WeightsFigures, what: str, source: Path, url: str, directory: Path) -> None:
    root = directory / "node"
    child = _node(root, directory / f"{source.name}-mirror", url, source)
    said, _ = child.communicate(timeout=START_S)
    phases = json.loads(said)
    figures.add(f"fetch {what}", "llmgw", phases["fetching"])
    figures.add(f"check {what}", "llmgw", phases["checking"])
    _compare(figures, f"llmgw, {what}", source, next(root.rglob("files")))
    shutil.rmtree(root)


def _fetch_curl(figures: WeightsFigures, what: str, source: Path, url: str, directory: Path) -> None:
    root, keys = directory / "curl", directory / f"{source.name}-mirror"
    root.mkdir()
    names = [path.name for path in source.iterdir()]
    command = [
        "curl",
        "--silent",
        "--no-progress-meter",
        "--fail",
        "--noproxy",
        "*",
        "--parallel",
        "--parallel-immediate",
    ]
    command += ["--parallel-max", str(FILES), "--cacert", str(keys / "ca.crt"), "--cert", str(keys / "node.crt")]
    command += ["--key", str(keys / "node.key")]
    for name in names:
        command += ["--output", str(root / name), f"{url}/{name}"]
    figures.add(f"fetch {what}", "curl", _timed(command))
    _compare(figures, f"curl, {what}", source, root)
    shutil.rmtree(root)


def _compare(figures: WeightsFigures, who: str, source: Path, got: Path) -> None:
    for path in source.iterdir():
        if (got / path.name).stat().st_size != path.stat().st_size:
            figures.differs.append(f"{who}: {path.name} has another size")


def _hash(figures: WeightsFigures, what: str, paths: Sequence[Path]) -> None:
    """The same files by each, all of them at once; each one's sums must be the others'."""
    ours = [sys.executable, "-m", "tests.bench.weights_child", "hash"]
    empty = paths[0].parent / "config.json"
    # A process that hashes next to nothing: what starting Python costs is no hashing.
    started, _ = _output([[*ours, str(empty)]])
    seconds, said = _output([[*ours, *map(str, paths)]])
    figures.add(what, "llmgw", max(seconds - started, 1e-6))
    sums = {line.split()[0] for line in said.splitlines()}
    for name, command in (("sha256sum", ["sha256sum"]), ("openssl", ["openssl", "dgst", "-sha256", "-r"])):
        if shutil.which(command[0]) is None:
            figures.skipped[f"hashing with {name}"] = f"{command[0]} is not installed"
            continue
        seconds, said = _output([[*command, str(path)] for path in paths])
        figures.add(what, name, seconds)
        if {line.split()[0] for line in said.splitlines()} != sums:
            figures.differs.append(f"{name} finds other sums than llmgw")


def _output(commands: Sequence[Sequence[str]]) -> tuple[float, str]:
    """Seconds until all of them, at once, are over, and what they printed."""
    began = time.monotonic()
    children = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for command in commands]
    said = "".join(child.communicate(timeout=START_S)[0] for child in children)
    return time.monotonic() - began, said


def _timed(command: Sequence[str]) -> float:
    began = time.monotonic()
    subprocess.run(command, check=True, timeout=START_S)
    return time.monotonic() - began


def _large(figures: WeightsFigures, total: int, directory: Path) -> None:
    """A large sparse set from mirror to node, both processes watched."""
    free = shutil.disk_usage(directory).free
    if free < total + RESERVE:
        figures.skipped[f"a set of {size(total)}"] = f"{size(free)} are free in {directory.parent}"
        return
    source, root = directory / "large", directory / "node"
    _write_set(source, FILES, total, sparse=True)
    began = time.monotonic()
    with _mirror(directory / "large-mirror", source) as (url, pid):
        child = _node(root, directory / "large-mirror", url, source)
        with _watched({"mirror": pid, "node": child.pid}, figures.held):
            child.communicate(timeout=START_S)
    figures.large_bytes, figures.large_s = total, time.monotonic() - began
    _compare(figures, "llmgw, the large set", source, next(root.rglob("files")))
    shutil.rmtree(source)
    shutil.rmtree(root)


@contextmanager
def _watched(pids: dict[str, int], held: dict[str, Held]) -> Iterator[None]:
    """Sample the processes' memory until the block ends."""
    over = threading.Event()

    def watch() -> None:
        while not over.wait(SAMPLE_S):
            for name, pid in pids.items():
                if rss := memory([pid]).rss:
                    held.setdefault(name, Held()).rss.append(rss)

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def weights_text(figures: WeightsFigures) -> str:
    """Medians of the rounds, and how many times as fast as the others we are."""
    rows = [["", "llmgw MB/s", "beside", "MB/s", "ratio (lowest–highest)"]]
    for what, by in figures.seconds.items():
        ours = by["llmgw"]
        others = [(name, seconds) for name, seconds in by.items() if name != "llmgw"]
        rate = _rate(figures.file_bytes, ours)
        if not others:
            rows.append([what, rate, "", "", ""])
        for name, seconds in others:
            ratios = [theirs / mine for mine, theirs in zip(ours, seconds, strict=True)]
            spread = f"{statistics.median(ratios):.2f} ({min(ratios):.2f}–{max(ratios):.2f})"
            rows.append([what, rate, name, _rate(figures.file_bytes, seconds), spread])
    lines = [
        f"weights: {size(figures.file_bytes)} over mutual TLS on loopback; ratio above 1: llmgw is faster",
        table(rows),
    ]
    for name, held in figures.held.items():
        flat = "flat" if held.grown <= FLAT_WITHIN else "not flat"
        most = max(held.rss) / MIB
        lines.append(
            f"{name}, {size(figures.large_bytes)} in {figures.large_s:.0f} s: RSS at most {most:.0f} MiB, "
            f"{held.grown / MIB:+.1f} MiB from the first third to the last: {flat}"
        )
    lines += [f"skipped: {what}: {why}" for what, why in figures.skipped.items()]
    return "\n".join(lines)


def _rate(count: int, seconds: Sequence[float]) -> str:
    return f"{count / statistics.median(seconds) / 1e6:.0f}"
