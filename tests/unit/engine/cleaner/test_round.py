"""Whole rounds on a log: what readers, restarts and producers find afterwards."""

from typing import Any

import pytest

from engine.cleaner.offset_map import SLOT_BYTES, OffsetMap
from engine.cleaner.rewrite import BatchFilter, Round, rewrite_group
from engine.errors import SegmentOverflow, StoredDataCorrupt
from engine.records.batch import BatchView, stamp_crc
from engine.records.builder import build_batch
from engine.records.control import ControlType
from engine.records.header import Codec
from engine.types import AppendOrigin, FetchIsolation
from tests.support.compaction import Compacted, keyed, newest
from tests.support.kafka import kafka
from tests.support.logs import read_records, segment_bases
from tests.support.time import START_MS

COMMIT, ABORT = ControlType.COMMIT, ControlType.ABORT
DAY_MS = 86_400_000


def producer(number: int = 1, *, sequence: int = 0, epoch: int = 0) -> dict[str, Any]:
    return {"producer_id": number, "producer_epoch": epoch, "base_sequence": sequence}


def transactional(number: int = 1, *, sequence: int = 0) -> dict[str, Any]:
    return {**producer(number, sequence=sequence), "is_transactional": True}


@kafka("LogCleanerTest.testCleanSegments")
def test_superseded_records_go_and_all_others_stay() -> None:
    """Offsets do not change, and the report has the records read."""
    compacted = Compacted()
    for number in range(10):
        compacted.put((f"k{number % 4}", f"v{number}"), (f"once-{number}", "x"))
    compacted.seal()
    before, size = compacted.pairs(), compacted.log.reader.size_bytes
    report = compacted.clean()
    assert newest(compacted.pairs()) == newest(before)
    assert compacted.offsets() == [1, 3, 5, 7, 9, 11, *range(12, 20)]
    assert (report.first_dirty_offset, report.end_offset) == (0, 20)
    assert (report.bytes_before, report.bytes_after) == (size, compacted.log.reader.size_bytes)
    assert (report.records_read, report.records_kept, report.keys_count) == (20, 14, 14)
    compacted.log.maintenance.check_invariants()
    assert "14 of 20 records stay" in str(report)


def test_small_segments_become_one() -> None:
    """A run of segments takes one name, that of the first; the active one is left alone."""
    compacted = Compacted()
    for number in range(4):
        compacted.put(("key", str(number)), (f"k{number}", "x"))
        compacted.seal()
    compacted.put(("key", "active"))
    report = compacted.clean()
    assert (report.segments_before, report.segments_after) == (5, 1)
    assert segment_bases(compacted.log) == [0, 9]
    assert compacted.offsets() == [1, 3, 5, 7, 8]


@kafka("LogCleanerTest.testCleaningWithDeletes")
def test_deleted_keys_disappear() -> None:
    """First all but the tombstone, and the tombstone after its time."""
    compacted = Compacted()
    compacted.put(("a", "1"), ("b", "1"))
    compacted.put(("a", None))
    compacted.clean()
    assert compacted.pairs() == [("b", "1"), ("a", None)]
    compacted.world.clock.advance(DAY_MS)
    compacted.put(("other", "1"))
    compacted.clean()
    assert compacted.pairs() == [("b", "1"), ("other", "1")]


@kafka("LogCleanerTest.testCleanSegmentsRetainingLastEmptyBatch")
def test_a_log_that_loses_everything_keeps_its_end() -> None:
    """One empty batch holds the last offset, over a restart too."""
    compacted = Compacted(overrides={"delete.retention.ms": 0})
    compacted.put(("a", "1"), ("b", "1"))
    compacted.put(("a", None), ("b", None))
    compacted.clean()
    compacted.world.clock.advance(1)
    assert compacted.cleaner.run_pass() is None
    compacted.cleaner.clean_now(compacted.log)
    assert compacted.batches() == [(2, 3, 0)]
    compacted.close()
    compacted.open()
    assert compacted.log.watermarks.log_end_offset == 4
    assert compacted.put(("a", "2")) == 4


@pytest.mark.parametrize("codec", Codec)
def test_batches_stay_in_the_codec_they_came_in(codec: Codec) -> None:
    """Records of a batch are decompressed, chosen, and compressed again."""
    compacted = Compacted()
    compacted.put(*((f"k{number % 7}", "x" * 100) for number in range(20)), codec=codec)
    compacted.clean()
    assert compacted.offsets() == list(range(13, 20))
    data = compacted.log.reader.read(0, max_bytes=1 << 20)
    assert data is not None
    assert BatchView(data.data).header.codec is codec


def test_what_only_the_plain_decoder_reads_is_cleaned_too() -> None:
    """A broker takes header names that are not UTF-8; they are read with replacements."""
    batch = build_batch([(START_MS, b"a", b"%d" % number, [("??", b"x")]) for number in range(3)])
    batch = batch.replace(b"??", b"\xff\xfe")
    stamp_crc(batch, 0, len(batch))
    compacted = Compacted()
    compacted.log.append(batch, checked=True)
    compacted.clean()
    (record,) = read_records(compacted.log)
    assert (record.offset, record.value) == (2, b"2")
    assert list(record.headers) == [("\ufffd\ufffd", b"x")]


def test_a_key_that_comes_again_takes_no_room() -> None:
    """A map that is full of other keys' slots is full; one that repeats a key is not."""
    compacted = Compacted()
    compacted.cleaner = compacted.new_cleaner(dedupe_buffer_bytes=3 * SLOT_BYTES)
    compacted.put(*(("a", str(number)) for number in range(5)), ("b", "1"), ("c", "1"))
    compacted.seal()
    report = compacted.cleaner.run_pass()
    assert report is not None
    assert (report.keys_count, report.end_offset) == (2, 6)
    assert compacted.pairs() == [("a", "4"), ("b", "1"), ("c", "1")]


@kafka("LogCleanerTest.testLargeMessage")
def test_a_batch_larger_than_a_chunk_is_cleaned() -> None:
    """A chunk grows for it, and shrinks again."""
    compacted = Compacted()
    compacted.cleaner = compacted.new_cleaner(chunk_bytes=200)
    compacted.put(("large", "x" * 5000))
    for number in range(4):
        compacted.put(("small", str(number)))
    compacted.clean()
    assert compacted.offsets() == [0, 4]


@kafka("LogCleanerTest.testDeletedBatchesWithNoMessagesRead")
def test_a_chunk_without_survivors_makes_progress() -> None:
    """Nothing is written for it, and the next one is read."""
    compacted = Compacted()
    compacted.cleaner = compacted.new_cleaner(chunk_bytes=100)
    for number in range(6):
        compacted.put(("key", str(number)))
    compacted.clean()
    assert compacted.pairs() == [("key", "5")]


@kafka("LogCleanerTest.testPartialSegmentClean", "LogCleanerTest.testBuildPartialOffsetMap")
def test_a_map_with_room_for_one_key_gets_there_in_the_end() -> None:
    """Each round takes one key further."""
    compacted = Compacted()
    compacted.cleaner = compacted.new_cleaner(dedupe_buffer_bytes=2 * SLOT_BYTES)
    for number in range(4):
        compacted.put((f"k{number % 2}", str(number)), ("other", str(number)))
    compacted.seal()
    before = newest(compacted.pairs())
    report = compacted.cleaner.run_pass()
    assert report is not None
    assert (report.end_offset, report.keys_count) == (1, 1)
    rounds = 1
    while compacted.cleaner.run_pass() is not None:
        rounds += 1
    assert rounds == 8
    assert newest(compacted.pairs()) == before
    assert len(compacted.pairs()) == 3
    assert compacted.checkpoint() == "0\n1\nevents 0 8\n"


@kafka("LogCleanerTest.testCleaningBeyondMissingOffsets")
def test_gaps_between_segments_do_not_stop_a_round() -> None:
    """Where offsets are missing at the end of a segment, the next one is dirty all the same."""
    compacted = Compacted()
    compacted.put(("a", "1"))
    compacted.log.append(keyed(("a", "2"), base_offset=1000), origin=AppendOrigin.REPLICATION)
    compacted.log.roll()
    compacted.log.append(keyed(("b", "3"), base_offset=5000), origin=AppendOrigin.REPLICATION)
    report = compacted.clean()
    assert report.end_offset == 5001
    assert compacted.offsets() == [1000, 5000]


@kafka("LogCleanerTest.testSizeTrimmedForPreallocatedAndCompactedTopic")
def test_a_preallocated_output_is_as_long_as_its_content() -> None:
    """No zeros are left."""
    compacted = Compacted(overrides={"preallocate": "true", "segment.bytes": 4096})
    compacted.put(("a", "1"), ("a", "2"))
    compacted.clean()
    assert len(compacted.file(0, ".log")) == compacted.log.reader.segments[0].size_bytes < 200


def test_the_output_is_as_old_as_its_sources() -> None:
    """Retention by modification time sees the last source's."""
    compacted = Compacted()
    compacted.put(("a", "1"), ("a", "2"))
    compacted.seal()
    modified_ms = compacted.log.reader.segments[0].modified_ms
    compacted.world.clock.advance(5000)
    compacted.clean()
    assert compacted.log.reader.segments[0].modified_ms == modified_ms


def test_indexes_of_the_output_are_as_dense_as_the_topic_wants() -> None:
    """Batch by batch, and no denser than the index has room for."""
    compacted = Compacted(overrides={"index.interval.bytes": 0, "segment.index.bytes": 96})
    for number in range(9):
        compacted.put((f"k{number}", "x"))
        compacted.seal()
    compacted.clean()
    compacted.log.maintenance.update_config(compacted.log.config)
    index = list(compacted.log.reader.segments[0].indexes.offset.entries())
    positions = dict(compacted.log.reader.segments[0].headers())
    assert len(index) == 7, "the time index keeps a slot for its last entry"
    assert [positions[entry.position].last_offset for entry in index] == [
        entry.offset for entry in index
    ]


@kafka("LogCleanerTest.testSegmentWithOffsetOverflow")
def test_a_group_that_is_too_wide_is_refused() -> None:
    """Its last offsets could not be expressed in one segment's indexes; the sources stay."""
    compacted = Compacted()
    compacted.put(("a", "1"))
    far = 2**31 + 5
    compacted.log.append(keyed(("b", "1"), base_offset=far), origin=AppendOrigin.REPLICATION)
    compacted.seal()
    group = compacted.log.reader.segments[:2]
    compaction = compacted.log.maintenance.compaction()
    keep_all = BatchFilter(
        Round(now_ms=0, delete_retention_ms=0, end_offset=far + 1, limit_bytes=1 << 20),
        OffsetMap(SLOT_BYTES),
    )
    with pytest.raises(SegmentOverflow):
        rewrite_group(compaction, group, keep_all, chunk_bytes=1 << 20, pace=lambda _: None)
    assert compacted.offsets() == [0, far]
    report = compacted.cleaner.run_pass()
    assert report is not None
    assert report.segments_after == 2


# -- producers and transactions ------------------------------------------------------------------


@kafka(
    "LogCleanerTest.testDuplicateCheckAfterCleaning",
    "LogCleanerTest.testLogCleanerRetainsProducerLastSequence",
)
def test_duplicates_are_recognised_after_cleaning_and_restart() -> None:
    """With the offsets they had, whether the batch is there, changed or empty."""
    compacted = Compacted()
    first = keyed(("a", "1"), ("b", "1"), **producer(1))
    last = keyed(("a", "2"), ("b", "2"), **producer(2))
    for batch in (first, last, keyed(("b", "3"), **producer(3)), keyed(("a", "3"))):
        compacted.log.append(bytearray(batch))
    compacted.clean()
    assert compacted.batches() == [(0, 1, 0), (2, 3, 0), (4, 4, 1), (5, 5, 1)]
    for directory in (None, "restart"):
        if directory:
            compacted.crash(power_cut=True)
        for offset, batch in ((0, first), (2, last)):
            appended = compacted.log.append(bytearray(batch))
            assert (appended.is_duplicate, appended.base_offset) == (True, offset)


@kafka("LogCleanerTest.testLogCleanerRetainsProducerLastSequence")
def test_an_emptied_batch_goes_when_its_producer_has_written_on() -> None:
    """Only the last one is needed."""
    compacted = Compacted()
    compacted.put(("a", "1"), **producer(1))
    compacted.put(("a", "2"))
    compacted.clean()
    assert compacted.batches() == [(0, 0, 0), (1, 1, 1)]
    compacted.put(("a", "3"), **producer(1, sequence=1))
    compacted.put(("a", "4"))
    compacted.clean()
    assert compacted.batches() == [(2, 2, 0), (3, 3, 1)]


@kafka("LogCleanerTest.testBasicTransactionAwareCleaning")
def test_aborted_records_go_and_committed_ones_stay() -> None:
    """Aborted records supersede nothing."""
    compacted = Compacted()
    compacted.put(("a", "old"), ("b", "old"))
    compacted.put(("a", "committed"), **transactional(1))
    compacted.put(("b", "aborted"), **transactional(2))
    compacted.end_transaction(COMMIT, 1)
    compacted.end_transaction(ABORT, 2)
    compacted.put(("c", "x"), **transactional(2, sequence=1))
    compacted.end_transaction(COMMIT, 2)
    compacted.clean()
    expected = [("b", "old"), ("a", "committed"), ("c", "x")]
    assert compacted.pairs() == expected
    assert compacted.pairs(isolation=FetchIsolation.TXN_COMMITTED) == expected
    assert compacted.aborted() == [5], "the marker is there, and so is its entry"


@kafka(
    "LogCleanerTest.testCleanWithTransactionsSpanningSegments",
    "LogCleanerTest.testAbortedTransactionSpanningSegments",
)
def test_an_aborted_transaction_goes_though_its_marker_is_not_cleaned_yet() -> None:
    """The marker is in a later segment, which is cleaned in another round."""
    compacted = Compacted(overrides={"segment.bytes": 300})
    compacted.put(("a", "1"))
    compacted.put(("a", "aborted"), **transactional(2))
    compacted.log.roll()
    compacted.put(("c", "aborted"), **transactional(2, sequence=1))
    compacted.log.roll()
    compacted.end_transaction(ABORT, 2)
    compacted.put(("d", "1"))
    compacted.clean()
    assert compacted.pairs() == [("a", "1"), ("d", "1")]
    assert compacted.batches() == [(0, 0, 1), (2, 2, 0), (3, 3, 1), (4, 4, 1)]
    assert compacted.aborted() == [3]


@kafka("LogCleanerTest.testCommitMarkerRemoval", "LogCleanerTest.testAbortMarkerRemoval")
@pytest.mark.parametrize("kind", [COMMIT, ABORT])
def test_a_marker_goes_a_retention_after_the_last_of_its_data(kind: ControlType) -> None:
    """It stays with data, gets its horizon without, and goes when that is reached."""
    compacted = Compacted()
    compacted.put(("a", "1"), **transactional(1))
    marker = compacted.end_transaction(kind, 1)
    compacted.put(("a", "2"), ("b", "2"), **transactional(1, sequence=1))
    compacted.end_transaction(COMMIT, 1)
    rounds = []
    for number in range(4):
        compacted.put((f"filler-{number}", "x"))
        compacted.clean()
        bases = [base for base, _, _ in compacted.batches()]
        rounds.append((marker in bases, marker in compacted.aborted()))
        compacted.world.clock.advance(DAY_MS)
    assert rounds == [(True, kind is ABORT), (True, False), (False, False), (False, False)]


@kafka(
    "LogCleanerTest.testCommitMarkerRetentionWithEmptyBatch",
    "LogCleanerTest.testAbortMarkerRetentionWithEmptyBatch",
)
@pytest.mark.parametrize("kind", [COMMIT, ABORT])
def test_an_emptied_batch_keeps_its_marker(kind: ControlType) -> None:
    """It counts as data of the transaction for as long as the producer needs it."""
    compacted = Compacted(overrides={"delete.retention.ms": 1000})
    compacted.put(("a", "1"), **transactional(1))
    marker = compacted.end_transaction(kind, 1)
    compacted.put(("a", "2"))
    for number in range(3):
        compacted.put((f"filler-{number}", "x"))
        compacted.clean()
        compacted.world.clock.advance(1000)
        assert compacted.batches()[:2] == [(0, 0, 0), (marker, marker, 1)]
        assert compacted.aborted() == ([marker] if kind is ABORT else [])
    compacted.put(("a", "3"), **transactional(1, sequence=1))
    compacted.end_transaction(COMMIT, 1)
    for _ in range(3):  # the empty batch goes, the marker gets its horizon, the marker goes
        compacted.clean()
        compacted.world.clock.advance(1000)
        compacted.put(("filler", "x"))
    assert marker not in [base for base, _, _ in compacted.batches()]


@kafka("LogCleanerTest.testCleanEmptyControlBatch")
def test_the_only_marker_of_a_producer_becomes_an_empty_batch() -> None:
    """And such a batch can be cleaned again."""
    compacted = Compacted(overrides={"delete.retention.ms": 0})
    compacted.end_transaction(ABORT, 7, producer_epoch=3)
    for number in range(3):
        compacted.put((f"filler-{number}", "x"))
        compacted.clean()
        compacted.world.clock.advance(1)
    assert compacted.batches()[0] == (0, 0, 0)
    assert [entry.producer_epoch for entry in compacted.log.producers.active()] == [3]


@kafka("LogCleanerTest.testMultiPassSegmentCleaningWithAbortedTransactions")
def test_aborted_data_goes_in_several_rounds_of_a_small_map() -> None:
    """Data first, then entry and horizon, then the marker."""
    compacted = Compacted(overrides={"delete.retention.ms": 1000})
    compacted.cleaner = compacted.new_cleaner(dedupe_buffer_bytes=4 * SLOT_BYTES)
    compacted.put(("a", "1"), ("b", "1"), ("c", "1"))
    compacted.put(("a", "2"), ("b", "2"), **transactional(2))
    marker = compacted.end_transaction(ABORT, 2)
    compacted.put(("c", "2"), ("d", "2"), **producer(2, sequence=2))
    compacted.seal()
    before = newest(compacted.pairs(isolation=FetchIsolation.TXN_COMMITTED))
    while compacted.cleaner.run_pass() is not None:
        assert newest(compacted.pairs(isolation=FetchIsolation.TXN_COMMITTED)) == before
    compacted.cleaner.clean_now(compacted.log)
    assert compacted.aborted() == []
    assert marker in [base for base, _, _ in compacted.batches()]
    compacted.world.clock.advance(1000)
    compacted.cleaner.clean_now(compacted.log)
    assert marker not in [base for base, _, _ in compacted.batches()]
    assert newest(compacted.pairs()) == before


# -- damage --------------------------------------------------------------------------------------


def damaged(position: int) -> Compacted:
    """A sealed segment of three batches with one bit changed on the disk."""
    compacted = Compacted()
    for number in range(3):
        compacted.put(("key", f"value-{number}"))
    compacted.seal()
    inode = compacted.world.disk._inode(compacted.log.reader.segments[0].records.path)  # noqa: SLF001 - damage
    inode.content[position] ^= 0x40
    return compacted


@kafka(
    "LogCleanerTest.testMessageLargerThanMaxMessageSizeWithCorruptHeader",
    "LogCleanerTest.testCorruptMessageSizeLargerThanBytesAvailable",
)
@pytest.mark.parametrize(
    ("position", "what"),
    [
        (70, "checksum"),
        (16, "magic"),
        (8, "does not fit"),
        (11, "less than any batch"),
        (7, "offsets 64 to 64 where only 0 to 2 can be"),
        (0, "offsets"),
    ],
    ids=["content", "magic", "beyond the file", "too short", "offset", "far offset"],
)
def test_damage_is_reported_and_nothing_is_made_of_it(position: int, what: str) -> None:
    """The sources stay as they are; a fresh checksum must not cover wrong bytes."""
    compacted = damaged(position)
    before = compacted.file(0, ".log")
    with pytest.raises(StoredDataCorrupt, match=what):
        compacted.cleaner.clean_now(compacted.log)
    assert compacted.file(0, ".log") == before
    assert not [name for name in compacted.files() if name.endswith((".cleaned", ".swap"))]
