"""Logs with messages of magic 0 and 1, with and without batches of magic 2."""

from collections.abc import Iterable
from itertools import product

import pytest

from engine.checkpoint.kafka_files import read_epochs
from engine.config import LogConfig
from engine.errors import InvalidRecord, StoredDataCorrupt, UnexpectedAppendOffset
from engine.fs import names
from engine.log.log import Log
from engine.records.builder import build_batch
from engine.records.header import MAGIC_POSITION, Codec
from engine.segment.recovery import split_overflowed
from engine.tools.verify import DirectoryCheck
from engine.types import INT32_MAX, AppendOrigin, EpochOffset, TimestampAndOffset
from tests.support.builders import DATA, World
from tests.support.kafka import kafka
from tests.support.legacy import CODECS, legacy_message, legacy_wrapper
from tests.support.logs import (
    CONFIG,
    log_path,
    read_records,
    segment_bases,
    with_config,
)
from tests.support.segments import Shelf, append, batch_at, offsets_of
from tests.support.time import START_MS

FOLLOWER = AppendOrigin.REPLICATION

DENSE = with_config(index_interval_bytes=1)
"""An entry for every append but the first of a segment."""

MIXED = (
    legacy_message(0, magic=0),
    legacy_wrapper(1, [b"b", b"c", b"d"], magic=0, codec=Codec.SNAPPY),
    legacy_message(4, timestamp=START_MS + 4),
    legacy_wrapper(5, [b"f", b"g", b"h"], codec=Codec.LZ4, timestamp=START_MS + 5),
    bytes(batch_at(8, b"i", b"j", timestamp=START_MS + 8)),
    legacy_wrapper(10, [b"k", b"l"], codec=Codec.GZIP, timestamp=START_MS + 10),
)
"""Twelve records in all three formats."""

VALUES = [b"value", b"b", b"c", b"d", b"value", b"f", b"g", b"h", b"i", b"j", b"k", b"l"]


def followed(
    batches: Iterable[bytes], config: LogConfig = DENSE, *, world: World | None = None
) -> Log:
    """A log that was given these batches as to a follower, one by one."""
    log = (world or World()).open_log(config)
    for batch in batches:
        log.append(batch, origin=FOLLOWER)
    log.durability.commit()
    return log


def content_of(log: Log) -> list[tuple[int, bytes | None]]:
    return [(record.offset, record.value) for record in read_records(log)]


@pytest.mark.parametrize("segment_bytes", [1 << 20, 200])
@pytest.mark.parametrize("was_clean", [True, False])
def test_all_formats_in_one_log_are_read_in_order(*, was_clean: bool, segment_bytes: int) -> None:
    """Before and after a restart, recovered or not, in one segment or in several."""
    world = World()
    config = with_config(index_interval_bytes=1, segment_bytes=segment_bytes)
    log = followed(MIXED, config, world=world)
    expected = list(enumerate(VALUES))
    assert content_of(log) == expected
    assert log.watermarks.log_end_offset == 12
    log.durability.flush()
    if was_clean:
        log.close()
    world.restart(power_cut=False)
    again = world.open_log(config, was_clean=was_clean)
    assert content_of(again) == expected
    assert segment_bases(again) == segment_bases(log)
    again.maintenance.check_invariants()


def test_one_append_may_hold_all_formats() -> None:
    """A follower's fetch is one buffer; its first offset is the true first offset."""
    log = World().open_log(DENSE)
    appended = log.append(b"".join(MIXED), origin=FOLLOWER)
    assert (appended.base_offset, appended.last_offset, appended.records_count) == (0, 11, 12)
    log.durability.commit()
    assert content_of(log) == list(enumerate(VALUES))


@pytest.mark.parametrize("offset", range(12))
def test_a_read_begins_with_the_batch_that_holds_the_offset(offset: int) -> None:
    """Wrappers are found by their last offset, and answered with their first."""
    log = followed(MIXED)
    firsts = [0, 1, 1, 1, 4, 5, 5, 5, 8, 8, 10, 10]
    fetched = log.reader.read(offset, max_bytes=1)
    assert fetched is not None
    assert fetched.first_offset == firsts[offset]
    assert fetched.next_offset == next((first for first in firsts if first > offset), 12)


def test_reading_in_pieces_skips_nothing() -> None:
    """What does not fit is where the next read begins, a wrapper with its first offset too."""
    log = followed(MIXED)
    for max_bytes in range(1, sum(map(len, MIXED)) + 1, 7):
        found = [record.value for record in read_records(log, max_bytes=max_bytes)]
        assert found == VALUES


@pytest.mark.parametrize("end_offset", range(1, 13))
def test_a_read_with_an_end_returns_the_batch_that_holds_it(end_offset: int) -> None:
    """A wrapper is returned if its first offset is below the end, whatever its last one."""
    log = followed(MIXED)
    fetched = log.reader.read(0, max_bytes=1 << 20, end_offset=end_offset)
    assert fetched is not None
    assert fetched.next_offset == next(end for end in (1, 4, 5, 8, 10, 12) if end >= end_offset)


@kafka("FileRecordsTest.testSearchForTimestamp")
def test_records_are_found_by_time() -> None:
    """Those in wrappers of magic 1 too; magic 0 has no times."""
    log = followed(MIXED)
    for offset in range(4, 12):
        time = START_MS + offset
        epoch = 0 if offset in (8, 9) else None
        if offset == 9:
            continue  # it has the time of offset 8
        assert log.reader.offset_for_time(time) == TimestampAndOffset(time, offset, epoch)
    assert log.reader.offset_for_time(0) == TimestampAndOffset(START_MS + 4, 4, None)
    assert log.reader.offset_for_time(START_MS + 12) is None
    assert log.reader.max_timestamp() == TimestampAndOffset(START_MS + 11, 11, None)


def test_where_no_record_has_a_time_the_newest_is_the_first_of_a_format_with_times() -> None:
    """Magic 0 has no timestamps."""
    assert followed([legacy_message(0, magic=0)]).reader.max_timestamp() is None
    without = followed([legacy_message(0, timestamp=-1)])
    assert without.reader.max_timestamp() == TimestampAndOffset(-1, 0, None)


@kafka("LogLoaderTest.testRebuildTimeIndexForOldMessages")
def test_time_indexes_of_magic_0_are_rebuilt_empty() -> None:
    """Nothing to index, and nothing in the files."""
    world = World()
    config = with_config(index_interval_bytes=1, segment_bytes=200)
    log = followed((legacy_message(at, magic=0) for at in range(30)), config, world=world)
    bases = segment_bases(log)
    assert len(bases) > 3
    log.close()
    for base in bases:
        world.disk.remove(log_path(base, suffix=".timeindex"))
    world.restart(power_cut=False)
    again = world.open_log(config, was_clean=True)
    assert [segment.indexes.time.count for segment in again.reader.segments] == [0] * len(bases)
    sizes = [world.disk.size_bytes(log_path(base, suffix=".timeindex")) for base in bases[:-1]]
    assert sizes == [0] * len(sizes)
    assert len(read_records(again)) == 30


@kafka("UnifiedLogTest.testLeaderEpochCacheClearedAfterDowngradeInAppendedMessages")
def test_an_old_format_clears_the_epochs() -> None:
    """Its records belong to none, in memory and on disk; the log's own does not fall."""
    world = World()
    new = bytes(build_batch([(START_MS, b"k", b"v", ())], leader_epoch=5))
    log = followed([new], world=world)
    path = log.directory / names.LEADER_EPOCH_CHECKPOINT
    assert read_epochs(world.disk, path) == [EpochOffset(5, 0)]
    log.append(legacy_message(1), origin=FOLLOWER)
    assert read_epochs(world.disk, path) == []
    assert log.reader.leader_epoch == 5


@kafka("LogLoaderTest.testOverCompactedLogRecoveryMultiRecordV1")
def test_a_roll_is_named_from_the_last_offset() -> None:
    """The first offset of magic 1 is taken as unknown; after a restart all is there."""
    world = World()
    log = world.open_log(CONFIG)
    firsts = [0, INT32_MAX + 2, INT32_MAX + 4, INT32_MAX + 6]
    bases = []
    for first in firsts:
        both = legacy_message(first) + legacy_message(first + 1)
        log.append(both if first else legacy_message(0), origin=FOLLOWER)
        bases.append(segment_bases(log)[-1])
    assert bases == [0, 3, INT32_MAX + 4, INT32_MAX + 4]
    log.durability.commit()
    expected = [0, *(first + more for first in firsts[1:] for more in (0, 1))]
    assert [offset for offset, _ in content_of(log)] == expected
    log.close()
    world.restart(power_cut=False)
    again = world.open_log(CONFIG, was_clean=True)
    assert [offset for offset, _ in content_of(again)] == expected


@kafka("UnifiedLogTest.testAppendBelowExpectedOffsetThrowsException")
@pytest.mark.parametrize(("magic", "codec"), [*product((0, 1), (Codec.NONE, *CODECS))])
def test_a_follower_appends_nothing_below_the_end(magic: int, codec: Codec) -> None:
    """For all formats and codecs, by the true first offset."""
    log = followed([legacy_message(at, magic=magic) for at in range(3)])
    if codec is Codec.NONE:
        below = legacy_message(2, magic=magic)
    else:
        below = legacy_wrapper(2, [b"old", b"new"], magic=magic, codec=codec)
    with pytest.raises(UnexpectedAppendOffset) as refused:
        log.append(below, origin=FOLLOWER)
    assert refused.value.facts()["first_offset"] == 2
    assert log.watermarks.log_end_offset == 3


def test_a_wrapper_that_cannot_be_read_is_not_appended() -> None:
    """Its checksum is right; no reader must find out that its content is not."""
    log = followed([])
    with pytest.raises(InvalidRecord, match="holds no message"):
        log.append(legacy_wrapper(1, []), origin=FOLLOWER)
    assert log.reader.size_bytes == 0


def test_truncation_takes_a_wrapper_whole() -> None:
    """The log ends at the requested offset, and the batches below stay."""
    log = followed(MIXED)
    log.truncate_to(6)
    assert log.watermarks.log_end_offset == 6
    assert content_of(log) == list(enumerate(VALUES))[:5]


@pytest.mark.parametrize("magic", [0, 1])
def test_a_batch_does_not_pass_for_an_old_message(magic: int) -> None:
    """If the magic byte is damaged, the scan stops; otherwise later offsets would be skipped."""
    shelf = Shelf()
    segment = shelf.segment()
    positions = append(segment, *(batch_at(at, b"1", b"2", b"3") for at in (0, 3, 6)))
    content = bytearray(segment.read(0, segment.size_bytes)[0])
    content[positions[1] + MAGIC_POSITION] = magic
    with shelf.disk.open(segment.records.path) as file:
        file.truncate(0)
        file.append(content)
    with pytest.raises(StoredDataCorrupt, match="checksum") as found:
        segment.locate(5)
    assert found.value.position == positions[1]


def test_a_damaged_wrapper_is_reported_where_it_is() -> None:
    """Its checksum is correct, but its content cannot be decompressed."""
    segment = Shelf().segment()
    broken = legacy_message(2, None, b"no gzip", attributes=Codec.GZIP)
    append(segment, legacy_message(0))
    position = segment.records.file.append(broken)
    with pytest.raises(StoredDataCorrupt, match="gzip") as found:
        segment.locate(1)
    assert found.value.position == position


def test_a_check_of_the_directory_finds_nothing_wrong() -> None:
    """Neither in old formats nor in the offsets that a wrapper spans."""
    world = World()
    log = followed(MIXED, with_config(index_interval_bytes=1, segment_bytes=200), world=world)
    log.durability.flush()
    log.close()
    assert [one for one in DirectoryCheck(world.fs, DATA).findings() if one.is_problem] == []


def test_a_split_names_parts_by_the_first_offset_in_a_wrapper() -> None:
    """The file of a part is named after its first record, not after its first batch's offset."""
    shelf = Shelf()
    segment = shelf.segment()
    append(segment, legacy_message(0))
    far = INT32_MAX + 10
    segment.records.file.append(legacy_wrapper(far, [b"a", b"b"]) + legacy_message(far + 2))
    parts = split_overflowed(segment, lambda base: shelf.segment(base, suffix=".cleaned"))
    assert [part.base_offset for part in parts] == [0, far]
    assert [offsets_of(part) for part in parts] == [[0], [far + 1, far + 2]]
