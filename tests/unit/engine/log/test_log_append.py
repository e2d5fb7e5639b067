"""The effects of an append: offsets, stamps, refusals, and the log afterwards."""

import dataclasses
from itertools import product

import pytest

from engine.config import LogConfig
from engine.errors import (
    BatchSetTooLarge,
    CorruptBatch,
    EngineError,
    InvalidRecord,
    InvalidTimestamp,
    OffsetsOutOfOrder,
    PreconditionFailed,
    TooLarge,
    UnexpectedAppendOffset,
    UnsupportedMagic,
)
from engine.log.log import Log
from engine.records.batch import stamp_crc
from engine.records.builder import build_batch
from engine.records.header import HEADER, HEADER_BYTES, BatchHeader, Codec
from engine.types import INT64_MAX, AppendOrigin
from tests.support.builders import World, new_batch, values_of
from tests.support.kafka import kafka
from tests.support.legacy import legacy_message
from tests.support.logs import (
    CONFIG,
    fill,
    read_headers,
    read_records,
    read_values,
    with_config,
)
from tests.support.segments import batch_at
from tests.support.time import START_MS

FOLLOWER = AppendOrigin.REPLICATION


def opened(**settings: object) -> Log:
    return World().open_log(with_config(**settings) if settings else CONFIG)


@kafka("UnifiedLogTest.testAppendInfoFirstOffset")
def test_offsets_are_assigned_from_the_end() -> None:
    """Base and last offset are the log end's, across a roll too."""
    log = opened(segment_bytes=300)
    answers = [log.append(new_batch(3)) for _ in range(4)]
    assert [answer.base_offset for answer in answers] == [0, 3, 6, 9]
    assert [answer.last_offset for answer in answers] == [2, 5, 8, 11]
    assert {answer.records_count for answer in answers} == {3}
    assert log.reader.segments_count > 1
    assert answers[-1].watermarks == log.watermarks
    assert log.watermarks.log_end_offset == 12


@kafka("LocalLogTest.testLogAppend", "UnifiedLogTest.testHighWatermarkMaintenance")
def test_an_append_moves_the_end_and_nothing_else() -> None:
    """The log end follows the append; the high watermark waits for the flush."""
    log = opened()
    log.append(new_batch(2))
    assert (log.watermarks.high_watermark, log.watermarks.log_end_offset) == (0, 2)
    assert (log.durability.recovery_point, log.watermarks.log_end_offset) == (0, 2)


@kafka("UnifiedLogTest.shouldApplyEpochToMessageOnAppendIfLeader")
def test_offset_and_epoch_are_stamped_in_place() -> None:
    """The caller's buffer carries them, and the checksum still holds."""
    log = opened()
    fill(log, batches=2)
    data = new_batch(1)
    log.append(data)
    log.durability.commit()
    assert int.from_bytes(data[:8], "big") == 2
    assert [header.leader_epoch for header in read_headers(log)] == [0, 0, 0]
    assert read_headers(log)[2].crc == int.from_bytes(data[17:21], "big")


def test_a_buffer_that_cannot_be_written_is_copied() -> None:
    """The caller's bytes stay unchanged; the stored copy is stamped."""
    log = opened()
    fill(log, batches=1)
    data = bytes(new_batch())
    log.append(data)
    log.append(memoryview(data))
    log.durability.commit()
    assert int.from_bytes(data[:8], "big") == 0
    assert [header.base_offset for header in read_headers(log)] == [0, 1, 2]


@kafka("UnifiedLogTest.testCompressedMessages")
@pytest.mark.parametrize("codec", list(Codec))
def test_every_codec_is_taken_and_read_back(codec: Codec) -> None:
    """Records come back with keys, values, headers and times."""
    log = opened()
    records = [
        (START_MS, b"k", b"v" * 50, (("h", b"x"), ("n", None))),
        (START_MS + 1, None, None, ()),
        (START_MS - 5, b"", b"", ()),
    ]
    log.append(build_batch(records, codec=codec))
    log.durability.commit()
    found = read_records(log)
    assert [(r.timestamp, r.key, r.value, tuple(r.headers)) for r in found] == records
    assert read_headers(log)[0].codec is codec


@kafka("UnifiedLogTest.testAppendWithNoTimestamp")
def test_records_without_time_are_accepted() -> None:
    """A time of -1 means no timestamp."""
    log = opened()
    assert log.append(new_batch(timestamp=-1)).timestamp == -1
    log.durability.commit()
    assert read_records(log)[0].timestamp == -1


@kafka("UnifiedLogTest.testAppendMessageWithNullPayload")
def test_a_null_value_stays_null() -> None:
    """A null value is not converted."""
    log = opened()
    log.append(build_batch([(START_MS, b"k", None, ())]))
    log.durability.commit()
    assert read_records(log)[0].value is None


@kafka("LogValidatorTest.testDifferentCodecCausesRecompression")
@pytest.mark.parametrize("stored", ["gzip", "zstd", "uncompressed"])
def test_the_topics_codec_is_enforced(stored: str) -> None:
    """Another codec is recompressed, the same stays."""
    log = opened(compression_type=stored)
    codec = Codec.NONE if stored == "uncompressed" else Codec.of_label(stored)
    same = values_of([b"same" * 30], codec=codec)
    payload = bytes(same[HEADER_BYTES:])
    log.append(same)
    log.append(values_of([b"other" * 30] * 3, codec=Codec.LZ4))
    log.durability.commit()
    fetched = log.reader.read(0, max_bytes=1)
    assert fetched is not None
    assert bytes(fetched.data[HEADER_BYTES:]) == payload
    assert {header.codec for header in read_headers(log)} == {codec}
    assert read_values(log) == [b"same" * 30] + [b"other" * 30] * 3


def broken(**changes: int) -> bytearray:
    """A batch whose header is changed after the fact, with a right checksum."""
    batch = new_batch(2)
    header = BatchHeader._make(HEADER.unpack_from(batch))._replace(**changes)
    HEADER.pack_into(batch, 0, *header)
    stamp_crc(batch, 0, len(batch))
    return batch


REFUSED: dict[str, tuple[bytes | bytearray, type[EngineError]]] = {
    "nothing": (b"", InvalidRecord),
    "cut short": (new_batch()[:-1], CorruptBatch),
    "half a header": (new_batch()[:30], CorruptBatch),
    "something behind it": (new_batch() + b"\0", CorruptBatch),
    "wrong checksum": (bytes(new_batch()[:-1]) + b"!", CorruptBatch),
    "magic 1": (bytes(new_batch()[:16]) + b"\1" + bytes(new_batch()[17:]), UnsupportedMagic),
    "base offset": (broken(base_offset=5), InvalidRecord),
    "control batch": (broken(attributes=0x20), InvalidRecord),
    "producer without sequence": (broken(producer_id=7, base_sequence=-1), InvalidRecord),
    "transaction without producer": (broken(attributes=0x10), InvalidRecord),
    "fewer offsets than records": (broken(last_offset_delta=0), InvalidRecord),
    "more records than there are": (broken(records_count=3, last_offset_delta=2), InvalidRecord),
    "no records": (broken(records_count=0, last_offset_delta=-1), InvalidRecord),
}


@kafka(
    "LogValidatorTest.checkInvalidSequence",
    "LogValidatorTest.testControlRecordsNotAllowedFromClients",
    "LogValidatorTest.testRecordBatchWithCountOverrides",
    "LogValidatorTest.testInconsistentCountAndOffset",
    "LogValidatorTest.testUnmatchedNumberOfRecords",
    "LogValidatorTest.testBatchWithoutRecordsNotAllowed",
    "LogValidatorTest.checkInvalidChecksum",
)
@pytest.mark.parametrize(("data", "error"), REFUSED.values(), ids=REFUSED.keys())
def test_what_a_client_may_not_append(data: bytes, error: type[EngineError]) -> None:
    """Refused with its own error, and nothing was written."""
    log = opened()
    fill(log, batches=1)
    before = log.watermarks, log.reader.size_bytes, log.reader.tag
    with pytest.raises(error):
        log.append(data)
    assert (log.watermarks, log.reader.size_bytes, log.reader.tag) == before


@kafka("UnifiedLogTest.testMessageSizeCheck", "UnifiedLogTest.testMessageSetSizeCheck")
def test_batches_over_a_limit_are_refused() -> None:
    """One batch over max.message.bytes, all of them over segment.bytes."""
    batch = new_batch()
    log = opened(max_message_bytes=len(batch), segment_bytes=2 * len(batch))
    log.append(new_batch())
    with pytest.raises(TooLarge) as one:
        log.append(new_batch(value=b"value+"))
    assert one.value.facts() == {
        "limit": "max.message.bytes",
        "limit_bytes": len(batch),
        "actual_bytes": len(batch) + 1,
    }
    with pytest.raises(BatchSetTooLarge) as together:
        log.append(batch * 3)
    assert together.value.facts()["limit"] == "segment.bytes"
    log.append(batch * 2)
    assert log.watermarks.log_end_offset == 3


def test_recompression_may_not_pass_the_limit() -> None:
    """What becomes too large when its topic stores it uncompressed is refused."""
    log = opened(compression_type="uncompressed", max_message_bytes=1_000)
    data = values_of([b"x" * 5_000], codec=Codec.ZSTD)
    assert len(data) < 1_000
    with pytest.raises(TooLarge):
        log.append(data)


@kafka("UnifiedLogTest.testMessageSizeCheckInAppendAsFollower")
def test_a_follower_ignores_the_clients_limit() -> None:
    """Batches that a leader accepted are accepted."""
    log = opened(max_message_bytes=10)
    log.append(batch_at(0), origin=FOLLOWER)
    assert log.watermarks.log_end_offset == 1


@kafka("UnifiedLogTest.testCompactedTopicConstraints", "LogValidatorTest.checkNoKeyCompactedTopic")
def test_a_compacted_log_needs_keys() -> None:
    """Null keys are refused and listed by index."""
    log = opened(cleanup_policy=("compact",))
    for codec in (Codec.NONE, Codec.GZIP):
        records = [(START_MS, b"k", b"v", ()), (START_MS, None, b"v", ())]
        with pytest.raises(InvalidRecord) as refusal:
            log.append(build_batch(records, codec=codec), checked=True)
        assert [error["index"] for error in refusal.value.errors] == [1]
    log.append(new_batch())
    assert log.watermarks.log_end_offset == 1


@kafka(
    "LogValidatorTest.testRecordWithPastTimestampIsRejected",
    "LogValidatorTest.testRecordWithFutureTimestampIsRejected",
)
@pytest.mark.parametrize("checked", [True, False])
def test_times_out_of_bounds_are_refused(*, checked: bool) -> None:
    """Too old and too far ahead, each listed."""
    log = opened(message_timestamp_before_max_ms=1_000, message_timestamp_after_max_ms=500)
    times = [START_MS - 1_000, START_MS + 500, START_MS - 1_001, START_MS + 501, -1]
    records = [(time, b"k", b"v", ()) for time in times]
    with pytest.raises(InvalidTimestamp) as refusal:
        log.append(build_batch(records), checked=checked)
    assert [error["index"] for error in refusal.value.errors] == [2, 3]
    log.append(build_batch(records[:2]), checked=checked)


@pytest.mark.parametrize("end", [0, 5, -1], ids=["nothing", "half a header", "cut short"])
def test_a_followers_append_without_a_whole_batch_is_refused(end: int) -> None:
    """Only bytes after a whole batch are cut off; without one there is no append."""
    log = opened()
    with pytest.raises(InvalidRecord, match="no batch"):
        log.append(new_batch()[:end], origin=FOLLOWER)
    assert log.append(new_batch() + new_batch()[:end], origin=FOLLOWER).last_offset == 0


def test_the_future_is_bounded_for_our_own_batches_too() -> None:
    """A checked batch whose maximum passes the bound is looked at after all."""
    log = opened()
    with pytest.raises(InvalidTimestamp):
        log.append(new_batch(timestamp=START_MS + 3_600_001), checked=True)
    log.append(new_batch(timestamp=START_MS + 3_600_000), checked=True)
    with pytest.raises(TooLarge):
        log.append(new_batch(value=b"x" * (1 << 21)), checked=True)


def test_the_past_is_bounded_for_our_own_batches_too() -> None:
    """A checked batch does not say that a record is too old, so each record is checked."""
    log = opened(message_timestamp_before_max_ms=1_000)
    with pytest.raises(InvalidTimestamp):
        log.append(new_batch(timestamp=START_MS - 1_001), checked=True)
    log.append(new_batch(timestamp=START_MS - 1_000), checked=True)


def test_several_batches_of_our_own_are_judged_as_one_is() -> None:
    """Any of them that is too large, or of a producer that repeats itself, is noticed."""
    log = opened()
    with pytest.raises(TooLarge):
        log.append(new_batch() + new_batch(value=b"x" * (1 << 21)), checked=True)
    produced = new_batch(producer_id=1, producer_epoch=0, base_sequence=0)
    log.append(produced, checked=True)
    log.append(
        new_batch() + new_batch(producer_id=1, producer_epoch=0, base_sequence=1), checked=True
    )
    assert [entry.last_sequence for entry in log.producers.active()] == [1]
    assert list(log.append(produced, checked=True).one_by_one()) == []


@kafka("UnifiedLogTest.testAppendWithOutOfOrderOffsetsThrowsException")
def test_a_followers_offsets_must_ascend() -> None:
    """Offsets 0, 1, 3, 2 are refused."""
    log = opened()
    data = b"".join(batch_at(offset) for offset in (0, 1, 3, 2, 4))
    with pytest.raises(OffsetsOutOfOrder):
        log.append(data, origin=FOLLOWER)
    assert log.watermarks.log_end_offset == 0


@kafka(
    "UnifiedLogTest.testAppendBelowExpectedOffsetThrowsException",
    "UnifiedLogTest.testAppendEmptyLogBelowLogStartOffsetThrowsException",
)
def test_a_followers_offsets_may_not_lie_below_the_end() -> None:
    """The refusal names first and last offset."""
    log = World().open_log(CONFIG, log_start_offset=7)
    data = batch_at(4, b"a", b"b", b"c")
    with pytest.raises(UnexpectedAppendOffset) as refusal:
        log.append(data, origin=FOLLOWER)
    facts = refusal.value.facts()
    assert (facts["first_offset"], facts["last_offset"], facts["log_end_offset"]) == (4, 6, 7)
    log.append(batch_at(7), origin=FOLLOWER)


def test_a_followers_last_batch_may_be_cut_short() -> None:
    """An incomplete batch at the end of a fetch is ignored; without a whole one it is an error."""
    log = opened()
    log.append(batch_at(0) + batch_at(1)[:20], origin=FOLLOWER)
    assert log.watermarks.log_end_offset == 1


def test_an_expected_end_guards_the_append() -> None:
    """Only if the log ends where the caller thinks, by offset or by the whole tag."""
    log = opened()
    tag = log.append(new_batch(), expected_end_offset=0).tag
    with pytest.raises(PreconditionFailed) as by_offset:
        log.append(new_batch(), expected_end_offset=0)
    assert by_offset.value.facts() == {"expected": 0, "log_end_offset": 1, "tag": tag}
    with pytest.raises(PreconditionFailed):
        log.append(new_batch(), expected_tag=tag._replace(last_batch_crc=1))
    assert log.append(new_batch(), expected_tag=tag, expected_end_offset=1).base_offset == 1


def test_a_tag_tells_every_state_of_the_end() -> None:
    """It changes with every append, and survives a restart."""
    world = World()
    log = world.open_log(CONFIG)
    tags = [log.reader.tag, *(log.append(new_batch()).tag for _ in range(3))]
    assert len(set(tags)) == 4
    log.durability.commit()
    log.close()
    world.restart(power_cut=False)
    assert world.open_log(CONFIG, was_clean=True).reader.tag == tags[-1]


def test_the_first_append_begins_an_epoch() -> None:
    """An epoch is recorded, on disk, with the offset of its first record."""
    world = World()
    log = world.open_log(CONFIG)
    fill(log, batches=2)
    content = world.disk.read_bytes(log.directory / "leader-epoch-checkpoint")
    assert content == b"0\n1\n0 0\n"
    assert log.reader.log_id == f"{log.topic_id}.0"


@kafka("LocalLogTest.testUpdateConfig")
def test_a_new_configuration_is_used_from_the_next_append_on() -> None:
    """Limits change while the log is open."""
    log = opened()
    log.append(new_batch())
    changed: LogConfig = dataclasses.replace(CONFIG, max_message_bytes=10)
    log.maintenance.update_config(changed)
    assert log.config is changed
    with pytest.raises(TooLarge):
        log.append(new_batch())


def test_our_own_batches_in_the_codec_of_the_topic_are_not_decompressed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Only a batch in another codec is decoded and stored in that of the topic."""
    log = opened(compression_type="gzip")
    records = [(START_MS, b"k", b"v", ())]
    with monkeypatch.context() as patched:
        patched.setattr("engine.log.analyse.check_records", None)
        log.append(build_batch(records, codec=Codec.GZIP), checked=True)
    log.append(build_batch(records), checked=True)
    log.durability.commit()
    assert [header.codec for header in read_headers(log)] == [Codec.GZIP, Codec.GZIP]


def test_another_format_is_distinguished_from_damage() -> None:
    """The magic decides first, whatever the other fields, for clients and coordinators."""
    log = opened()
    for magic, origin in product((0, 1, 7), (AppendOrigin.CLIENT, AppendOrigin.COORDINATOR)):
        batch = new_batch()
        batch[8:12] = b"\xff" * 4
        batch[16] = magic
        with pytest.raises(UnsupportedMagic):
            log.append(batch, origin=origin)
    with pytest.raises(UnsupportedMagic, match="only 2"):
        log.append(new_batch() + legacy_message(0, magic=1))


def test_the_last_offset_leaves_one_for_the_log_end() -> None:
    """A log that ends beyond 2^63 - 1 could not be opened again."""

    def at(offset: int) -> bytearray:
        batch = bytearray(batch_at(0))
        batch[:8] = offset.to_bytes(8)  # not covered by the checksum
        return batch

    log = opened()
    log.append(at(INT64_MAX - 4), origin=FOLLOWER)
    assert log.append(new_batch(2), checked=True).last_offset == INT64_MAX - 2
    with pytest.raises(InvalidRecord, match="offsets end at 2"):
        log.append(new_batch(2))
    assert log.append(new_batch(), checked=True).last_offset == INT64_MAX - 1
    for checked in (False, True):
        with pytest.raises(InvalidRecord, match="offsets end at 2"):
            log.append(new_batch(), checked=checked)
    with pytest.raises(InvalidRecord, match="offsets end at 2"):
        log.append(at(INT64_MAX), origin=FOLLOWER)
    assert log.watermarks.log_end_offset == INT64_MAX
