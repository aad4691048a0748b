"""What the request log says of requests that waited for a place: how long, in which band, for what, and in vain."""

from pathlib import Path

import msgspec
import pytest

from llmgw.core import why
from llmgw.core.admission import Admission
from llmgw.router import comments as comments_module
from llmgw.router.comments import COMMENT
from tests.integration.test_request_log import lines, read
from tests.integration.test_router_admission import BANDS, BRONZE_KEY, GOLD_KEY, TAKES, site
from tests.support.router_plane import chat, post
from tests.support.waiting import until

pytestmark = pytest.mark.trio


async def test_a_request_that_waited_says_how_long_and_for_what(tmp_path: Path) -> None:
    async with site(requests=tmp_path) as here:
        await here.full()
        here.says(1, 4)
        here.ask("waits")
        await here.waiting(1)
        here.desk.answer()
        await here.desk.asked(TAKES + 1)
        here.desk.answer(TAKES)
        await here.answered("waits")
        found = await lines(tmp_path, TAKES + 1)
    waited = [line for line in found if line.waited_ms]
    assert [(line.band, line.waited_for) for line in waited] == [
        ("default", "m's replica was saturated (4 of 4 waiting in engines)")
    ]
    told = why.sentences(msgspec.structs.replace(waited[0], waited_ms=1800.0))[0]
    assert told == "waited 1.8 s in band default because m's replica was saturated (4 of 4 waiting in engines)"
    assert waited[0].attempts[0].at_ms >= waited[0].waited_ms


async def test_who_waited_in_vain_or_found_no_place_is_told_so(tmp_path: Path) -> None:
    async with site(Admission(max_waiting=1), queue_s=0.5, requests=tmp_path) as here:
        await here.full()
        here.ask("waits")
        await here.waiting(1)
        here.ask("full")
        assert (await here.answered("full")).status == 429
        assert (await here.answered("waits")).status == 504
        full, waited = await lines(tmp_path, 2)
    assert (full.status, full.end, full.code, full.band) == (429, "refused", "queue_full", "default")
    assert "1 of 1 places" in full.said
    assert (waited.status, waited.end, waited.code, waited.band) == (504, "failed", "queue_timeout", "default")
    assert waited.waited_ms > 0
    assert "as long as it may wait" in why.sentences(waited)[-1]


async def test_a_stream_whose_place_went_to_a_higher_band_leaves_its_line_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(comments_module, "KEEP_ALIVE_S", 0.3)
    async with site(Admission(max_waiting=2, bands=BANDS), requests=tmp_path) as here:
        await here.full()
        client = await here.plane.connect()
        await client.send(post(chat(True, user="bronze"), key=BRONZE_KEY))
        await client.until(COMMENT)
        here.ask("default")
        await here.waiting(2)
        here.ask("gold", key=GOLD_KEY)
        answer = await client.answer()
        assert b'"code":"queue_full"' in answer.body
        await until(lambda: bool(read(tmp_path)))
        (line,) = read(tmp_path)
    assert (line.key_id, line.status, line.end, line.band, line.stream) == ("k-bronze", 429, "refused", "bronze", True)
    assert "higher band" in line.said
