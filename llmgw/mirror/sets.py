"""The mirror's directory: `sets/ID/` holds `manifest.json`, `files/`, and `.done` once the set is whole. Calls block.

`.done` is written last and removed first: a set with it can be served without asking anybody.
"""

import contextlib
import shutil
from collections.abc import Container
from dataclasses import dataclass
from pathlib import Path

import msgspec

from llmgw.core.catalog import ModelFacts
from llmgw.core.config_facts import config_facts, read_config
from llmgw.core.errors import InvalidInput
from llmgw.core.gguf import facts as gguf_facts
from llmgw.core.gguf import read_header
from llmgw.core.safetensors import check_length
from llmgw.core.weights import Manifest, check_manifest
from llmgw.mirror.local import stamp
from llmgw.mirror.source import MAX_CONFIG_BYTES
from llmgw.transfer.part import sync_directory, write_atomic

MANIFEST_NAME = "manifest.json"
DONE_NAME = ".done"
USED_NAME = ".used"
"""Its time of change is when a node last copied from the set."""
MAX_MANIFEST_BYTES = 16 * 1024 * 1024


@dataclass(frozen=True, kw_only=True)
class Kept:
    """What one set's directory holds: files, parts, and what is noted of them."""

    id: str
    bytes: int
    files: int
    changed: float
    """Unix seconds when something in it last changed."""


class SetStore:
    """Sets under one root."""

    def __init__(self, root: Path) -> None:
        self._sets = root / "sets"

    def load_all(self) -> list[Manifest]:
        """Every readable manifest, complete or on its way."""
        with contextlib.suppress(FileNotFoundError):
            found = (self.load(path.name) for path in sorted(self._sets.iterdir()) if path.is_dir())
            return [manifest for manifest in found if manifest is not None]
        return []

    def load(self, set_id: str) -> Manifest | None:
        """The set's manifest; none when there is none or it cannot be read. A set is complete only with its mark."""
        directory = self._sets / set_id
        try:
            with (directory / MANIFEST_NAME).open("rb") as file:
                manifest = msgspec.json.decode(file.read(MAX_MANIFEST_BYTES), type=Manifest)
            check_manifest(manifest)
        except (OSError, msgspec.MsgspecError, InvalidInput):
            return None
        whole = manifest.id == set_id and (directory / DONE_NAME).exists() and self.unchanged(manifest)
        whole = whole and not self.missing(manifest)
        return msgspec.structs.replace(manifest, complete=whole) if manifest.id == set_id else None

    def save(self, manifest: Manifest) -> None:
        """Write the manifest, and the mark when it is complete."""
        check_manifest(manifest)
        directory = self._sets / manifest.id
        if not manifest.complete:
            with contextlib.suppress(FileNotFoundError):
                (directory / DONE_NAME).unlink()
        write_atomic(directory / MANIFEST_NAME, msgspec.json.format(msgspec.json.encode(manifest), indent=1))
        if manifest.complete:
            write_atomic(directory / DONE_NAME, b"")

    def forget_manifest(self, set_id: str) -> None:
        """Have the set resolved anew; files and parts stay."""
        for name in (DONE_NAME, MANIFEST_NAME):
            with contextlib.suppress(FileNotFoundError):
                (self._sets / set_id / name).unlink()

    def drop_files(self, set_id: str) -> None:
        """Remove files and parts that belong to another revision."""
        shutil.rmtree(self._sets / set_id / "files", ignore_errors=True)

    def remove(self, set_id: str) -> int:
        """Remove the set; gives the bytes that were freed."""
        directory = self._sets / set_id
        self.forget_manifest(set_id)
        freed = sum(path.lstat().st_size for path in directory.rglob("*") if path.is_file() and not path.is_symlink())
        shutil.rmtree(directory, ignore_errors=True)
        with contextlib.suppress(FileNotFoundError):
            sync_directory(self._sets)
        return freed

    def times(self, set_id: str) -> tuple[float | None, float | None]:
        """Unix seconds when the set became whole, and when a node last copied from it."""
        return _changed(self._sets / set_id / DONE_NAME), _changed(self._sets / set_id / USED_NAME)

    def mark_used(self, set_id: str) -> None:
        """A node copies from it now; a set that was removed meanwhile stays removed."""
        with contextlib.suppress(OSError):
            (self._sets / set_id / USED_NAME).touch()

    def kept(self, set_id: str) -> Kept | None:
        """What there is of a set on this disk; none when there is nothing."""
        try:
            return _measured(self._sets / set_id)
        except FileNotFoundError:
            return None

    def strays(self, known: Container[str]) -> list[Kept]:
        """Directories of sets whose id is not among `known`."""
        with contextlib.suppress(FileNotFoundError):
            return [
                _measured(path)
                for path in sorted(self._sets.iterdir())
                if path.name not in known and path.is_dir() and not path.is_symlink()
            ]
        return []

    def discard(self, manifest: Manifest, names: list[str]) -> None:
        """Remove files that are not what they should be, and the mark with them: the set is not whole any more."""
        (self._sets / manifest.id / DONE_NAME).unlink(missing_ok=True)
        for name in names:
            self.file_path(manifest, name).unlink(missing_ok=True)

    def file_path(self, manifest: Manifest, name: str) -> Path:
        """Where a file of the set is or will be; `name` is of the manifest, which was checked."""
        root = manifest.origin.get("root")
        return Path(root) / name if root else self._sets / manifest.id / "files" / name

    def missing(self, manifest: Manifest) -> list[str]:
        """Files that are not here in the manifest's size, or were never hashed."""
        absent = []
        for file in manifest.files:
            path = self.file_path(manifest, file.name)
            in_place = "root" in manifest.origin
            whole = file.bytes is not None and path.is_file() and path.stat().st_size == file.bytes
            if not whole or (in_place and file.sha256 is None):
                absent.append(file.name)
        return absent

    def held_bytes(self, manifest: Manifest, name: str) -> int:
        """Bytes of a file that are here, its part included."""
        path = self.file_path(manifest, name)
        for candidate in (path, path.with_name(path.name + ".part")):
            with contextlib.suppress(OSError):
                return candidate.stat().st_size
        return 0

    def check_lengths(self, manifest: Manifest, names: list[str]) -> None:
        """Raise InvalidInput for a file that ends before its tensors do: nobody published how long these files are, or
        they lie where somebody put them.

        A GGUF's header is held against its file where its facts are read.
        """
        for name in names:
            if name.lower().endswith(".safetensors"):
                path = self.file_path(manifest, name)
                with path.open("rb") as stream:
                    check_length(stream, name=name, file_bytes=path.stat().st_size)

    def facts(self, manifest: Manifest) -> ModelFacts:
        """What the weights say of themselves; raises InvalidInput for a GGUF whose header does not hold."""
        total = manifest.total_bytes
        if manifest.main.lower().endswith(".gguf"):
            return self._gguf_facts(manifest)
        if any(file.name == "config.json" for file in manifest.files):
            try:
                with self.file_path(manifest, "config.json").open("rb") as stream:
                    config = read_config(stream.read(MAX_CONFIG_BYTES))
            except OSError as error:
                raise InvalidInput(f"config.json cannot be read: {error}") from error
            weights = sum(file.bytes or 0 for file in manifest.files if file.name.lower().endswith(".safetensors"))
            return config_facts(config, weights)
        return ModelFacts(weights_bytes=total)

    def _gguf_facts(self, manifest: Manifest) -> ModelFacts:
        """From the first part's header; the others are checked too, and their tensors counted."""
        headers = []
        ggufs = sorted(file.name for file in manifest.files if file.name.lower().endswith(".gguf"))
        for name in ggufs:
            path = self.file_path(manifest, name)
            with path.open("rb") as stream:
                headers.append(read_header(stream, file_bytes=path.stat().st_size))
        if not any(header.tensors for header in headers):
            raise InvalidInput(f"{manifest.main} is a GGUF header without a single tensor: there are no weights in it")
        first = headers[ggufs.index(manifest.main)]
        if what := first.no_model:
            raise InvalidInput(f"{manifest.main} is {what}, and no model: name the model's own file")
        if first.split_count > len(ggufs):
            raise InvalidInput(
                f"{manifest.main} is one of {first.split_count} parts, and {len(ggufs)} are here: keep the names that "
                f"the parts were published under, NAME-00001-of-{first.split_count:05d}.gguf"
            )
        return gguf_facts(first, manifest.total_bytes, parts=headers)

    def unchanged(self, manifest: Manifest) -> bool:
        """Whether files served from where they are still are what was hashed; true for all others."""
        root = manifest.origin.get("root")
        return not root or stamp(Path(root), [file.name for file in manifest.files]) == manifest.origin.get("stamp")


def _changed(path: Path) -> float | None:
    try:
        return path.stat().st_mtime
    except OSError:
        return None


def _measured(directory: Path) -> Kept:
    found = [directory.lstat()]
    files = 0
    for path in directory.rglob("*"):
        with contextlib.suppress(FileNotFoundError):
            if path.is_file() and not path.is_symlink():
                found.append(path.lstat())
                files += 1
    return Kept(
        id=directory.name,
        bytes=sum(stat.st_size for stat in found[1:]),
        files=files,
        changed=max(stat.st_mtime for stat in found),
    )
