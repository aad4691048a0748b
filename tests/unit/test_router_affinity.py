"""Prompts that begin alike go to the same replica; the table that knows them stays small."""

from hypothesis import given, settings
from hypothesis import strategies as st

from llmgw.router.affinity import (
    BOUNDS,
    FINE_BLOCK,
    GENERATION,
    MAX_TABLES,
    READ_BYTES,
    PrefixTable,
    PrefixTables,
    chain,
)


@given(st.binary(max_size=4 * FINE_BLOCK), st.binary(max_size=2 * FINE_BLOCK), st.binary(max_size=2 * FINE_BLOCK))
def test_prompts_share_the_blocks_of_what_they_have_in_common(common: bytes, one: bytes, other: bytes) -> None:
    marks, others = chain(common + one, "key a"), chain(common + other, "key a")
    shared = sum(a == b for a, b in zip(marks, others, strict=False))
    assert marks[:shared] == others[:shared]
    assert shared >= sum(bound <= len(common) for bound in BOUNDS)
    same = next((i for i, (a, b) in enumerate(zip(common + one, common + other, strict=False)) if a != b), None)
    if same is not None:
        assert shared == sum(bound <= same for bound in BOUNDS)


def test_another_scope_shares_nothing() -> None:
    text = b"x" * READ_BYTES
    assert not set(chain(text, "team a")) & set(chain(text, "team b"))


def test_no_more_is_read_than_the_last_bound() -> None:
    assert len(chain(b"x" * READ_BYTES, "key a")) == len(BOUNDS)
    assert BOUNDS[-1] == READ_BYTES
    assert chain(b"x" * (FINE_BLOCK - 1), "key a") == []


def test_a_table_reads_back_who_read_what_up_to_the_first_unknown_block() -> None:
    table = PrefixTable()
    table.note([1, 2, 3], 1)
    table.note([1, 2, 9], 2)
    assert table.read([1, 2, 3, 4]) == [3, 3, 1]
    assert table.read([7, 1]) == []


@settings(max_examples=20)
@given(st.integers(1, len(BOUNDS)), st.integers(0, 2))
def test_a_table_is_bounded_and_forgets_the_oldest_first(blocks: int, more: int) -> None:
    table = PrefixTable()
    kept = list(range(-blocks, 0))
    for start in range(0, 4 * GENERATION + more, blocks):
        table.note(kept, 1)
        table.note(range(start, start + blocks), 2)
        assert len(table) <= 2 * (GENERATION + len(BOUNDS))
    assert table.read(kept) == [1] * blocks
    assert table.read([0]) == []


def test_only_so_many_models_have_a_table() -> None:
    tables = PrefixTables()
    tables.of("first").note([1], 1)
    for i in range(MAX_TABLES - 1):
        tables.of(f"m{i}")
    tables.of("first")
    tables.of("one more")
    assert len(tables) == MAX_TABLES
    assert tables.of("first").read([1]) == [1]
    tables.drop("first")
    assert tables.of("first").read([1]) == []
