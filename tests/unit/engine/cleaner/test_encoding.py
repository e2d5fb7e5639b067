"""The batches that only compaction writes, against the worked examples and the plain encoder."""

import pytest

from engine.cleaner.rewrite import empty_batch, rewritten_batch
from engine.records.batch import BatchView
from engine.records.builder import build_batch, encode_batch
from engine.records.control import ControlType, build_end_marker
from engine.records.header import Codec, TimestampType
from tests.support.kafka import kafka

RECORDS = [
    (1000 + number, b"k%d" % (number % 3), b"v" * number, [("h", None), ("n", b"x")])
    for number in range(8)
]
EMPTY_EXAMPLE = bytes.fromhex(
    "0000000000000000000000310000000502c7744d8c000000000004ffffffffff"
    "ffffff0000018bcfe5680000000000000003e800000000000000000000"
)
MARKER_EXAMPLE = bytes.fromhex(
    "000000000000000d0000004500000005026bc2ddd10070000000000000018bd5"
    "0beb100000018bcfe56fd00000000000000bb80001ffffffff000000012600ff"
    "ecb3520008000000010c00000000000200"
)


def batch(**options: object) -> BatchView:
    built = build_batch(RECORDS, base_offset=100, **options)  # type: ignore[arg-type]  # by name
    return BatchView(built)


@kafka("MemoryRecordsTest.testFilterToEmptyBatchRetention")
def test_an_emptied_batch_is_kafkas_bare_header() -> None:
    """The 61 bytes of the worked example: count 0, base time -1, all that identifies it kept."""
    original = build_batch(
        [(1_700_000_000_000, b"key", b"value", ())] * 5,
        codec=Codec.GZIP,
        producer_id=1000,
        producer_epoch=0,
        base_sequence=0,
        leader_epoch=5,
    )
    assert bytes(empty_batch(BatchView(original).header)) == EMPTY_EXAMPLE


def test_a_marker_gets_its_horizon_as_in_kafka() -> None:
    """The worked example: times count back from the horizon, and are what they were."""
    original = BatchView(
        build_end_marker(
            ControlType.COMMIT,
            producer_id=3000,
            producer_epoch=1,
            coordinator_epoch=2,
            timestamp=1_700_000_002_000,
            base_offset=13,
            leader_epoch=5,
        )
    )
    horizon_ms = 1_700_000_010_000 + 86_400_000
    rewritten = rewritten_batch(original.header, list(original.records()), horizon_ms)
    assert bytes(rewritten) == MARKER_EXAMPLE
    assert list(BatchView(rewritten).records()) == list(original.records())


@pytest.mark.parametrize("horizon_ms", [None, 500_000], ids=["no horizon", "horizon"])
@pytest.mark.parametrize("codec", Codec)
def test_survivors_keep_everything_but_their_neighbours(
    codec: Codec, horizon_ms: int | None
) -> None:
    """Offsets, times, contents, codec and what identifies the batch stay; the rest is counted."""
    original = batch(codec=codec, producer_id=7, producer_epoch=1, base_sequence=5, leader_epoch=3)
    kept = list(original.records())[2:7:2]
    rewritten = BatchView(rewritten_batch(original.header, kept, horizon_ms))
    rewritten.ensure_intact()
    assert [tuple(record) for record in rewritten.records()] == [tuple(record) for record in kept]
    before, after = original.header, rewritten.header
    assert after.has_delete_horizon is (horizon_ms is not None)
    assert after.base_timestamp == (1002 if horizon_ms is None else horizon_ms)
    assert (after.max_timestamp, after.records_count) == (1006, 3)
    same = "base_offset last_offset leader_epoch codec producer_id producer_epoch last_sequence"
    for name in same.split():
        assert getattr(after, name) == getattr(before, name), name


@pytest.mark.parametrize("horizon_ms", [None, 500_000], ids=["no horizon", "horizon"])
def test_the_fast_encoder_writes_what_the_plain_one_does(horizon_ms: int | None) -> None:
    """Byte for byte, the records and the checksum."""
    original = batch()
    kept = [one._replace(headers=tuple(one.headers)) for one in original.records()][1::2]
    rewritten = BatchView(rewritten_batch(original.header, kept, horizon_ms))
    assert bytes(rewritten.buffer) == bytes(encode_batch(rewritten.header, kept))


def test_records_without_a_time_keep_having_none() -> None:
    """A base time of -1 is a time here, where the compiled encoder would take it for none."""
    original = BatchView(build_batch([(-1, b"a", b"1", ()), (5, b"b", b"2", ())]))
    kept = list(original.records())
    rewritten = BatchView(rewritten_batch(original.header, kept[:1], None))
    assert list(rewritten.records()) == kept[:1]
    assert (rewritten.header.base_timestamp, rewritten.header.max_timestamp) == (-1, -1)


def test_append_time_stays_the_time_of_all_records() -> None:
    """With log append time the maximum is not a record's own and is not recomputed."""
    original = batch(timestamp_type=TimestampType.LOG_APPEND_TIME)
    kept = list(original.records())[:2]
    rewritten = BatchView(rewritten_batch(original.header, kept, None))
    assert rewritten.header.max_timestamp == original.header.max_timestamp == 1007
    assert [record.timestamp for record in rewritten.records()] == [1007, 1007]
