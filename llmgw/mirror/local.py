"""`file:/…`: weights, or wheels, that are on the mirror's machine already. They are served where they are, not copied.

Their stamp (sizes and times of change) is kept, so that a changed file is hashed again before it is served.
"""

import hashlib
import os
from collections.abc import Callable
from pathlib import Path

import trio

from llmgw.core.errors import InvalidInput, NotFound
from llmgw.core.sources import FileSource, format_source
from llmgw.core.weights import MAGIC_BYTES, Manifest, SetFile, check_file_name, split_parts
from llmgw.mirror.source import MirrorConfig, check_local_name, head_check, select_repository
from llmgw.mirror.wheelhouse import in_wheelhouse, wheel_check, wheels_of
from llmgw.transfer.download import Report
from llmgw.transfer.hashing import hash_step, open_binary

MAX_ENTRIES = 20_000


class LocalSource:
    """A file or directory of this machine."""

    def __init__(self, source: FileSource, config: MirrorConfig) -> None:
        self._source = source
        self._config = config

    async def resolve(self, set_id: str) -> Manifest:
        """List what an engine needs of it."""
        return await trio.to_thread.run_sync(self._resolve, set_id)

    async def fetch(self, manifest: Manifest, file: SetFile, target: Path, report: Report) -> SetFile:
        """Hash it where it is; `target` is its own path."""
        wheels = in_wheelhouse(target.parent, self._config)
        check = wheel_check(file.name) if wheels else head_check(file.name, self._config)
        return await hash_file(file, target, check, report)

    def _resolve(self, set_id: str) -> Manifest:
        path = Path(self._source.path)
        if not path.exists():
            raise NotFound(f"source: there is no {path} on the mirror's machine")
        if path.is_dir():
            root, (names, main) = path, self._select(path)
        else:
            check_local_name(path.name, self._config)
            root, names, main = path.parent, list(split_parts(path.name)), split_parts(path.name)[0]
        files = []
        for name in names:
            check_file_name(name)
            files.append(SetFile(name=name, bytes=_size(root, name)))
        return Manifest(
            id=set_id,
            source=format_source(self._source),
            origin={"root": str(root), "stamp": stamp(root, names)},
            files=tuple(files),
            main=main,
        )

    def _select(self, path: Path) -> tuple[list[str], str]:
        names: list[str] = []
        for entry in sorted(os.scandir(path), key=lambda entry: entry.name):
            if entry.is_file():
                names.append(entry.name)
            if len(names) > MAX_ENTRIES:
                raise InvalidInput(f"{path} holds more than {MAX_ENTRIES} files", field="source")
        try:
            if in_wheelhouse(path, self._config):
                return wheels_of(names), ""
            return select_repository(names)
        except InvalidInput as error:
            raise InvalidInput(f"{path}: {error.message.removeprefix('source: ')}", field="source") from error


def stamp(root: Path, names: list[str]) -> str:
    """Changes when a file does; empty when one is gone."""
    digest = hashlib.sha256()
    for name in names:
        try:
            stat = (root / name).stat()
        except OSError:
            return ""
        digest.update(f"{name}\0{stat.st_size}\0{stat.st_mtime_ns}\0{stat.st_ino}\n".encode())
    return digest.hexdigest()


async def hash_file(file: SetFile, path: Path, check: Callable[[bytes], str | None], report: Report) -> SetFile:
    """The file with its sha256, read in steps; raises InvalidInput for a start that `check` refuses."""
    size = file.bytes or 0
    digest = hashlib.sha256()
    done = 0
    with await trio.to_thread.run_sync(open_binary, path) as stream:
        if why := check(await trio.to_thread.run_sync(stream.peek, MAGIC_BYTES)):
            raise InvalidInput(why, field="source")
        while step := await trio.to_thread.run_sync(hash_step, stream, digest):
            done += step
            report(done, size)
    if done != size:
        raise InvalidInput(f"{path} changed its size from {size} to {done} bytes while it was read", field="source")
    return SetFile(name=file.name, bytes=done, sha256=digest.hexdigest())


def _size(root: Path, name: str) -> int:
    path = root / name
    if path.is_symlink():
        _check_link(root, path)
    if not path.is_file():
        raise InvalidInput(f"{path} is not there or is not a file", field="source")
    return path.stat().st_size


def _check_link(root: Path, path: Path) -> None:
    """A link may stay in the directory, or lead to the blobs of the hub's own cache layout; nowhere else."""
    inside = [root.resolve()]
    if root.parent.name == "snapshots":
        inside.append((root.parent.parent / "blobs").resolve())
    goal = path.resolve()
    if not any(goal.is_relative_to(place) for place in inside):
        raise InvalidInput(f"{path} is a link out of {root}; put the file itself there", field="source")
