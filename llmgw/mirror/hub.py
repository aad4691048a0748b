"""`hf:ORG/REPO`: a repository of a Hugging Face hub, pinned to a commit and checked against what the hub published.

The hub's API: https://huggingface.co/docs/hub/api. The token goes to the hub's own host only; a redirect to a content
network carries none.
"""

import hashlib
import json
import re
from pathlib import Path
from typing import TypeVar
from urllib.parse import quote, urljoin, urlsplit

import msgspec
import trio

from llmgw.core.errors import InvalidInput, NotAllowed, NotFound
from llmgw.core.sources import HfSource, format_source
from llmgw.core.weights import Manifest, SetFile, check_file_name, split_parts
from llmgw.mirror.source import MAX_CONFIG_BYTES, MirrorConfig, check_name, head_check, select_repository
from llmgw.transfer.download import Report, Wanted, download
from llmgw.transfer.errors import Interrupted, Refused, WrongContent
from llmgw.transfer.http import Remote, Response, request

MAX_API_BYTES = 16 * 1024 * 1024
MAX_PAGES = 50
"""A page of a tree has 1,000 entries."""
MAX_TOKEN_BYTES = 1024
_COMMIT = re.compile(r"[0-9a-f]{40}")
_NEXT = re.compile(r'<([^>]+)>;\s*rel="next"')


T = TypeVar("T")


class _Revision(msgspec.Struct, frozen=True):
    sha: str


class _Lfs(msgspec.Struct, frozen=True):
    oid: str
    size: int


class _Entry(msgspec.Struct, frozen=True):
    type: str
    path: str
    size: int = 0
    oid: str = ""
    lfs: _Lfs | None = None


class HubSource:
    """A repository, or one file of it."""

    def __init__(self, source: HfSource, config: MirrorConfig) -> None:
        self._source = source
        self._config = config
        self._base = config.hf_endpoint.rstrip("/")

    async def resolve(self, set_id: str) -> Manifest:
        """Pin the revision to a commit and list what an engine needs, with the published sizes and checksums."""
        wanted = quote(self._source.revision or "main", safe="")
        body, _ = await self._api(f"{self._base}/api/models/{self._source.repo}/revision/{wanted}")
        commit = _decode(body, _Revision).sha
        if not _COMMIT.fullmatch(commit):
            raise Refused(f"the hub answers {commit[:60]!r} where a commit was expected")
        entries = {entry.path: entry for entry in await self._tree(commit) if entry.type == "file"}
        names, main = self._select(list(entries))
        return Manifest(
            id=set_id,
            source=format_source(self._source),
            revision=commit,
            files=tuple(_file(entries[name]) for name in names),
            main=main,
        )

    async def fetch(self, manifest: Manifest, file: SetFile, target: Path, report: Report) -> SetFile:
        """Download one file of the pinned commit and check it."""
        url = f"{self._base}/{self._source.repo}/resolve/{manifest.revision}/{quote(file.name)}"
        wanted = Wanted(
            target=target, size=file.bytes, sha256=file.sha256, refuse_head=head_check(file.name, self._config)
        )
        try:
            got = await download(self._remote(url), wanted, report=report, policy=self._config.policy)
        except Refused as error:
            raise self._refusal(error.status, "", error) from error
        if file.git_oid or file.name == "config.json":
            await trio.to_thread.run_sync(self._check_small, file, target)
        return replace_file(file, size=got.size, sha256=got.sha256)

    def _select(self, names: list[str]) -> tuple[list[str], str]:
        where = f"{self._source.repo}@{self._source.revision or 'main'}"
        if self._source.file is None:
            try:
                return select_repository(names)
            except InvalidInput as error:
                raise InvalidInput(f"{where}: {error.message.removeprefix('source: ')}", field="source") from error
        check_name(self._source.file, self._config)
        parts = split_parts(self._source.file)
        if missing := [name for name in parts if name not in names]:
            ggufs = [name for name in names if name.endswith(".gguf")]
            hint = f"; it has {', '.join(ggufs[:20])}" if ggufs else ""
            raise NotFound(f"source: {where} has no file {missing[0]!r}{hint}")
        return list(parts), parts[0]

    async def _tree(self, commit: str) -> list[_Entry]:
        url = f"{self._base}/api/models/{self._source.repo}/tree/{commit}?recursive=true"
        entries: list[_Entry] = []
        for _ in range(MAX_PAGES):
            body, link = await self._api(url)
            entries += _decode(body, list[_Entry])
            match = _NEXT.search(link)
            if match is None:
                return entries
            url = urljoin(url, match[1])
            if urlsplit(url)[:2] != urlsplit(self._base)[:2]:
                raise Refused("the hub's list of files goes on at another host")
        raise Refused(f"{self._source.repo} lists more than {MAX_PAGES} pages of files")

    async def _api(self, url: str) -> tuple[bytes, str]:
        """Body and Link header of one answer, asked for again as a download would be."""
        policy = self._config.policy
        pause = policy.first_pause_s
        for attempt in range(1, policy.attempts + 1):
            try:
                async with request(self._remote(url), headers={"Accept": "application/json"}) as response:
                    body = await response.read(MAX_API_BYTES)
                    if response.status == 200:
                        return body, response.headers.get("link", "")
                    self._raise_for(response)
            except Interrupted as error:
                if attempt == policy.attempts:
                    raise Interrupted(f"{error.message} (tried {attempt} times)") from error
            await policy.sleep(pause)
            pause = min(2 * pause, policy.longest_pause_s)
        raise AssertionError("unreachable")

    def _raise_for(self, response: Response) -> None:
        if response.status >= 500 or response.status in (408, 429):
            raise Interrupted(f"the hub answers {response.status}")
        raise self._refusal(response.status, response.headers.get("x-error-code", ""), None)

    def _refusal(self, status: int, code: str, error: Refused | None) -> Exception:
        repo = self._source.repo
        token = self._config.hf_token_file
        setting = f"the token in hf_token_file ({token})" if token else "a token in hf_token_file"
        if status in (401, 403):
            if token is None:
                return NotAllowed(
                    f"the hub refuses {repo} ({status}): it is gated, private, or not there; accept its licence on "
                    f"{self._base}/{repo} and put {setting}"
                )
            return NotAllowed(
                f"the hub refuses {repo} ({status}) for {setting}: its account must accept the licence on "
                f"{self._base}/{repo}, and the token must be valid and may read it"
            )
        if status == 404 and error is None:
            what = "revision " + (self._source.revision or "main") if code == "RevisionNotFound" else repo
            return NotFound(f"source: the hub has no {what}" + (f" in {repo}" if what != repo else ""))
        return error or Refused(f"the hub answers {status} for {repo}", status=status)

    def _remote(self, url: str) -> Remote:
        headers = {}
        if self._config.hf_token_file is not None:
            headers["Authorization"] = f"Bearer {_token(self._config.hf_token_file)}"
        return Remote(url=url, headers=headers, timeouts=self._config.timeouts)

    def _check_small(self, file: SetFile, target: Path) -> None:
        """Check a file that is not in LFS against git's own hash, and a configuration for code. Removes what fails."""
        if (file.bytes or 0) > MAX_CONFIG_BYTES:
            return
        data = target.read_bytes()
        why = ""
        if file.git_oid and hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest() != file.git_oid:
            why = f"{file.name} is not the file the hub's commit names"
        elif file.name == "config.json" and not self._config.allow_pickle and _names_code(data):
            why = "config.json names code to load (auto_map); set allow_pickle if you trust it"
        if why:
            target.unlink()
            raise WrongContent(f"{why}; it was removed")


def replace_file(file: SetFile, *, size: int, sha256: str) -> SetFile:
    """The entry with what arrived."""
    return msgspec.structs.replace(file, bytes=size, sha256=sha256)


def _file(entry: _Entry) -> SetFile:
    check_file_name(entry.path)
    if entry.lfs is not None:
        return SetFile(name=entry.path, bytes=entry.lfs.size, sha256=entry.lfs.oid.lower())
    return SetFile(name=entry.path, bytes=entry.size, git_oid=entry.oid or None)


def _names_code(data: bytes) -> bool:
    try:
        config = json.loads(data)
    except (ValueError, RecursionError):
        return False
    return isinstance(config, dict) and bool(config.get("auto_map"))


def _decode(body: bytes, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(body, type=kind)
    except msgspec.MsgspecError as error:
        raise Refused(f"the hub answers something unexpected ({error})") from error


def _token(path: Path) -> str:
    try:
        text = path.read_bytes()[: MAX_TOKEN_BYTES + 1].decode("ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise NotAllowed(f"the hub token file {path} cannot be read; see hf_token_file") from error
    if not text or len(text) > MAX_TOKEN_BYTES or not text.isprintable() or " " in text:
        raise NotAllowed(f"the hub token file {path} does not hold one token; see hf_token_file")
    return text
