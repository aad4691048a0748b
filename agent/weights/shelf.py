"""The node's directory of weights: `ID/` holds `manifest.json`, `files/`, and `.done` once every byte was checked.

`.done` is written last and removed first, so a set with it is whole and needs no mirror. All calls block.
"""

import contextlib
import shutil
from pathlib import Path

import msgspec

from llmgw.core.errors import InvalidInput
from llmgw.core.weights import Manifest, SetFile, check_manifest
from llmgw.transfer.part import write_atomic

MANIFEST_NAME = "manifest.json"
DONE_NAME = ".done"
MAX_MANIFEST_BYTES = 16 * 1024 * 1024


class Shelf:
    """Sets under one root."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def load(self, set_id: str) -> Manifest | None:
        """The set's manifest, complete only when marked so and every file has its size; none when there is none."""
        try:
            with (self.root / set_id / MANIFEST_NAME).open("rb") as file:
                manifest = msgspec.json.decode(file.read(MAX_MANIFEST_BYTES), type=Manifest)
            check_manifest(manifest)
        except (OSError, msgspec.MsgspecError, InvalidInput):
            return None
        if manifest.id != set_id:
            return None
        whole = (self.root / set_id / DONE_NAME).exists() and all(self.has(manifest, file) for file in manifest.files)
        return msgspec.structs.replace(manifest, complete=whole)

    def begin(self, manifest: Manifest) -> None:
        """Write the manifest down and remove what an earlier one had in place of its files."""
        before = self.load(manifest.id)
        with contextlib.suppress(FileNotFoundError):
            (self.root / manifest.id / DONE_NAME).unlink()
        for old in before.files if before else ():
            if old not in manifest.files:
                for suffix in ("", ".part", ".part.json"):
                    path = self.path(manifest, old.name)
                    with contextlib.suppress(FileNotFoundError):
                        path.with_name(path.name + suffix).unlink()
        write_atomic(self.root / manifest.id / MANIFEST_NAME, msgspec.json.encode(manifest))

    def finish(self, manifest: Manifest) -> None:
        """Mark the set as whole and checked."""
        write_atomic(self.root / manifest.id / DONE_NAME, b"")

    def remove(self, set_id: str) -> int:
        """Remove a set; gives the bytes freed."""
        directory = self.root / set_id
        with contextlib.suppress(FileNotFoundError):
            (directory / DONE_NAME).unlink()
        freed = sum(path.lstat().st_size for path in directory.rglob("*") if path.is_file() and not path.is_symlink())
        shutil.rmtree(directory, ignore_errors=True)
        return freed

    def directory(self, set_id: str) -> Path:
        """Where a set's files are or will be."""
        return self.root / set_id / "files"

    def kept_bytes(self, set_id: str) -> int:
        """Bytes of files and parts an earlier fetch of the set left here."""
        total = 0
        for path in self.directory(set_id).rglob("*"):
            with contextlib.suppress(OSError):
                total += path.lstat().st_size if path.is_file() and not path.is_symlink() else 0
        return total

    def path(self, manifest: Manifest, name: str) -> Path:
        """Where a file of the set is or will be; an empty name gives the directory."""
        return self.directory(manifest.id) / name

    def has(self, manifest: Manifest, file: SetFile) -> bool:
        """Whether the file is here in its size."""
        try:
            return file.bytes is not None and self.path(manifest, file.name).stat().st_size == file.bytes
        except OSError:
            return False

    def held_bytes(self, manifest: Manifest, file: SetFile) -> int:
        """Bytes of a file that are here, its part included."""
        path = self.path(manifest, file.name)
        for candidate in (path, path.with_name(path.name + ".part")):
            with contextlib.suppress(OSError):
                return min(candidate.stat().st_size, file.bytes or 0)
        return 0
