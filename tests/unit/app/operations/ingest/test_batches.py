"""Records of one append, cut into batches that the topic takes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.operations.ingest.bodies import (
    _DELIVERY_BYTES,
    HEADER_SIZES_BYTES,
    RECORD_BYTES,
    parts_of,
)
from engine.records.builder import HeaderList, NewRecord, RecordColumns, build_batch
from engine.records.header import HEADER_BYTES

MAX_BYTES = 4_000

DATA = st.none() | st.binary(max_size=1_500)
PAIRS = st.lists(st.tuples(DATA, DATA), min_size=1, max_size=20)


def listed(records: list[NewRecord] | RecordColumns) -> list[tuple[object, object]]:
    return [(key, value) for _, key, value, *_ in records]


@given(pairs=PAIRS, has_headers=st.booleans(), is_columns=st.booleans())
def test_batches_have_all_records_in_order_within_the_limit(
    *, pairs: list[tuple[bytes | None, bytes | None]], has_headers: bool, is_columns: bool
) -> None:
    """Only a record that is too large by itself may be above it."""
    headers: HeaderList = [("content-type", b"text/plain")] if has_headers else []
    records: list[NewRecord] | RecordColumns = [(1, key, value, headers) for key, value in pairs]
    if is_columns:
        keys, values = map(list, zip(*pairs, strict=True))
        count = len(pairs)
        records = RecordColumns([1] * count, keys, values, [headers] * count if headers else None)
    parts = list(parts_of(records, MAX_BYTES))
    assert [one for part in parts for one in listed(part)] == pairs
    for part in parts:
        assert len(part) == 1 or len(build_batch(part)) <= MAX_BYTES


@pytest.mark.parametrize("is_columns", [False, True])
def test_a_record_counts_with_its_key_value_and_headers(*, is_columns: bool) -> None:
    """Two records share a batch up to the byte; with one byte less they have one each."""
    key, value = b"k" * 30, b"v" * 70
    headers: HeaderList = [("n" * 5, b"x" * 11)]
    size_bytes = RECORD_BYTES + 30 + 70 + HEADER_SIZES_BYTES + 5 + 11
    records: list[NewRecord] | RecordColumns = [(1, key, value, headers)] * 2
    if is_columns:
        records = RecordColumns([1] * 2, [key] * 2, [value] * 2, [headers] * 2)
    most_bytes = 2 * size_bytes + HEADER_BYTES + _DELIVERY_BYTES
    assert [len(part) for part in parts_of(records, most_bytes)] == [2]
    assert [len(part) for part in parts_of(records, most_bytes - 1)] == [1, 1]
