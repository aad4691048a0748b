"""Reads a whole set back against its manifest while it is served. Nothing is changed here: it says what differs."""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import trio

from llmgw.core.sources import FileSource, HttpSource, Source
from llmgw.core.units import plural
from llmgw.core.weights import SetFile
from llmgw.transfer.hashing import hash_step, open_binary
from llmgw.transfer.parallel import each

MAX_NAMES = 3
"""Files a verdict names; further ones are counted."""


@dataclass(eq=False)
class Verification:
    """One check on demand: on its way until `over` is set, and then its verdict."""

    done: dict[str, int] = field(default_factory=dict)
    """Bytes read of each file."""
    verdict: str = ""
    """What was found, as a sentence."""
    intact: bool | None = None
    """Whether every file is as it should be, once that is known."""
    scope: trio.CancelScope = field(default_factory=trio.CancelScope)
    over: trio.Event = field(default_factory=trio.Event)

    @property
    def running(self) -> bool:
        """Whether it still reads, or waits for its turn."""
        return not self.over.is_set()


async def differing(
    files: Sequence[SetFile], path_of: Callable[[str], Path], report: Callable[[str, int], None], *, at_once: int
) -> list[str]:
    """Names of the files that are gone or whose bytes are not the manifest's; one without a checksum is not read.

    Raises OSError for a file that cannot be read: a disk that fails does not say what the file is.
    """
    found: list[str] = []

    async def one(file: SetFile) -> None:
        digest = hashlib.sha256()
        done = 0
        try:
            with await trio.to_thread.run_sync(open_binary, path_of(file.name)) as stream:
                while step := await trio.to_thread.run_sync(hash_step, stream, digest):
                    done += step
                    report(file.name, done)
        except FileNotFoundError:
            found.append(file.name)
            return
        if done != file.bytes or digest.hexdigest() != file.sha256:
            found.append(file.name)

    await each(at_once, [file for file in files if file.sha256 is not None], one)
    return sorted(found)


def verdict(source: Source, files: Sequence[SetFile], found: Sequence[str]) -> str:
    """The sentence an operator gets: how many files were compared with what, and which differ."""
    checked = sum(file.sha256 is not None for file in files)
    if not checked:
        return "none of its files has a checksum to compare with"
    what = _compared_with(source)
    if not found:
        bare = f"; {len(files) - checked} have no checksum" if checked < len(files) else ""
        return (f"its file is {what}" if checked == 1 else f"all {checked} files are {what}") + bare
    names = ", ".join(found[:MAX_NAMES]) + (f" and {len(found) - MAX_NAMES} more" if len(found) > MAX_NAMES else "")
    differs = f"{names} of {plural(checked, 'file')} {'is' if len(found) == 1 else 'are'} not {what}"
    if isinstance(source, FileSource):
        return f"{differs}: left where it lies, and hashed anew"
    return f"{differs}: removed and fetched again"


def _compared_with(source: Source) -> str:
    """What the manifest's checksums are of: the publisher's word, or what the mirror itself saw first."""
    if isinstance(source, FileSource):
        return "what was hashed when it was added"
    if isinstance(source, HttpSource) and source.sha256 is None:
        return "what was fetched"
    return "what was published"
