"""Tests about appends: checks, changes, and the state after a refusal."""

import pytest

from engine.config import LogConfig
from engine.errors import (
    CorruptBatch,
    InvalidRecord,
    InvalidTimestamp,
    StorageOffline,
    UnexpectedAppendOffset,
)
from engine.records.batch import BatchView, stamp_crc
from engine.records.builder import NewRecord, build_batch
from engine.records.header import HEADER_BYTES, RECORDS_COUNT_POSITION, Codec, parse_header
from engine.types import AppendOrigin
from tests.support.builders import World, new_batch
from tests.support.conformance_places import DENSE
from tests.support.kafka import kafka
from tests.support.logs import fill, read_headers, read_records, read_values, with_config
from tests.support.time import START_MS

RECORDS: list[NewRecord] = [
    (START_MS + 5, b"a", b"1", []),
    (START_MS + 9, b"b", b"2", [("h", b"x")]),
    (START_MS - 3, b"c", b"3", []),
]
CODECS = pytest.mark.parametrize("codec", Codec, ids=lambda codec: codec.label)


@kafka(
    "LogValidatorTest.testAbsoluteOffsetAssignmentNonCompressed",
    "LogValidatorTest.testRelativeOffsetAssignmentNonCompressedV2",
    "LogValidatorTest.testRelativeOffsetAssignmentCompressedV2",
)
@CODECS
def test_offsets_are_consecutive_under_every_codec(codec: Codec) -> None:
    """Batch after batch, several in one append too, each record gets the next offset."""
    log = World().open_log(DENSE)
    log.append(build_batch(RECORDS, codec=codec))
    log.append(build_batch(RECORDS, codec=codec) + build_batch(RECORDS[:1], codec=codec))
    log.durability.commit()
    assert [record.offset for record in read_records(log)] == list(range(7))
    assert [header.base_offset for header in read_headers(log)] == [0, 3, 6]


@kafka("LogValidatorTest.checkNonCompressed", "LogValidatorTest.checkCompressed")
@CODECS
def test_with_create_time_a_batch_is_stored_as_it_came(codec: Codec) -> None:
    """Times stay, the maximum is the records', payload and producer are the client's."""
    log = World().open_log(DENSE)
    sent = build_batch(RECORDS, codec=codec, producer_id=7, producer_epoch=1, base_sequence=4)
    appended = log.append(bytes(sent))
    log.durability.commit()
    (stored,) = read_headers(log)
    assert appended.timestamp == stored.max_timestamp == START_MS + 9
    assert stored == parse_header(sent)._replace(leader_epoch=0)
    assert read_records(log) == list(BatchView(sent).records())


@kafka("LogValidatorTest.checkRecompression")
@pytest.mark.parametrize("wanted", ["gzip", "zstd", "lz4", "snappy"])
def test_a_recompressed_batch_keeps_times_and_producer(wanted: str) -> None:
    """Only codec, length and checksum are others afterwards."""
    log = World().open_log(with_config(compression_type=wanted))
    sent = build_batch(RECORDS, producer_id=7, producer_epoch=1, base_sequence=4)
    log.append(bytes(sent))
    log.durability.commit()
    (stored,) = read_headers(log)
    before = parse_header(sent)
    changed = {"attributes": 0, "length": 0, "crc": 0, "leader_epoch": 0}
    assert stored._replace(**changed) == before._replace(**changed)
    assert stored.codec.label == wanted
    assert read_records(log) == list(BatchView(sent).records())


@kafka(
    "LogValidatorTest.testDifferentLevelDoesNotCauseRecompression",
    "LogValidatorTest.testDifferentCodecCausesRecompression",
)
@pytest.mark.parametrize("level", [1, 9])
def test_another_level_of_the_same_codec_changes_nothing(level: int) -> None:
    """The payload is the client's, whichever level the topic has; another codec is rewritten at.

    It.
    """
    config = with_config(compression_type="gzip", compression_gzip_level=level)
    log = World().open_log(config)
    records: list[NewRecord] = [(START_MS, None, b"%d" % (n * n), []) for n in range(500)]
    sent = build_batch(records, codec=Codec.GZIP, level=5)
    log.append(bytes(sent))
    log.append(build_batch(records, codec=Codec.LZ4))
    log.durability.commit()
    fetched = log.reader.read(0, max_bytes=1 << 20)
    assert fetched is not None
    first = BatchView(fetched.data)
    assert first.payload == sent[HEADER_BYTES:]
    second = BatchView(fetched.data, first.header.size_bytes)
    assert second.payload == build_batch(records, codec=Codec.GZIP, level=level)[HEADER_BYTES:]


@kafka(
    "LogValidatorTest.checkLogAppendTimeNonCompressed",
    "LogValidatorTest.checkLogAppendTimeWithoutRecompression",
    "LogValidatorTest.checkLogAppendTimeWithRecompression",
)
@pytest.mark.parametrize(
    ("sent", "wanted", "same_payload"),
    [
        (Codec.NONE, "producer", True),
        (Codec.LZ4, "producer", True),
        (Codec.LZ4, "lz4", True),
        (Codec.LZ4, "gzip", False),
    ],
)
def test_with_append_time_every_record_has_the_logs_clock(
    sent: Codec, wanted: str, *, same_payload: bool
) -> None:
    """The header says so; the payload is only rebuilt for another codec."""
    world = World()
    log = world.open_log(
        with_config(message_timestamp_type="LogAppendTime", compression_type=wanted)
    )
    batch = build_batch(RECORDS, codec=sent)
    world.clock.advance(77)
    assert log.append(bytes(batch)).timestamp == START_MS + 77
    log.durability.commit()
    assert {record.timestamp for record in read_records(log)} == {START_MS + 77}
    fetched = log.reader.read(0, max_bytes=1 << 20)
    assert fetched is not None
    stored = BatchView(fetched.data)
    assert (stored.payload == batch[HEADER_BYTES:]) is same_payload
    assert stored.header.base_timestamp == parse_header(batch).base_timestamp


@kafka(
    "LogValidatorTest.testInvalidRecordExceptionHasBatchIndex",
    "LogValidatorTest.testBatchWithInvalidRecordsAndInvalidTimestamp",
    "LogValidatorTest.testInvalidCreateTimeNonCompressedV2",
    "LogValidatorTest.testInvalidCreateTimeCompressedV2",
)
@CODECS
def test_every_wrong_record_is_listed(codec: Codec) -> None:
    """Index, field and code of each; if a time is among them, that decides the error."""
    log = World().open_log(
        with_config(cleanup_policy=("compact",), message_timestamp_before_max_ms=1_000)
    )
    no_keys: list[NewRecord] = [(START_MS, None, b"v", [])] * 2
    with pytest.raises(InvalidRecord) as refused:
        log.append(build_batch([*no_keys, (START_MS, b"k", b"v", [])], codec=codec))
    assert not isinstance(refused.value, InvalidTimestamp)
    assert [error["index"] for error in refused.value.errors] == [0, 1]
    mixed: list[NewRecord] = [*no_keys, (START_MS - 2_000, b"k", b"v", [])]
    with pytest.raises(InvalidTimestamp) as late:
        log.append(build_batch(mixed, codec=codec))
    assert [error["index"] for error in late.value.errors] == [0, 1, 2]
    assert log.watermarks.log_end_offset == 0


@kafka("LogValidatorTest.checkOnlyOneBatch", "LogValidatorTest.checkAllowMultiBatch")
@pytest.mark.parametrize("bad", ["checksum", "cut", "empty"])
def test_several_batches_are_appended_together_or_not_at_all(bad: str) -> None:
    """Kafka takes one batch of a client at a time; here a wrong one refuses those before it."""
    log = World().open_log(DENSE)
    good = bytes(new_batch(2))
    broken = bytearray(new_batch(1))
    if bad == "checksum":
        broken[-1] ^= 1
    elif bad == "cut":
        del broken[-1]
    else:
        broken[RECORDS_COUNT_POSITION : RECORDS_COUNT_POSITION + 4] = bytes(4)
        stamp_crc(broken, 0, len(broken))
    with pytest.raises((CorruptBatch, InvalidRecord)):
        log.append(good + bytes(broken))
    assert log.watermarks.log_end_offset == 0
    assert log.append(good + good).records_count == 4


@kafka(
    "UnifiedLogTest.testAppendAsLeaderWithRaftLeader",
    "UnifiedLogTest.testAppendBelowExpectedOffsetThrowsException",
)
@CODECS
def test_given_offsets_at_the_end_are_kept_and_below_it_refused(codec: Codec) -> None:
    """Base 1 where the log ends at 3 is refused with its offsets, base 3 is stored as it is."""
    log = World().open_log(DENSE)
    fill(log, batches=1, records=3)
    given = new_batch(2, base_offset=1, leader_epoch=5, codec=codec)
    with pytest.raises(UnexpectedAppendOffset) as refused:
        log.append(given, origin=AppendOrigin.REPLICATION)
    facts = refused.value.facts()
    assert (facts["first_offset"], facts["last_offset"], facts["log_end_offset"]) == (1, 2, 3)
    given = new_batch(2, base_offset=3, leader_epoch=5, codec=codec)
    assert log.append(given, origin=AppendOrigin.REPLICATION).base_offset == 3
    assert log.watermarks.log_end_offset == 5


@kafka("UnifiedLogTest.testAppendToOrReadFromLogInFailedLogDir")
def test_a_directory_that_failed_takes_no_appends_and_serves_what_was_committed() -> None:
    """Unlike Kafka, reads below the high watermark continue until one of them fails."""
    world = World()
    log = world.open_log(DENSE)
    values = fill(log, batches=2)
    log.durability.commit()
    fill(log, batches=1, first=2)
    world.disk.fail("sync", path_end=".log")
    with pytest.raises(StorageOffline):
        log.durability.commit()
    with pytest.raises(StorageOffline):
        fill(log, batches=1, first=3)
    assert log.watermarks.log_end_offset == 3
    assert read_values(log) == values
    world.disk.fail("read", path_end=".log")
    for _ in range(2):
        with pytest.raises(StorageOffline):
            log.reader.read(0, max_bytes=1)


@kafka(
    "LocalLogTest.testLogCloseSuccess",
    "LocalLogTest.testLogCloseIdempotent",
    "LocalLogTest.testLogCloseHandlers",
    "LocalLogTest.testLogCloseHandlersIdempotent",
    "UnifiedLogTest.testLogRollAfterLogHandlerClosed",
)
def test_a_closed_log_takes_nothing_and_its_files_may_be_let_go_of_again() -> None:
    """Appends, rolls, flushes and another orderly close are refused; letting go is not."""
    world = World()
    for clean in (True, False):
        log = world.open_log(LogConfig(segment_index_bytes=1200), was_clean=False)
        fill(log, batches=1)
        if clean:
            log.close()
        for _ in range(2):
            log.maintenance.close_handles()
        for use in (
            log.roll,
            log.durability.flush,
            log.durability.commit,
            log.close,
            log.maintenance.run_retention,
        ):
            with pytest.raises(StorageOffline, match="closed"):
                use()
        with pytest.raises(StorageOffline, match="closed"):
            fill(log, batches=1)
