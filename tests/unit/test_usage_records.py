"""Usage records on disk: whatever happens to a file, whole records are read and nothing else is."""

from hypothesis import given, settings
from hypothesis import strategies as st

from llmgw.core.routing import UsageRow
from llmgw.router.spool import ROWS_A_RECORD, count_rows, encode_records, read_records


def row(number: int) -> UsageRow:
    """A row with an id of its own."""
    return UsageRow(id=f"u{number}", at=1.5, key_id="k", model="m", status=200, output_tokens=number)


def test_rows_come_back() -> None:
    """Also more than one record holds."""
    rows = [row(number) for number in range(ROWS_A_RECORD + 3)]
    records = list(encode_records(rows))
    assert len(records) == 2
    assert read_records(b"".join(records)) == (rows, 0)


@given(st.integers(1, 200))
@settings(max_examples=60)
def test_a_torn_tail_costs_its_record_only(missing: int) -> None:
    """A file cut anywhere in its last record still gives the others."""
    first, last = (b"".join(encode_records([row(number)])) for number in (1, 2))
    torn = (first + last)[: -min(missing, len(last) - 1)]
    assert read_records(torn) == ([row(1)], 1)


@given(st.integers(8, 60), st.integers(1, 255))
@settings(max_examples=60)
def test_a_damaged_record_is_skipped(position: int, flip: int) -> None:
    """A changed byte in a record's body loses that record, not the next."""
    first, last = (bytearray(b"".join(encode_records([row(number)]))) for number in (1, 2))
    first[position] ^= flip
    assert read_records(bytes(first + last)) == ([row(2)], 1)


@given(st.lists(st.integers(1, ROWS_A_RECORD), max_size=4), st.integers(0, 40))
@settings(max_examples=40)
def test_rows_are_counted_without_decoding_them(sizes: list[int], missing: int) -> None:
    """Those of whole records, whatever the size of a record."""
    data = b"".join(record for size in sizes for record in encode_records([row(number) for number in range(size)]))
    assert count_rows(data) == sum(sizes)
    cut = data[: max(0, len(data) - missing)]
    assert count_rows(cut) == len(read_records(cut)[0])


@given(st.binary(max_size=200))
def test_garbage_is_no_rows(data: bytes) -> None:
    """A file of anything never raises."""
    read_records(data)
    assert count_rows(data) >= 0
