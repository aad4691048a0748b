"""`https://…` and `http://…`: one file, checked against the operator's sha256 where one is pinned."""

from pathlib import Path
from urllib.parse import unquote, urlsplit

from llmgw.core.sources import HttpSource, format_source
from llmgw.core.weights import Manifest, SetFile, check_file_name
from llmgw.mirror.source import MirrorConfig, check_name, head_check
from llmgw.transfer.download import Report, Wanted, download
from llmgw.transfer.http import Remote


class WebSource:
    """A file behind a URL."""

    def __init__(self, source: HttpSource, config: MirrorConfig) -> None:
        self._source = source
        self._config = config

    async def resolve(self, set_id: str) -> Manifest:
        """One file; its size is learned when it arrives."""
        name = unquote(urlsplit(self._source.url).path).rsplit("/", 1)[-1]
        check_file_name(name)
        check_name(name, self._config)
        return Manifest(
            id=set_id,
            source=format_source(self._source),
            files=(SetFile(name=name, sha256=self._source.sha256),),
            main=name,
        )

    async def fetch(self, manifest: Manifest, file: SetFile, target: Path, report: Report) -> SetFile:
        """Download it."""
        wanted = Wanted(
            target=target, size=file.bytes, sha256=file.sha256, refuse_head=head_check(file.name, self._config)
        )
        remote = Remote(url=self._source.url, timeouts=self._config.timeouts)
        got = await download(remote, wanted, report=report, policy=self._config.policy)
        return SetFile(name=file.name, bytes=got.size, sha256=got.sha256)
