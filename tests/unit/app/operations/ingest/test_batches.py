"""Records of one append, cut into batches that the topic takes."""

from hypothesis import given
from hypothesis import strategies as st

from app.operations.ingest.batches import parts_of
from engine.records.builder import HeaderList, NewRecord, RecordColumns, build_batch

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
