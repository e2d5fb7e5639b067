"""Which parts of a batch are kept, and why."""

from dataclasses import replace
from typing import Any

import pytest

from engine.cleaner.offset_map import SLOT_BYTES, OffsetMap
from engine.cleaner.rewrite import BatchFilter, LastBatch, Round
from engine.records.batch import BatchView
from engine.records.control import ControlType, build_end_marker
from engine.records.header import Codec
from engine.types import AbortedTransaction
from tests.support.builders import values_of
from tests.support.compaction import view
from tests.support.kafka import kafka

NOW_MS = 1_000_000
ROUND = Round(now_ms=NOW_MS, delete_retention_ms=500, end_offset=1000, limit_bytes=1 << 20)
PRODUCER: dict[str, Any] = {"producer_id": 9, "producer_epoch": 2, "base_sequence": 0}


def newest(latest: int = 999, **offsets: int) -> OffsetMap:
    """A map of keys to offsets that covers the log up to `latest`."""
    offset_map = OffsetMap(100 * SLOT_BYTES)
    for key, offset in offsets.items():
        offset_map.put(key.encode(), offset)
    offset_map.latest_offset = latest
    return offset_map


def pairs(kept: object) -> list[tuple[int, bytes | None, bytes | None]]:
    assert kept is not None, "the batch is gone"
    records = BatchView(kept).records()  # type: ignore[arg-type]  # bytes, or the assertion failed
    return [(record.offset, record.key, record.value) for record in records]


def commit_marker(offset: int = 50) -> BatchView:
    return BatchView(
        build_end_marker(
            ControlType.COMMIT,
            producer_id=9,
            producer_epoch=2,
            coordinator_epoch=0,
            timestamp=NOW_MS,
            base_offset=offset,
        )
    )


def test_only_the_newest_record_of_a_key_stays() -> None:
    """Older offsets are removed; keys that are not in the map are clean and stay."""
    batch_filter = BatchFilter(ROUND, newest(a=12, b=11))
    batch = view(("a", "1"), ("b", "2"), ("a", "3"), ("clean", "4"), base_offset=10)
    assert pairs(batch_filter.keep(batch)) == [
        (11, b"b", b"2"),
        (12, b"a", b"3"),
        (13, b"clean", b"4"),
    ]
    counts = batch_filter.counts
    assert (counts.records_read, counts.records_kept) == (4, 3)


def test_a_batch_that_loses_nothing_stays_as_it_is() -> None:
    """The same bytes, in whatever codec."""
    batch = view(("a", "1"), ("b", "2"), base_offset=10, codec=Codec.GZIP)
    assert BatchFilter(ROUND, newest(a=10, b=11)).keep(batch) is batch.buffer


def test_a_batch_that_loses_everything_goes() -> None:
    """Nothing takes its place, and nothing is counted as kept."""
    batch_filter = BatchFilter(ROUND, newest(a=99))
    assert batch_filter.keep(view(("a", "1"), base_offset=10)) is None
    assert batch_filter.counts.records_kept == 0


def test_records_beyond_the_map_stay() -> None:
    """Above the end of the map the newest records are unknown, and nothing is dropped."""
    batch = view(("a", "1"), ("a", "2"), base_offset=10)
    batch_filter = BatchFilter(ROUND, newest(latest=10, a=10))
    assert batch_filter.keep(batch) is batch.buffer


@kafka("LogCleanerTest.testCleaningWithUnkeyedMessages")
def test_records_without_a_key_are_dropped_and_counted() -> None:
    """They came before the topic was compacted."""
    batch_filter = BatchFilter(ROUND, newest(latest=10))
    assert pairs(batch_filter.keep(BatchView(values_of([b"1", b"2"], base_offset=10)))) == [
        (11, None, b"2")
    ]
    assert batch_filter.counts.records_without_key == 1


@kafka("LogCleanerTest.testCleanTombstone")
def test_a_tombstone_gets_its_horizon_when_it_is_first_kept() -> None:
    """From the time of cleaning, independent of the record's time."""
    batch = view(("a", None), ("b", "1"), base_offset=10, timestamp=3)
    kept = BatchFilter(ROUND, newest(a=10, b=11)).keep(batch)
    assert kept is not None
    header = BatchView(kept).header
    assert (header.has_delete_horizon, header.base_timestamp) == (True, NOW_MS + 500)
    assert [record.timestamp for record in BatchView(kept).records()] == [3, 3]
    assert pairs(kept) == [(10, b"a", None), (11, b"b", b"1")]


@pytest.mark.parametrize(("later_ms", "is_kept"), [(499, True), (500, False), (501, False)])
def test_a_tombstone_goes_when_its_horizon_is_reached(later_ms: int, *, is_kept: bool) -> None:
    """Until then its batch stays as it is, horizon and all; at that very moment it goes."""
    first = BatchFilter(ROUND, newest(a=10, b=11)).keep(
        view(("a", None), ("b", "1"), base_offset=10)
    )
    assert first is not None
    again = BatchFilter(replace(ROUND, now_ms=NOW_MS + later_ms), newest())
    kept = again.keep(BatchView(first))
    assert [key for _, key, _ in pairs(kept)] == ([b"a", b"b"] if is_kept else [b"b"])
    assert kept is not None
    header = BatchView(kept).header
    assert (header.has_delete_horizon, header.base_timestamp) == (True, NOW_MS + 500)


@kafka("LogCleanerTest.testCleanSegmentsRetainingLastEmptyBatch")
@pytest.mark.parametrize("ends_round", [True, False])
def test_the_last_batch_of_the_round_stays_as_a_header(*, ends_round: bool) -> None:
    """Or the log would end earlier after a restart."""
    batch = view(("a", "1"), ("a", "2"), base_offset=998 if ends_round else 997)
    kept = BatchFilter(ROUND, newest(a=9999)).keep(batch)
    assert (kept is not None) is ends_round
    if kept is not None:
        header = BatchView(kept).header
        assert (header.base_offset, header.last_offset, header.records_count) == (998, 999, 0)


@kafka("LogCleanerTest.testEmptyBatchRemovalWithSequenceReuse")
@pytest.mark.parametrize(("last_offset", "is_kept"), [(11, True), (10, False), (None, False)])
def test_a_producers_last_batch_stays_as_a_header(
    last_offset: int | None, *, is_kept: bool
) -> None:
    """Identified by its last offset, not by its sequence."""
    batch = view(("a", "1"), ("a", "2"), base_offset=10, **PRODUCER)
    last_batches = {9: LastBatch(last_offset, 2)}
    kept = BatchFilter(ROUND, newest(a=99), last_batches=last_batches).keep(batch)
    assert (kept is not None) is is_kept
    if kept is not None:
        header = BatchView(kept).header
        assert (header.records_count, header.last_sequence, header.producer_epoch) == (0, 1, 2)


@pytest.mark.parametrize(("epoch", "is_kept"), [(2, True), (3, False)])
def test_a_producers_only_marker_keeps_its_epoch(epoch: int, *, is_kept: bool) -> None:
    """A producer without data is known by its marker; that of another epoch is not needed."""
    old = replace(ROUND, now_ms=NOW_MS - 501)
    marked = BatchFilter(old, newest()).keep(commit_marker())
    assert marked is not None
    later = BatchFilter(ROUND, newest(), last_batches={9: LastBatch(None, epoch)})
    kept = later.keep(BatchView(marked))
    assert (kept is not None) is is_kept
    if kept is not None:
        emptied = BatchView(kept)
        assert (emptied.header.is_control, emptied.header.records_count) == (True, 0)
        assert not emptied.header.has_delete_horizon


@kafka("MemoryRecordsTest.testEmptyBatchRetention", "MemoryRecordsTest.testEmptyBatchDeletion")
def test_an_emptied_batch_stays_and_goes_like_a_full_one() -> None:
    """A bare header is copied while it is needed and dropped when it is not."""
    batch = view(("a", "1"), base_offset=10, **PRODUCER)
    needed = {9: LastBatch(10, 2)}
    emptied = BatchFilter(ROUND, newest(a=99), last_batches=needed).keep(batch)
    assert emptied is not None
    assert BatchFilter(ROUND, newest(), last_batches=needed).keep(BatchView(emptied)) == emptied
    assert BatchFilter(ROUND, newest()).keep(BatchView(emptied)) is None


def test_aborted_data_goes_without_being_looked_at() -> None:
    """A newer record of an aborted transaction supersedes nothing; the marker stays for now."""
    batch_filter = BatchFilter(ROUND, newest(a=99))
    batch_filter.transactions.expect([AbortedTransaction(9, 10, 12, 13)])
    aborted = view(("new", "1"), base_offset=10, is_transactional=True, **PRODUCER)
    assert batch_filter.keep(aborted) is None
    assert batch_filter.counts.records_read == 0
    marker = BatchView(
        build_end_marker(
            ControlType.ABORT,
            producer_id=9,
            producer_epoch=2,
            coordinator_epoch=0,
            timestamp=NOW_MS,
            base_offset=12,
        )
    )
    assert batch_filter.keep(marker) is marker.buffer


def test_a_marker_goes_a_retention_after_its_data() -> None:
    """With data it stays as it is; without, it gets a horizon; beyond that it goes."""
    batch_filter = BatchFilter(ROUND, newest())
    data = view(("a", "1"), base_offset=48, is_transactional=True, **PRODUCER)
    assert batch_filter.keep(data) is data.buffer
    marker = commit_marker()
    assert batch_filter.keep(marker) is marker.buffer
    marked = batch_filter.keep(marker)  # again, and this time no data came before
    assert marked is not None
    assert BatchView(marked).header.base_timestamp == NOW_MS + 500
    before = BatchFilter(replace(ROUND, now_ms=NOW_MS + 499), newest())
    assert before.keep(BatchView(marked)) == marked
    after = BatchFilter(replace(ROUND, now_ms=NOW_MS + 500), newest())
    assert after.keep(BatchView(marked)) is None


@kafka("LogCleanerTest.testCleaningWithKeysConflictingWithTxnMarkerKeys")
def test_a_users_key_is_no_markers_key() -> None:
    """Even with equal bytes."""
    marker = commit_marker()
    key = next(marker.records()).key
    assert key is not None
    offset_map = newest()
    offset_map.put(key, 999)
    batch_filter = BatchFilter(ROUND, offset_map)
    batch_filter.transactions.pass_data(
        view(("a", "1"), base_offset=48, is_transactional=True, **PRODUCER).header
    )
    assert batch_filter.keep(marker) is marker.buffer
