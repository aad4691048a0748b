"""What the agent needs to know an engine again after its own death: a JSON file a shard, replaced as a whole.

An entry is written before the engine is started (the intent, without a process) and again right after (with it), so
whatever the moment of the agent's death, a running engine has an entry with its port, its key file and its shard.
"""

import contextlib
import logging
import os
import re
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import msgspec

from agent.identity import write_file
from agent.process import ProcessName
from llmgw.core.compute import Compute
from llmgw.core.errors import InvalidInput
from llmgw.wire.llmgw.v1 import ShardSpec

log = logging.getLogger("agent.journal")

MAX_ENTRY_BYTES = 1024 * 1024
_SHARD_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/-]{0,159}")


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """One shard as it was last started."""

    shard_id: str
    cluster_id: str
    host: str
    """Address the engine listens on."""
    port: int
    further: tuple[int, ...] = ()
    """More ports it was given."""
    private: bool = False
    """Whether it listens where this node alone reaches it."""
    key_file: str
    spec: str
    """The shard's spec as the protocol's JSON."""
    process: ProcessName | None = None
    """None: it was about to be started."""
    ready: bool = False
    """Whether it had been Ready since its start."""
    restarts: int = 0
    patience_s: float = 0.0
    """What it may take besides until it is ready."""
    output_at: int | None = None
    """Where in its output this start begins; none where no agent noted it."""
    compute: Compute | None = None
    """Where it said that it computes, in this start."""

    def shard_spec(self) -> ShardSpec:
        """The spec; raises ValueError when the text is none."""
        try:
            return ShardSpec.from_json(self.spec)
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"the spec is damaged: {error!r}") from error


class Journal:
    """The entries under one directory (0700). One agent at a time, which the agent's lock sees to."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)

    def write(self, entry: Entry) -> None:
        """Keep the entry durably; raises OSError (the disk is full)."""
        content = msgspec.json.format(msgspec.json.encode(entry), indent=2) + b"\n"
        write_file(self._file(entry.shard_id), content, mode=0o600)
        self._sync()

    def remove(self, shard_id: str) -> None:
        """Forget a shard whose engine has ended."""
        with contextlib.suppress(FileNotFoundError):
            self._file(shard_id).unlink()
            self._sync()

    def load(self) -> tuple[list[Entry], list[str]]:
        """All entries, and a sentence for each file that cannot be read, which is set aside and never read again."""
        entries: list[Entry] = []
        problems: list[str] = []
        for path in sorted(self._directory.glob("*.json")):
            try:
                entries.append(self._read(path))
            except (OSError, ValueError) as error:
                aside = path.with_name(f"{path.name}.{time.time_ns()}.damaged")
                sentence = f"The journal file {path.name} cannot be read ({error}); it is set aside as {aside.name}."
                log.error(sentence)
                problems.append(sentence)
                with contextlib.suppress(OSError):
                    path.rename(aside)
        for left_over in self._directory.glob(".*.new"):
            with contextlib.suppress(OSError):
                left_over.unlink()
        return entries, problems

    def _read(self, path: Path) -> Entry:
        with path.open("rb") as file:
            content = file.read(MAX_ENTRY_BYTES + 1)
        if len(content) > MAX_ENTRY_BYTES:
            raise ValueError(f"it is larger than {MAX_ENTRY_BYTES} bytes")
        entry = msgspec.json.decode(content, type=Entry)
        if entry.shard_spec().shard_id != entry.shard_id or self._file(entry.shard_id) != path:
            raise ValueError("it names another shard than its file")
        return entry

    def _file(self, shard_id: str) -> Path:
        return self._directory / f"{file_name(shard_id)}.json"

    def _sync(self) -> None:
        fd = os.open(self._directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)


def file_name(shard_id: str) -> str:
    """The shard's id as one file name; raises InvalidInput for an id that no server gives."""
    if not _SHARD_ID.fullmatch(shard_id):
        raise InvalidInput(f"{shard_id[:200]!r} is no id of a shard", field="shard_id")
    return quote(shard_id, safe="")


def shard_directories(shards: Path) -> Iterator[Path]:
    """Every shard's directory."""
    with contextlib.suppress(FileNotFoundError):
        yield from (path for path in shards.iterdir() if path.is_dir())
