"""Keys that change while their requests wait for a place: what they may do no more is not served, and told at once."""

import pytest
import trio
import trio.testing

from llmgw.core.limits import Limits
from llmgw.core.routing import KeyAnswer, KeyRecord
from llmgw.router.keys import KeyCache
from llmgw.router.limiter import Limiter
from llmgw.router.ports import Refusal
from tests.integration.test_router_admission import GOLD_KEY, TAKES, Site, site
from tests.support.router_plane import KEY, chat, post, settled

pytestmark = pytest.mark.trio

GOLD = KeyRecord(id="k-gold", name="gold")


def change(here: Site, record: KeyRecord | None) -> None:
    """The gold key is that from now on, or nobody's, and the data plane hears that it changed."""
    if record is None:
        del here.plane.state.others[GOLD_KEY]
    else:
        here.plane.state.others[GOLD_KEY] = record
    here.plane.state.on_stale_key("k-gold")


@pytest.mark.parametrize("stream", [False, True])
async def test_a_request_of_a_revoked_key_leaves_the_line_at_once(stream: bool) -> None:
    async with site() as here:
        await here.full()
        here.ask("revoked", key=GOLD_KEY, stream=stream)
        await here.waiting(1)
        here.ask("stays")
        await here.waiting(2)
        change(here, None)
        answer = await here.answered("revoked")
        assert (answer.status, answer.error["code"]) == (401, "invalid_api_key")
        await here.waiting(1)
        here.desk.answer(TAKES)
        await here.desk.asked(TAKES + 1)
        here.desk.answer()
        assert (await here.answered("stays")).status == 200
        assert "revoked" not in here.desk.order
        await settled(here.plane)
        (row,) = [row for row in here.plane.state.rows if row.status == 401]
        assert (row.key_id, row.attempts, row.band) == ("k-gold", 0, "default")


async def test_a_request_for_a_model_taken_from_its_key_leaves_the_line() -> None:
    async with site() as here:
        await here.full()
        here.ask("denied", key=GOLD_KEY)
        await here.waiting(1)
        change(here, KeyRecord(id="k-gold", name="gold", models=("other",)))
        answer = await here.answered("denied")
        assert (answer.status, answer.error["code"]) == (404, "model_not_found")
        assert here.queue() == 0


async def test_a_change_that_nobody_told_of_is_noticed_when_the_turn_comes() -> None:
    async with site() as here:
        await here.full()
        here.ask("revoked", key=GOLD_KEY)
        await here.waiting(1)
        here.ask("next")
        await here.waiting(2)
        del here.plane.state.others[GOLD_KEY]
        here.desk.answer()
        assert (await here.answered("revoked")).status == 401
        await here.desk.asked(TAKES + 1)
        assert here.desk.order[-1] == "next"
        assert here.plane.state.slow_lookups == 1


async def test_a_change_that_takes_nothing_away_keeps_the_place() -> None:
    async with site() as here:
        await here.full()
        here.ask("stays", key=GOLD_KEY)
        await here.waiting(1)
        here.ask("later")
        await here.waiting(2)
        change(here, KeyRecord(id="k-gold", name="renamed", models=("m",)))
        for count, name in enumerate(("stays", "later"), start=1):
            here.desk.answer()
            await here.desk.asked(TAKES + count)
            assert here.desk.order[-1] == name


async def test_limits_that_changed_hold_for_who_waits() -> None:
    async with site() as here:
        here.plane.state.limiter = Limiter()
        await here.full()
        here.plane.state.others[GOLD_KEY] = KeyRecord(id="k-gold", name="gold", limits=Limits(parallel=2))
        here.ask("wide", key=GOLD_KEY)
        await here.waiting(1)
        change(here, KeyRecord(id="k-gold", name="gold", limits=Limits(parallel=0)))
        answer = await here.answered("wide")
        assert (answer.status, answer.error["code"]) == (429, "rate_limit_exceeded")
        change(here, KeyRecord(id="k-gold", name="gold", limits=Limits(parallel=1)))
        here.ask("one", key=GOLD_KEY)  # nothing is left of the one before
        await here.waiting(1)
        assert (await here.plane.ask(post(chat(user="two"), key=GOLD_KEY))).status == 429
        here.desk.answer(TAKES)
        await here.desk.asked(TAKES + 1)
        here.desk.answer()
        assert (await here.answered("one")).status == 200


async def test_a_request_whose_key_is_asked_for_keeps_its_place_meanwhile_and_a_client_may_leave() -> None:
    async with site() as here:
        await here.full()
        asked, answer = trio.Event(), trio.Event()

        async def authenticate(authorization: bytes | None, client: str) -> KeyRecord:
            asked.set()
            await answer.wait()
            raise Refusal(401, "no", code="invalid_api_key")

        here.plane.state.authenticate = authenticate  # type: ignore[method-assign]
        client = await here.plane.connect()
        await client.send(post(chat(user="leaves"), key=GOLD_KEY))
        await here.waiting(1)
        change(here, None)
        await asked.wait()
        here.ask("stays", key=KEY)
        await here.waiting(2)
        here.desk.answer()  # its turn comes while its key is looked at
        await here.waiting(1)
        await client.stream.aclose()
        await here.desk.asked(TAKES + 1)
        assert here.desk.order[-1] == "stays"


async def test_the_cache_tells_whose_key_may_have_changed() -> None:
    cache, told = KeyCache(bytes.hex), list[str]()
    cache.on_stale = told.append
    cache.restore("d1", GOLD)
    cache.changed("d1")
    cache.changed("d2")  # known to nobody here, though a request with it may wait
    assert told == ["k-gold", ""]
    cache.feed_up()
    assert told.pop() == ""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(cache.authenticate, GOLD_KEY, "192.0.2.1")
        await trio.testing.wait_all_tasks_blocked()
        cache.answered(KeyAnswer(digest=GOLD_KEY.hex(), record=GOLD))
    del told[:]
    for record in (GOLD, KeyRecord(id="k-gold", name="gold", models=("m",)), None):
        cache.feed_up()
        await cache.authenticate(GOLD_KEY, "192.0.2.1")  # a key in use is asked for again
        cache.answered(KeyAnswer(digest=GOLD_KEY.hex(), record=record))
    assert told == ["", "", "k-gold", "", "k-gold"]
