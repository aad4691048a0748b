"""What operators ask of sets: refused before it is written down, and written down before it is done."""

from dataclasses import dataclass, field
from pathlib import Path

import pytest
import trio

from llmgw.api.types import WeightsFetch, WeightsVerify
from llmgw.control.weights import MirrorWeights, sentence
from llmgw.control.weights_service import WeightsService
from llmgw.core.cluster import FetchProgress
from llmgw.core.errors import NotFound, Unavailable
from llmgw.core.weights import SetState, SetStatus
from llmgw.mirror.bring import QUEUED
from llmgw.mirror.source import MirrorConfig
from tests.support.mirrors import Running, running_mirror, until_here
from tests.support.paced import HeldLimit
from tests.support.rawhttp import files, raw_server
from tests.support.weights import quick, tiny_llama

GGUF = tiny_llama(padding=1_000_000)


@dataclass
class Leading:
    """Stands for this server's leadership: remembers audit rows, or leads no more."""

    leads: bool = True
    rows: list[dict[str, object]] = field(default_factory=list)

    async def lead(self, _write: object, **row: object) -> None:
        await trio.lowlevel.checkpoint()
        if not self.leads:
            raise Unavailable("this server does not lead; another does")
        self.rows.append(row)


class NoModels:
    """A catalog of nothing."""

    def entries(self) -> tuple[()]:
        return ()


def service(running: Running, leading: Leading) -> WeightsService:
    return WeightsService(mirror=running.mirror, catalog=NoModels(), leadership=leading)  # type: ignore[arg-type]


@pytest.mark.trio
async def test_a_check_is_audited_and_its_verdict_is_in_the_list(tmp_path: Path) -> None:
    async with raw_server(files({"/m.gguf": GGUF})) as origin, running_mirror(tmp_path) as running:
        source = f"{origin.url}/m.gguf"
        await running.settled(source)
        leading = Leading()
        weights = service(running, leading)
        result = await weights.verify(WeightsVerify(source=source), actor="ada")
        assert result.message == f"{source}: checking 1 file, 1 MB; it is served meanwhile"
        assert leading.rows == [{"actor": "ada", "action": "weights.verify", "target": source}]
        await until_here(lambda: bool(weights.list()[0].verdict))
        (info,) = weights.list()
        assert (info.verdict, info.intact, info.phase) == ("its file is what was fetched", True, "")
        assert weights.rows()[source].verdict == info.verdict
        assert info.fetched is not None


@pytest.mark.trio
async def test_what_is_refused_leaves_no_row_and_what_cannot_be_written_is_not_begun(tmp_path: Path) -> None:
    async with raw_server(files({"/m.gguf": GGUF})) as origin, running_mirror(tmp_path) as running:
        source = f"{origin.url}/m.gguf"
        leading = Leading()
        with pytest.raises(NotFound, match="weights list"):
            await service(running, leading).verify(WeightsVerify(source=source), actor="ada")
        assert leading.rows == []
        await running.settled(source)
        with pytest.raises(Unavailable):
            await service(running, Leading(leads=False)).verify(WeightsVerify(source=source), actor="ada")
        status = running.mirror.status(source)
        assert status is not None
        assert (status.phase, status.verdict) == ("", "")


@pytest.mark.trio
async def test_a_set_that_comes_under_a_limit_says_so_until_it_is_here(tmp_path: Path) -> None:
    limit = HeldLimit(20_000_000)
    config = MirrorConfig(policy=quick(limit=limit))
    async with raw_server(files({"/m.gguf": GGUF})) as origin, running_mirror(tmp_path, config=config) as running:
        source, weights = f"{origin.url}/m.gguf", service(running, Leading())
        begun = await weights.fetch(WeightsFetch(source=source), actor="ada")
        assert begun.message == f"{source}: the mirror looks the source up"
        await limit.waiting.wait()
        assert weights.rows()[source].message == weights.list()[0].message == "limited to 20 MB/s in all"
        again = await weights.fetch(WeightsFetch(source=source), actor="ada")
        assert again.message.endswith(", limited to 20 MB/s in all")
        state = MirrorWeights(running.mirror).state(source)
        assert state.message.endswith(", limited to 20 MB/s in all")
        assert weights.limit_of(FetchProgress(phase="mirror")) == "limited to 20 MB/s in all"
        running.mirror.downloads.set(0)
        assert (await running.settled(source)).state is SetState.READY
        assert weights.rows()[source].message == ""


def test_a_set_in_the_queue_says_so_and_not_how_much_of_it_is_here() -> None:
    waiting = SetStatus(id="s", source="hf:a/b", state=SetState.FETCHING, total_bytes=10**9, message=QUEUED)
    assert sentence(waiting) == "on the mirror, queued: other sets come first"
    coming = SetStatus(id="s", source="hf:a/b", state=SetState.FETCHING, done_bytes=41 * 10**7, total_bytes=10**9)
    assert sentence(coming) == "the mirror fetches 41% of 1 GB"
