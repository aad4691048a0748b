"""The simulated engine holds what prompts begin with, as far as it has room."""

from hypothesis import given
from hypothesis import strategies as st

from llmgw.sim.prefixes import BLOCK, PrefixCache


@given(st.binary(max_size=20 * BLOCK), st.binary(max_size=4 * BLOCK), st.binary(max_size=4 * BLOCK))
def test_whole_blocks_of_a_common_beginning_are_held(common: bytes, one: bytes, other: bytes) -> None:
    cache = PrefixCache(1024)
    assert cache.read(common + one) == 0
    held = cache.read(common + other)
    assert held % BLOCK == 0
    assert len(common) - len(common) % BLOCK <= held <= len(common + other)
    assert (common + one)[:held] == (common + other)[:held]
    assert cache.read(common + other) == len(common + other) // BLOCK * BLOCK


def test_what_was_used_the_longest_ago_makes_room() -> None:
    cache = PrefixCache(1)
    first, second, third = (bytes([n]) * 512 for n in range(3))
    for prompt in (first, second, first, third):
        cache.read(prompt)
    assert cache.read(first) == 512
    assert cache.read(second) == 0


def test_without_room_nothing_is_held() -> None:
    cache = PrefixCache(0)
    assert [cache.read(b"x" * 512) for _ in range(2)] == [0, 0]
