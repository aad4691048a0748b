"""The key cache: one question a key, trouble is never an answer, known keys never wait, changes count at once."""

from collections.abc import Awaitable, Callable
from functools import partial

import pytest
import trio
import trio.testing

from llmgw.core.routing import KeyAnswer, KeyRecord
from llmgw.router import keys as keys_module
from llmgw.router.keys import (
    AWAY_GRACE_S,
    CONFIRM_WAIT_S,
    LOOKUP_EXPIRES_S,
    LOOKUP_WAIT_S,
    NEGATIVE_TTL_S,
    RETRY_S,
    TTL_S,
    KeyCache,
)
from llmgw.router.ports import Refusal
from llmgw.router.ration import UNKNOWN_KEYS_A_MINUTE, WINDOW_S, address_group

KEY = b"sk-known-key-of-somebody"
ALICE = KeyRecord(id="k1", name="alice")
CLIENT = "192.0.2.1"

Clock = trio.testing.MockClock
"""Every test names it: the clock of a fixture's fixture is not the one the test runs on."""


class Feed:
    """The control plane as a cache sees it: collects questions, answers when told."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self.asked: list[str] = []
        self.cache = KeyCache(bytes.hex, clock=clock)
        self.cache.ask = self.asked.append
        self.cache.feed_up()

    def answer(self, record: KeyRecord | None, key: bytes = KEY) -> None:
        """The control plane's word on `key`."""
        self.cache.answered(KeyAnswer(digest=key.hex(), record=record))

    def trouble(self, key: bytes = KEY) -> None:
        """The store is away."""
        self.cache.answered(KeyAnswer(digest=key.hex(), error="the store is away"))

    async def know(self) -> None:
        """Have KEY in the cache."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.cache.authenticate, KEY, CLIENT)
            await trio.testing.wait_all_tasks_blocked()
            self.answer(ALICE)
        self.asked.clear()


@pytest.fixture
def feed(autojump_clock: trio.testing.MockClock) -> Feed:
    """A connected cache on a clock that jumps."""
    return Feed(autojump_clock.current_time)


async def refused(call: Callable[[], Awaitable[object]]) -> int:
    """The status a call is refused with."""
    with pytest.raises(Refusal) as caught:
        await call()
    return caught.value.status


@pytest.mark.trio
@pytest.mark.promise("A23")
async def test_one_question_for_many_callers_and_a_cancelled_first_one(feed: Feed, autojump_clock: Clock) -> None:
    """200 at once ask once; the first of them leaving takes nobody with it."""
    got: list[KeyRecord] = []
    first = trio.CancelScope()

    async def caller(scope: trio.CancelScope) -> None:
        with scope:
            got.append(await feed.cache.authenticate(KEY, CLIENT))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(caller, first)
        await trio.testing.wait_all_tasks_blocked()
        for _ in range(200):
            nursery.start_soon(caller, trio.CancelScope())
        await trio.testing.wait_all_tasks_blocked()
        first.cancel()
        await trio.testing.wait_all_tasks_blocked()
        feed.answer(ALICE)
    assert got == [ALICE] * 200
    assert feed.asked == [KEY.hex()]
    assert feed.cache.cached(KEY) == ALICE


@pytest.mark.trio
@pytest.mark.parametrize(
    "key",
    [b"short", b"x" * 201, b"sk-with space", b"sk-\x00nul-nul-nul", "sk-schlüssel".encode(), b"sk-newline\n", b""],
)
async def test_odd_keys_are_401_without_a_question(feed: Feed, autojump_clock: Clock, key: bytes) -> None:
    """What cannot be a key is not looked up."""
    assert await refused(lambda: feed.cache.authenticate(key, CLIENT)) == 401
    assert feed.asked == []


@pytest.mark.trio
async def test_no_key_is_401(feed: Feed, autojump_clock: Clock) -> None:
    """With a sentence on how to send one."""
    with pytest.raises(Refusal, match="Bearer") as caught:
        await feed.cache.authenticate(None, CLIENT)
    assert caught.value.status == 401


@pytest.mark.trio
@pytest.mark.promise("A3")
async def test_known_keys_are_honoured_for_as_long_as_the_control_plane_is_away(
    feed: Feed, autojump_clock: Clock
) -> None:
    """Unknown ones are 503, at once."""
    await feed.know()
    feed.cache.feed_down()
    await trio.sleep(80_000)
    assert feed.cache.cached(KEY) == ALICE
    before = trio.current_time()
    assert await refused(lambda: feed.cache.authenticate(b"sk-unknown", CLIENT)) == 503
    assert trio.current_time() == before
    assert feed.asked == []


@pytest.mark.trio
async def test_an_expired_key_is_served_and_asked_for_in_the_background(feed: Feed, autojump_clock: Clock) -> None:
    """Store trouble leaves it known; it is asked for again, but not at every request."""
    await feed.know()
    await trio.sleep(TTL_S)
    for _ in range(10):
        assert feed.cache.cached(KEY) == ALICE
    assert feed.asked == [KEY.hex()]
    feed.trouble()
    assert feed.cache.cached(KEY) == ALICE
    assert feed.asked == [KEY.hex()]
    await trio.sleep(RETRY_S)
    assert feed.cache.cached(KEY) == ALICE
    feed.answer(None)
    assert feed.cache.cached(KEY) is None
    assert await refused(lambda: feed.cache.authenticate(KEY, CLIENT)) == 401


@pytest.mark.trio
async def test_trouble_is_503_and_is_not_cached(feed: Feed, autojump_clock: Clock) -> None:
    """The next request asks again."""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(refused, partial(feed.cache.authenticate, KEY, CLIENT))
        await trio.testing.wait_all_tasks_blocked()
        feed.trouble()
    await feed.know()
    assert feed.cache.cached(KEY) == ALICE


@pytest.mark.trio
async def test_no_answer_is_503_after_the_deadline_and_a_late_one_is_used(feed: Feed, autojump_clock: Clock) -> None:
    """A slow store delays nobody for longer than the deadline."""
    before = trio.current_time()
    assert await refused(lambda: feed.cache.authenticate(KEY, CLIENT)) == 503
    assert trio.current_time() - before == pytest.approx(LOOKUP_WAIT_S)
    feed.answer(ALICE)
    assert await feed.cache.authenticate(KEY, CLIENT) == ALICE
    assert feed.asked == [KEY.hex()]


@pytest.mark.trio
async def test_a_question_never_answered_is_given_up(feed: Feed, autojump_clock: Clock) -> None:
    """And asked anew."""
    assert await refused(lambda: feed.cache.authenticate(KEY, CLIENT)) == 503
    await trio.sleep(LOOKUP_EXPIRES_S)
    feed.cache.sweep()
    await feed.know()


@pytest.mark.trio
@pytest.mark.case("C13")
async def test_an_answer_to_a_question_given_up_before_a_change_is_not_believed(
    feed: Feed, autojump_clock: Clock
) -> None:
    """It was read before the change, and comes when the key is asked for anew."""
    assert await refused(lambda: feed.cache.authenticate(KEY, CLIENT)) == 503
    await trio.sleep(LOOKUP_EXPIRES_S)
    feed.cache.sweep()
    feed.cache.changed(KEY.hex())
    async with trio.open_nursery() as nursery:
        nursery.start_soon(refused, partial(feed.cache.authenticate, KEY, CLIENT))
        await trio.testing.wait_all_tasks_blocked()
        feed.answer(ALICE)
        await trio.testing.wait_all_tasks_blocked()
        assert feed.cache.cached(KEY) is None
        feed.answer(None)
    assert feed.asked == [KEY.hex()] * 3
    assert await refused(lambda: feed.cache.authenticate(KEY, CLIENT)) == 401


@pytest.mark.trio
@pytest.mark.case("C13")
async def test_giving_up_again_forgets_neither_the_change_nor_how_many_answers_may_come(
    feed: Feed, autojump_clock: Clock
) -> None:
    for _ in range(2):
        assert await refused(lambda: feed.cache.authenticate(KEY, CLIENT)) == 503
        await trio.sleep(LOOKUP_EXPIRES_S)
        feed.cache.sweep()
        if len(feed.asked) == 1:
            feed.cache.changed(KEY.hex())
    async with trio.open_nursery() as nursery:
        nursery.start_soon(refused, partial(feed.cache.authenticate, KEY, CLIENT))
        for _ in range(2):
            await trio.testing.wait_all_tasks_blocked()
            feed.answer(ALICE)
        await trio.testing.wait_all_tasks_blocked()
        assert feed.cache.cached(KEY) is None
        feed.answer(None)
    assert feed.asked == [KEY.hex()] * 5
    assert await refused(lambda: feed.cache.authenticate(KEY, CLIENT)) == 401


@pytest.mark.trio
async def test_an_answer_that_nobody_waits_for_any_more_is_one_less_to_come(feed: Feed, autojump_clock: Clock) -> None:
    assert await refused(lambda: feed.cache.authenticate(KEY, CLIENT)) == 503
    await trio.sleep(LOOKUP_EXPIRES_S)
    feed.cache.sweep()
    feed.answer(ALICE)
    feed.cache.changed(KEY.hex())
    await feed.know()
    assert feed.cache.cached(KEY) == ALICE


@pytest.mark.trio
async def test_nobodys_key_is_cached_briefly(feed: Feed, autojump_clock: Clock) -> None:
    """It may be created a moment later."""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(refused, partial(feed.cache.authenticate, KEY, CLIENT))
        await trio.testing.wait_all_tasks_blocked()
        feed.answer(None)
    assert await refused(lambda: feed.cache.authenticate(KEY, CLIENT)) == 401
    assert feed.asked == [KEY.hex()]
    await trio.sleep(NEGATIVE_TTL_S)
    await feed.know()


@pytest.mark.trio
@pytest.mark.promise("A24")
@pytest.mark.case("C13")
async def test_a_changed_key_is_forgotten_and_an_answer_on_its_way_is_asked_again(
    feed: Feed, autojump_clock: Clock
) -> None:
    """An old answer that arrives after the change is not believed."""
    await feed.know()
    await trio.sleep(TTL_S)
    assert feed.cache.cached(KEY) == ALICE  # its refresh is on its way
    feed.cache.changed(KEY.hex())
    assert feed.cache.cached(KEY) is None
    async with trio.open_nursery() as nursery:
        nursery.start_soon(refused, partial(feed.cache.authenticate, KEY, CLIENT))
        await trio.testing.wait_all_tasks_blocked()
        feed.answer(ALICE)
        await trio.testing.wait_all_tasks_blocked()
        assert feed.cache.cached(KEY) is None
        feed.answer(KeyRecord(id="k1", name="alice", revoked=True))
    assert feed.asked == [KEY.hex()] * 2
    assert await refused(lambda: feed.cache.authenticate(KEY, CLIENT)) == 401


@pytest.mark.trio
async def test_guesses_are_rationed_by_address_and_known_keys_are_not(feed: Feed, autojump_clock: Clock) -> None:
    """429 says when to come back; another address, and a known key, are served."""
    await feed.know()

    async def guess(number: int, client: str) -> int:
        key = b"sk-guess-%d" % number
        async with trio.open_nursery() as nursery:

            async def answer() -> None:
                await trio.testing.wait_all_tasks_blocked()
                feed.answer(None, key)

            nursery.start_soon(answer)
            return await refused(lambda: feed.cache.authenticate(key, client))

    for number in range(UNKNOWN_KEYS_A_MINUTE):
        assert await guess(number, f"2001:db8:0:1::{number:x}") == 401
    with pytest.raises(Refusal, match="too many unrecognised api keys") as caught:
        await feed.cache.authenticate(b"sk-guess-more", "2001:db8:0:1:ffff::1")
    assert caught.value.status == 429
    assert caught.value.retry_after_s is not None
    assert 0 < caught.value.retry_after_s <= WINDOW_S
    assert await feed.cache.authenticate(KEY, "2001:db8:0:1::1") == ALICE
    assert await guess(1000, "2001:db8:0:2::1") == 401
    await trio.sleep(WINDOW_S)
    assert await guess(1001, "2001:db8:0:1::1") == 401


@pytest.mark.trio
async def test_many_new_good_keys_from_one_address_are_all_served(feed: Feed, autojump_clock: Clock) -> None:
    """They wait for each other rather than being taken for guesses."""
    names: list[str] = []
    wanted = [b"sk-good-%04d" % number for number in range(3 * UNKNOWN_KEYS_A_MINUTE)]

    async def caller(key: bytes) -> None:
        names.append((await feed.cache.authenticate(key, CLIENT)).name)

    async with trio.open_nursery() as nursery:
        for key in wanted:
            nursery.start_soon(caller, key)
        while len(names) < len(wanted):
            await trio.testing.wait_all_tasks_blocked()
            open_now = feed.asked[len(names) :]
            assert 0 < len(open_now) <= UNKNOWN_KEYS_A_MINUTE
            for digest in open_now:
                feed.cache.answered(KeyAnswer(digest=digest, record=KeyRecord(id=digest, name=digest)))
            await trio.testing.wait_all_tasks_blocked()
    assert sorted(names) == [key.hex() for key in wanted]


@pytest.mark.trio
async def test_a_restored_key_is_confirmed_first_if_somebody_is_there_to_ask(feed: Feed, autojump_clock: Clock) -> None:
    """A key revoked while no router ran is not honoured on an old file's word."""
    feed.cache.restore(KEY.hex(), ALICE)
    assert feed.cache.cached(KEY) is None
    async with trio.open_nursery() as nursery:
        nursery.start_soon(refused, partial(feed.cache.authenticate, KEY, CLIENT))
        await trio.testing.wait_all_tasks_blocked()
        feed.answer(None)


@pytest.mark.trio
async def test_a_restored_key_is_honoured_when_nobody_answers(feed: Feed, autojump_clock: Clock) -> None:
    """At once without a control plane, after a moment with one that is silent."""
    feed.cache.restore(KEY.hex(), ALICE)
    before = trio.current_time()
    assert await feed.cache.authenticate(KEY, CLIENT) == ALICE
    assert trio.current_time() - before == pytest.approx(CONFIRM_WAIT_S)
    feed.cache.feed_down()
    before = trio.current_time()
    assert await feed.cache.authenticate(KEY, CLIENT) == ALICE
    assert trio.current_time() == before


@pytest.mark.trio
async def test_questions_are_asked_again_after_a_reconnect(feed: Feed, autojump_clock: Clock) -> None:
    """A control plane that was just restarted costs a new key a moment, not a refusal."""
    feed.cache.feed_down()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(feed.cache.authenticate, KEY, CLIENT)
        await trio.sleep(AWAY_GRACE_S / 2)
        assert feed.asked == []
        feed.cache.feed_up()
        assert feed.asked == [KEY.hex()]
        feed.answer(ALICE)


@pytest.mark.trio
async def test_the_cache_is_bounded_and_forgets_what_was_used_longest_ago(
    feed: Feed, autojump_clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A flood of keys costs bounded memory."""
    monkeypatch.setattr(keys_module, "MAX_KNOWN", 3)
    await feed.know()
    for number in range(3):
        assert feed.cache.cached(KEY) == ALICE
        other = b"sk-other-%d" % number
        async with trio.open_nursery() as nursery:
            nursery.start_soon(feed.cache.authenticate, other, CLIENT)
            await trio.testing.wait_all_tasks_blocked()
            feed.answer(KeyRecord(id="o", name="o"), other)
    assert feed.cache.cached(KEY) == ALICE
    assert feed.cache.cached(b"sk-other-0") is None
    assert feed.cache.cached(b"sk-other-2") is not None


@pytest.mark.parametrize(
    ("one", "other"),
    [("192.0.2.1", "::ffff:192.0.2.1"), ("2001:db8::1", "2001:db8::ffff:1:2"), ("fe80::1%eth0", "fe80::2")],
)
def test_addresses_of_one_subscriber_are_one(one: str, other: str) -> None:
    """IPv4 whichever way it is written, IPv6 by /64."""
    assert address_group(one) == address_group(other)


@pytest.mark.parametrize(("one", "other"), [("192.0.2.1", "192.0.2.2"), ("2001:db8:0:1::1", "2001:db8:0:2::1")])
def test_addresses_of_two_are_two(one: str, other: str) -> None:
    """Neighbours are not rationed together."""
    assert address_group(one) != address_group(other)
