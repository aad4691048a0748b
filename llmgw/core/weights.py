"""What a set of weights is: a manifest of files with sizes and sums. A name in a manifest never leaves its directory.

The mirror writes manifests and nodes read them, so every rule on a name stands here, where both import it.
"""

import re
from enum import StrEnum

import msgspec

from llmgw.core.errors import InvalidInput

MAX_FILES = 20_000
"""More files than any published model has; a manifest beyond it is refused."""
MAX_DEPTH = 4
"""Directories a name may go down."""
PICKLE_SUFFIXES = (".bin", ".pt", ".pth", ".pkl", ".pickle", ".ckpt", ".joblib")
CODE_SUFFIXES = (".py", ".pyc", ".so", ".dll", ".dylib", ".sh")
MAGIC_BYTES = 8
"""Bytes of a file's start that `refused_magic` looks at."""
_SHA256 = re.compile(r"[0-9a-f]{64}")
_RESERVED = (".part", ".part.json")
_SPLIT_GGUF = re.compile(r"(?P<stem>.+)-(?P<n>\d{5})-of-(?P<count>\d{5})\.gguf")


class SetState(StrEnum):
    """Life of a set on the mirror, in order; `failed` may follow any but `ready`."""

    RESOLVING = "resolving"
    FETCHING = "fetching"
    CHECKING = "checking"
    READY = "ready"
    FAILED = "failed"


class SetFile(msgspec.Struct, frozen=True, kw_only=True):
    """One file of a set."""

    name: str
    """Relative, with `/` between directories."""
    bytes: int | None = None
    """None until it is known."""
    sha256: str | None = None
    """Lower-case hex; what the publisher said, else what the mirror saw arrive."""
    git_oid: str | None = None
    """Git's own hash of a small file, where the hub publishes no sha256."""


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """A set and where it came from."""

    id: str
    source: str
    """Canonical source string."""
    revision: str = ""
    """What the source was pinned to: a commit, a version."""
    origin: dict[str, str] = {}
    """What the mirror needs to carry on without resolving again; never a credential."""
    files: tuple[SetFile, ...] = ()
    main: str = ""
    """File an engine is given; empty: the directory itself."""
    complete: bool = False

    @property
    def total_bytes(self) -> int:
        """Sum of the sizes; 0 while one is unknown."""
        sizes = [file.bytes for file in self.files]
        return 0 if None in sizes else sum(size for size in sizes if size is not None)


class SetStatus(msgspec.Struct, frozen=True, kw_only=True):
    """Where a set stands on the mirror."""

    id: str
    source: str
    state: SetState
    done_bytes: int = 0
    total_bytes: int = 0
    """0 is unknown."""
    message: str = ""
    """Why it failed, as a sentence."""
    files: int = 0
    """How many files it has, 0 while that is unknown."""
    phase: str = ""
    """`checking` while a ready set is read back on demand; it is served meanwhile."""
    checked_bytes: int = 0
    """How far that is, of `total_bytes`."""
    verdict: str = ""
    """What the last check on demand found, as a sentence."""
    intact: bool | None = None
    """Whether it found every file as it should be; none before a check is over."""
    in_place: bool = False
    """Whether it is served from where an operator put it, so that the mirror holds nothing of it."""
    fetched: float | None = None
    """Unix seconds when it became whole."""
    used: float | None = None
    """Unix seconds when a node last copied from it, exact to ten minutes; none since it came."""


class SetAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What the mirror answers about a set; the manifest comes when it is ready."""

    status: SetStatus
    manifest: Manifest | None = None


class SetRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Body of `POST /v1/sets`."""

    source: str


def check_file_name(name: str) -> None:
    """Refuse a name that could leave the set's directory or confuse a reader; raises InvalidInput."""
    parts = name.split("/")
    if not name or len(name.encode(errors="surrogatepass")) > 1000 or len(parts) > MAX_DEPTH + 1:
        raise InvalidInput(f"{name[:140]!r} is empty, too long or too deep for a file of a set", field="files")
    for part in parts:
        if part in ("", ".", "..") or not part.isprintable() or "\\" in part or part.startswith("."):
            raise InvalidInput(f"{name[:140]!r} is not a safe file name", field="files")
        if len(part.encode(errors="surrogatepass")) > 255 - len(".part.json"):
            raise InvalidInput(f"{name[:140]!r} is too long for a file name", field="files")
    if name.endswith(_RESERVED):
        raise InvalidInput(f"{name[:140]!r} ends like a download on its way", field="files")


def check_manifest(manifest: Manifest) -> None:
    """Refuse a manifest with an unsafe, doubled or impossible entry; raises InvalidInput."""
    if not manifest.files or len(manifest.files) > MAX_FILES:
        raise InvalidInput(f"a set has 1 to {MAX_FILES} files, not {len(manifest.files)}", field="files")
    names = set()
    for file in manifest.files:
        check_file_name(file.name)
        if file.bytes is not None and not 0 <= file.bytes < 1 << 50:
            raise InvalidInput(f"{file.name}: {file.bytes} is not a size", field="files")
        if file.sha256 is not None and not _SHA256.fullmatch(file.sha256):
            raise InvalidInput(f"{file.name}: {file.sha256[:80]!r} is not a sha256", field="files")
        names.add(file.name)
    if len(names) != len(manifest.files):
        raise InvalidInput("a file is listed twice", field="files")
    if any(name.startswith(f"{other}/") for name in names for other in _parents(name) & names):
        raise InvalidInput("a file and a directory have the same name", field="files")
    if manifest.main and manifest.main not in names:
        raise InvalidInput(f"{manifest.main[:140]!r} is not among the files", field="main")


def refused_name(name: str) -> str | None:
    """Why a file of this name is not served (pickles and code run when loaded), or none."""
    lower = name.lower()
    if lower.endswith(PICKLE_SUFFIXES):
        return f"{name} is a pickle, which runs code when loaded; use safetensors or GGUF, or set allow_pickle"
    if lower.endswith(CODE_SUFFIXES):
        return f"{name} is code, which weights do not need; set allow_pickle if you trust it"
    return None


def refused_magic(name: str, head: bytes) -> str | None:
    """Why a file starting with `head` is not served whatever its name, or none."""
    if head.startswith((b"PK\x03\x04", b"PK\x05\x06", b"PK\x07\x08")):
        return f"{name} is a zip archive inside (as PyTorch pickles are); set allow_pickle if you trust it"
    if len(head) >= 2 and head[0] == 0x80 and 2 <= head[1] <= 5 and not name.lower().endswith(".safetensors"):
        return f"{name} is a pickle inside; use safetensors or GGUF, or set allow_pickle"
    if head.startswith(b"\x7fELF"):
        return f"{name} is a program inside; weights need none"
    if name.lower().endswith(".safetensors") and not _safetensors_head(head):
        return f"{name} is not safetensors inside; the file is damaged or something else under that name"
    if name.lower().endswith(".gguf") and not head.startswith(b"GGUF"):
        return f"{name} is not GGUF inside; the file is damaged or something else under that name"
    return None


def split_parts(name: str) -> tuple[str, ...]:
    """All parts of a split GGUF named by any of them, in order; the name alone when it is not split."""
    match = _SPLIT_GGUF.fullmatch(name)
    if match is None:
        return (name,)
    count = int(match["count"])
    if not 1 <= count <= 1000:
        raise InvalidInput(f"{name[:140]!r} claims {count} parts", field="files")
    return tuple(f"{match['stem']}-{i:05d}-of-{count:05d}.gguf" for i in range(1, count + 1))


def _safetensors_head(head: bytes) -> bool:
    """The first 8 bytes are the JSON header's length; published ones stay under 100 MB."""
    return len(head) >= 8 and 2 <= int.from_bytes(head[:8], "little") <= 100_000_000


def _parents(name: str) -> set[str]:
    parts = name.split("/")
    return {"/".join(parts[:i]) for i in range(1, len(parts))}
