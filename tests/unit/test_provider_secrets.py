"""Providers' keys on their way back: covered in every answer that repeats one, and their rests kept while they last."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmgw.core.routing import RoutedExternal, RoutedReplica
from llmgw.router.limits import POOL_IDLE_S
from llmgw.router.masking import Mask
from llmgw.router.pool import Pools
from llmgw.router.provider_keys import LONGEST_REST_S, Resting
from llmgw.router.reactor import Reactor
from tests.support.provider import KEYS, write_keys

SECRET = "sk/ab-ab/abc_123"
FORMS = (SECRET.encode(), SECRET.replace("/", "\\/").encode())
PIECES = st.lists(st.sampled_from([*FORMS, b"sk/ab-", b"sk", b'"error": ', b"x" * 40, b"\\", b"/"]), max_size=12)


@given(PIECES, st.lists(st.integers(0, 200), max_size=12))
def test_no_cut_lets_a_key_through_and_nothing_else_changes(pieces: list[bytes], cuts: list[int]) -> None:
    body = b"".join(pieces)
    ends = sorted(cut for cut in cuts if cut <= len(body))
    mask, out, begin = Mask(SECRET), b"", 0
    for end in ends:
        out += mask.feed(body[begin:end], last=False)
        begin = end
    out += mask.feed(body[begin:], last=True)
    assert len(out) == len(body)
    assert not any(form in out for form in FORMS)
    assert all(new in (old, ord("*")) for old, new in zip(body, out, strict=True))
    if not any(form in body for form in FORMS):
        assert out == body


def test_only_what_may_become_the_key_is_held_back() -> None:
    mask = Mask("sk-12345678")
    assert mask.feed(b"your key sk-123", last=False) == b"your key "
    assert mask.feed(b"4 is short", last=False) == b"sk-1234 is short"
    assert mask.hides(b"Bearer sk-12345678")
    assert not mask.hides(b"Bearer sk-1234567")


@pytest.fixture
def pools() -> Pools:
    """Of a reactor that serves nothing."""
    return Pools(Reactor())


def outside(path: Path, base_url: str = "https://provider.example/v1") -> RoutedReplica:
    external = RoutedExternal(keys_file=str(path))
    return RoutedReplica(id="external:m:0", model="m", endpoint=base_url, external=external)


def test_a_key_rests_longer_than_an_unused_pool_is_kept(tmp_path: Path, pools: Pools) -> None:
    replica = outside(write_keys(tmp_path / "keys", KEYS[0]))
    pool = pools.of(replica, "")
    assert pool.keys is not None
    now = pool.used_at
    key = pool.keys.take(now)
    pool.keys.refused(key, 429, LONGEST_REST_S, now)
    pools.tick(now + POOL_IDLE_S * 11)
    assert pools.known(replica) is None
    again = pools.of(replica, "")
    assert again is not pool
    assert again.keys is not None
    with pytest.raises(Resting) as resting:
        again.keys.take(now + POOL_IDLE_S * 11)
    assert resting.value.retry_after_s == pytest.approx(LONGEST_REST_S - POOL_IDLE_S * 11)
    pools.close()


def test_what_nobody_needs_to_remember_is_forgotten(tmp_path: Path, pools: Pools) -> None:
    replica = outside(write_keys(tmp_path / "keys", KEYS[0]))
    pool = pools.of(replica, "")
    ring = pool.keys
    assert ring is not None
    ring.refused(ring.take(pool.used_at), 401, None, pool.used_at)
    pools.tick(pool.used_at + POOL_IDLE_S * 11)
    assert pools.of(replica, "").keys is not ring
    pools.close()


def test_another_address_or_file_has_keys_of_its_own(tmp_path: Path, pools: Pools) -> None:
    path = write_keys(tmp_path / "keys", KEYS[0])
    ring = pools.of(outside(path), "").keys
    moved = outside(path, "https://elsewhere.example/v1")
    assert pools.of(moved, "").keys is not ring
    assert pools.of(outside(write_keys(tmp_path / "other", KEYS[1])), "").keys is not ring
    assert pools.of(outside(path), "").keys is ring, "what was known of it is known when it comes back"
    pools.close()
