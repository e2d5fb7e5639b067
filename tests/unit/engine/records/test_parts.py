"""Batches in parts: the same records, a megabyte at a time, and no more decoded than needed."""

import tracemalloc
from itertools import chain

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.errors import CorruptBatch, InvalidRecord, TooLarge
from engine.records.batch import BatchView
from engine.records.budget import DecodeBudget, DecodeLimits
from engine.records.builder import encode_batch
from engine.records.compression import compress, decompressed_pieces
from engine.records.header import Codec
from engine.records.parts import PART_BYTES, Part, parts_of, split, whole_records
from engine.records.record import encode_record
from engine.types import INT64_MAX
from tests.support.builders import values_of
from tests.support.kafka_batches import reframed

COMPRESSING = [codec for codec in Codec if codec is not Codec.NONE]
LIMIT = 64 * PART_BYTES


def joined(parts: list[Part]) -> bytes:
    return b"".join(bytes(part.payload) for part in parts)


def batch_of(values: list[bytes], codec: Codec = Codec.NONE) -> BatchView:
    return BatchView(values_of(values, codec=codec))


MANY = [b"%d" % n * 20 for n in range(60_000)]
LARGE = [b"a", bytes(3 * PART_BYTES), b"b", b"c" * PART_BYTES, b"d"]


@pytest.mark.parametrize("codec", Codec)
@pytest.mark.parametrize(
    "values", [[b"x"], MANY, LARGE, LARGE[:2]], ids=["one", "many", "large", "large at the end"]
)
def test_parts_are_all_of_a_batch(codec: Codec, values: list[bytes]) -> None:
    """Whole records in order; only one that is larger than a part exceeds it, and is alone."""
    parts = list(parts_of(batch_of(values, codec), limit_bytes=LIMIT))
    assert joined(parts) == bytes(batch_of(values).payload)
    assert sum(part.records_count for part in parts) == len(values)
    for part in parts:
        assert part.is_bounded
        assert len(part.payload) <= PART_BYTES or part.records_count == 1


@given(st.lists(st.integers(0, 9_000), min_size=1, max_size=30), st.sampled_from([1, 3, 100]))
def test_a_part_ends_where_a_record_does(sizes: list[int], at_most: int) -> None:
    """For any lengths and any end of the data: as many whole records as there are."""
    encoded = [encode_record(0, n, None, bytes(size)) for n, size in enumerate(sizes)]
    data = b"".join(encoded)
    ends = [0]
    for record in encoded:
        ends.append(ends[-1] + len(record))
    for cut in {0, 1, ends[-1] // 2, ends[-1] - 1, ends[-1]}:
        count = min(at_most, max(n for n, end in enumerate(ends) if end <= cut))
        assert whole_records(data[:cut], 0, at_most) == (ends[count], count)


@pytest.mark.parametrize("codec", COMPRESSING)
def test_no_more_is_decoded_than_is_asked_for(codec: Codec) -> None:
    """The first part of 64 MiB costs a few of them, in bytes decoded and in memory."""
    batch = batch_of([bytes(1_000)] * 64_000, codec)
    budget = DecodeBudget(DecodeLimits(LIMIT, INT64_MAX))
    tracemalloc.start()
    try:
        first = next(iter(parts_of(batch, limit_bytes=LIMIT, budget=budget)))
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert first.records_count > 1_000
    assert LIMIT - budget.left_bytes <= 3 * PART_BYTES
    assert peak_bytes < 8 * PART_BYTES


@pytest.mark.parametrize("codec", COMPRESSING)
def test_pieces_end_at_the_limit(codec: Codec) -> None:
    """What decodes to more is refused with the piece that passes it."""
    compressed = compress(codec, bytes(4 * PART_BYTES))
    with pytest.raises(TooLarge) as refusal:
        for _ in decompressed_pieces(codec, compressed, 2 * PART_BYTES):
            pass
    assert refusal.value.facts()["limit_bytes"] == 2 * PART_BYTES


@pytest.mark.parametrize("codec", COMPRESSING)
def test_damage_is_met_where_it_is(codec: Codec) -> None:
    """Incomplete or changed bytes, and trailing ones: none of them is read as a batch."""
    compressed = compress(codec, b"".join(b"%d," % (n * n) for n in range(300_000)))
    half = len(compressed) // 2
    changed = compressed[: half + 1] + b"\xff" * 64 + compressed[half + 65 :]
    for damaged in (compressed[:-1], compressed + b"x", compressed[:half], b"", changed):
        with pytest.raises(CorruptBatch):
            for _ in decompressed_pieces(codec, damaged, LIMIT):
                pass


def test_bytes_after_the_records_are_refused() -> None:
    """Decompressed or not, before and after the first part."""
    for count in (3, 30_000):
        records = b"".join(encode_record(0, n, None, b"x" * 50) for n in range(count))
        plain = bytes(values_of([b"x" * 50] * count))
        for codec in (Codec.NONE, Codec.ZSTD):
            payload = compress(codec, records + bytes(3 * PART_BYTES))
            batch = BatchView(reframed(plain, payload=payload, codec=codec))
            with pytest.raises(InvalidRecord, match="follow the last record"):
                list(parts_of(batch, limit_bytes=LIMIT))


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
def test_what_has_no_length_is_left_to_who_decodes_it(codec: Codec) -> None:
    """The rest from there on is one part, which the compiled codec must not see."""
    for wrong in (b"\xff" * 6, b"\x81\x01"):
        records = [encode_record(0, n, None, bytes(1_000)) for n in range(2_000)]
        payload = compress(codec, b"".join((*records[:1_500], wrong, *records[1_500:])))
        batch = BatchView(reframed(bytes(values_of([b""] * 2_000)), payload=payload, codec=codec))
        *parts, rest = parts_of(batch, limit_bytes=LIMIT)
        assert all(part.is_bounded for part in parts)
        assert rest.records_count == 2_000 - sum(part.records_count for part in parts)
        assert len(rest.payload) <= PART_BYTES or not rest.is_bounded


def test_an_empty_batch_has_no_part() -> None:
    """Compaction leaves headers whose records are gone."""
    header = batch_of([b"x"]).header
    batch = BatchView(encode_batch(header, []))
    assert list(chain(split(batch.payload, 0), parts_of(batch, limit_bytes=LIMIT))) == []
