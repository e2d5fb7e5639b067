"""Records with a value only: the tables write what the compiled codec writes, byte for byte."""

from collections.abc import Sequence
from functools import partial

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.records.builder import (
    MAX_RECORDS,
    MAX_VALUE_BYTES,
    MIN_RECORDS,
    NewRecord,
    RecordColumns,
    build_batch,
    build_keyless,
)
from engine.records.header import Codec
from engine.types import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_SEQUENCE, Buffer

T = 1_700_000_000_000
NO_PRODUCER = (NO_PRODUCER_ID, NO_PRODUCER_EPOCH, NO_SEQUENCE, False)


def columns_of(values: Sequence[Buffer | None], time: int = T) -> RecordColumns:
    return RecordColumns([time] * len(values), [None] * len(values), values)


def one_by_one(values: Sequence[Buffer | None], time: int = T) -> list[NewRecord]:
    return [(time, None, value, []) for value in values]


def encoded(values: Sequence[Buffer | None], time: int = T) -> bytearray:
    """Return the batch of the compiled codec."""
    return build_batch(one_by_one(values, time))


@given(st.lists(st.binary(max_size=200), min_size=MIN_RECORDS, max_size=200), st.integers(0, T))
def test_tables_write_the_bytes_of_the_codec(values: list[bytes], time: int) -> None:
    """Values of all lengths, and any time."""
    assert build_keyless(values, time, NO_PRODUCER) == encoded(values, time)


@pytest.mark.parametrize("count", [MIN_RECORDS, 63, 64, 65, 8_191, MAX_RECORDS])
@pytest.mark.parametrize("size_bytes", [0, 1, 58, 59, 63, 64, 150, MAX_VALUE_BYTES])
def test_numbers_grow_a_byte_where_the_codec_s_do(count: int, size_bytes: int) -> None:
    """Offset deltas from 64 take two bytes, and so do the lengths of values and records."""
    values = [b"v" * size_bytes] * count
    batch = encoded(values)
    assert build_batch(columns_of(values)) == batch
    assert build_keyless(values, T, NO_PRODUCER) == batch


def test_lengths_that_differ_write_the_bytes_of_the_codec() -> None:
    """Every length that a table has, one after the other."""
    values = [b"v" * size for size in range(MAX_VALUE_BYTES + 1)]
    assert build_keyless(values, T, NO_PRODUCER) == encoded(values)


@pytest.mark.parametrize("codec", Codec)
def test_producers_transactions_and_codecs_are_those_of_any_batch(codec: Codec) -> None:
    """The header and the compression do not depend on the way that encodes the records."""
    values = [b"%d" % number for number in range(100)]
    for is_transactional in (False, True):
        build = partial(
            build_batch,
            codec=codec,
            producer_id=7,
            producer_epoch=2,
            base_sequence=5,
            is_transactional=is_transactional,
            base_offset=9,
            leader_epoch=3,
        )
        assert build(columns_of(values)) == build(one_by_one(values))


def test_values_may_be_any_buffer() -> None:
    """Raw JSON of a request is not copied before it is joined."""
    texts = [b'{"n":%d}' % number for number in range(100)]
    raws = msgspec.json.decode(b"[%b]" % b",".join(texts), type=list[msgspec.Raw])
    assert build_keyless(raws, T, NO_PRODUCER) == encoded(texts)
    assert build_keyless([memoryview(text) for text in texts], T, NO_PRODUCER) == encoded(texts)


@pytest.mark.parametrize(
    "values",
    [
        [b"v"] * (MIN_RECORDS - 1),
        [b"v"] * (MAX_RECORDS + 1),
        [*[b"v"] * MIN_RECORDS, b"v" * (MAX_VALUE_BYTES + 1)],
        [*[b"v"] * MIN_RECORDS, None],
    ],
    ids=["few", "many", "large", "null"],
)
def test_the_codec_encodes_what_tables_cannot(values: list[bytes | None]) -> None:
    """Nothing is refused: the batch is made in the usual way."""
    assert build_keyless(values, T, NO_PRODUCER) is None
    assert build_batch(columns_of(values)) == encoded(values)


@pytest.mark.parametrize(
    "columns",
    [
        RecordColumns([T] * 100, [*[None] * 99, b"k"], [b"v"] * 100),
        RecordColumns([*[T] * 99, T + 1], [None] * 100, [b"v"] * 100),
        RecordColumns([T] * 100, [None] * 100, [b"v"] * 100, [[("h", b"x")]] * 100),
    ],
    ids=["a key", "a time", "headers"],
)
def test_one_record_that_has_more_is_not_left_out(columns: RecordColumns) -> None:
    """A key, a time or a header is written, although all other records have none."""
    assert build_batch(columns) == build_batch(list(columns))
