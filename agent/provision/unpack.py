"""Unpacks an archive that strangers made: plain files, directories and links to what lies beside them, nothing else.

Nothing is written outside the directory, whatever names, links or sizes the archive has: names and what links lead to
go down only, a file is never written through a link, and what comes out is counted while it does.
"""

import os
import tarfile
import zlib
from pathlib import Path, PurePosixPath
from typing import IO

from agent.provision.uv import BuildFailed
from llmgw.core.units import GB, size

MAX_UNPACKED_BYTES = 8 * GB
MAX_MEMBERS = 20_000
_STEP_BYTES = 1024 * 1024


def unpack(archive: Path, target: Path, *, max_bytes: int = MAX_UNPACKED_BYTES) -> None:
    """Unpack a `.tar.gz` into a new directory; raises BuildFailed, and OSError for a disk that fails. Blocking."""
    target.mkdir(parents=True)
    links: dict[PurePosixPath, str] = {}
    left = max_bytes
    count = 0
    try:
        with tarfile.open(archive, "r|gz") as members:
            for member in members:
                count += 1
                if count > MAX_MEMBERS:
                    raise BuildFailed(f"{archive.name} holds more than {MAX_MEMBERS} files: it was not unpacked")
                name = _inside(member.name, archive)
                if name in links or any(parent in links for parent in name.parents):
                    raise _refused(archive, member.name, "it would be written through a link")
                if member.isdir():
                    (target / name).mkdir(parents=True, exist_ok=True)
                elif member.issym():
                    links[name] = _link(member, archive)
                elif member.isreg():
                    left -= member.size
                    if left < 0:
                        raise BuildFailed(f"{archive.name} holds more than {size(max_bytes)}: it was not unpacked")
                    stream = members.extractfile(member)
                    assert stream is not None
                    _write(stream, target / name, executable=bool(member.mode & 0o100))
                else:
                    raise _refused(archive, member.name, "it is neither a file, a directory nor a symbolic link")
    except (tarfile.TarError, zlib.error, EOFError) as error:
        raise BuildFailed(f"{archive.name} cannot be unpacked: {error}") from error
    for name, goal in links.items():
        path = target / name
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            path.symlink_to(goal)
        except FileExistsError as error:
            raise _refused(archive, str(name), "it is there twice") from error


def _inside(text: str, archive: Path) -> PurePosixPath:
    name = PurePosixPath(text)
    if name.is_absolute() or ".." in name.parts or "\0" in text:
        raise _refused(archive, text, "it leads out of the archive's own directory")
    return name


def _link(member: tarfile.TarInfo, archive: Path) -> str:
    """What a link leads to: something beside it or below, so that no chain of links leads out."""
    goal = PurePosixPath(member.linkname)
    if not goal.parts or goal.is_absolute() or ".." in goal.parts:
        raise _refused(archive, member.name, "it is a link that may lead out of the archive's own directory")
    return str(goal)


def _write(stream: IO[bytes], path: Path, *, executable: bool) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
    with open(os.open(path, flags, 0o755 if executable else 0o644), "wb") as file:
        while data := stream.read(_STEP_BYTES):
            file.write(data)


def _refused(archive: Path, name: str, why: str) -> BuildFailed:
    return BuildFailed(f"{archive.name} has {name[:120]!r}, and {why}: it was not unpacked")
