"""The partitions that a broker's cleaner left, read through `Log`: what its consumer got."""

import shutil
from pathlib import Path

import pytest

from engine.fs.names import parse_partition_directory
from engine.fs.posix import PosixFileSystem
from engine.log.log import Log
from engine.types import FetchIsolation
from tests.support.builders import World
from tests.support.golden import (
    ExpectedRecord,
    golden_archive,
    golden_config,
    golden_expected,
    golden_partitions,
    golden_records,
)
from tests.support.logs import ALL_BYTES, batches_in, read_pieces

COMPACTED = [directory.name for directory in golden_partitions("compacted")]
ISOLATIONS = {
    "read_uncommitted": FetchIsolation.HIGH_WATERMARK,
    "read_committed": FetchIsolation.TXN_COMMITTED,
}


def opened(tmp_path: Path, partition: str, *, was_clean: bool = True) -> Log:
    shutil.copytree(golden_archive("compacted") / partition, tmp_path / partition)
    world = World(fs=PosixFileSystem(), directory=tmp_path)
    return world.open_log(
        golden_config(partition),
        log=parse_partition_directory(partition).topic_partition,
        was_clean=was_clean,
    )


def consumed(log: Log, isolation: FetchIsolation, max_bytes: int) -> list[ExpectedRecord]:
    """Read the log from its start as a consumer does, in the form of `expected.json`."""
    return [
        ExpectedRecord(
            record.offset,
            record.timestamp,
            batch.header.timestamp_type + 1,
            record.key,
            record.value,
            tuple(record.headers),
            batch.header.leader_epoch,
        )
        for data in read_pieces(log, max_bytes=max_bytes, isolation=isolation)
        for batch in batches_in(data)
        if not batch.header.is_control
        for record in batch.records()
    ]


@pytest.mark.parametrize("isolation", ISOLATIONS)
@pytest.mark.parametrize("partition", COMPACTED)
def test_a_reader_gets_what_a_kafka_consumer_got(
    partition: str, isolation: str, tmp_path: Path
) -> None:
    """Gaps, delete horizons and empty batches included, however small the pieces are."""
    log = opened(tmp_path, partition)
    expected = golden_records(golden_archive("compacted") / partition, isolation)
    for max_bytes in (500, ALL_BYTES):
        assert consumed(log, ISOLATIONS[isolation], max_bytes) == expected


@pytest.mark.parametrize("partition", COMPACTED)
def test_offsets_and_times_are_the_brokers(partition: str, tmp_path: Path) -> None:
    """Log start, high watermark, last stable offset, maximum time and look-ups by time agree.

    Where the broker finds nothing, because compaction emptied the batch that has the time, the next
    segment is searched: a read from that time on must pass over no record.
    """
    log = opened(tmp_path, partition)
    expected = golden_expected(golden_archive("compacted") / partition)
    marks = log.watermarks
    assert marks.log_start_offset == expected["log_start_offset"]
    assert marks.high_watermark == expected["high_watermark"]
    assert marks.last_stable_offset == expected["last_stable_offset"]
    latest = log.reader.max_timestamp()
    assert latest is not None
    assert latest._asdict().items() >= expected["max_timestamp"].items()
    found = {time: log.reader.offset_for_time(int(time)) for time in expected["offsets_for_times"]}
    offsets = {time: -1 if answer is None else answer.offset for time, answer in found.items()}
    records = golden_records(golden_archive("compacted") / partition)
    for time, offset in expected["offsets_for_times"].items():
        if offset >= 0:
            assert offsets[time] == offset
        else:
            later = [one.offset for one in records if one.timestamp >= int(time)]
            assert offsets[time] <= min(later, default=marks.high_watermark)


@pytest.mark.parametrize("partition", COMPACTED)
def test_a_compacted_log_survives_recovery(partition: str, tmp_path: Path) -> None:
    """A scan of every batch finds nothing to cut, and the reader still gets the same."""
    log = opened(tmp_path, partition, was_clean=False)
    expected = golden_records(golden_archive("compacted") / partition)
    assert log.durability.recovery.truncated_bytes == 0
    assert log.durability.recovery.removed_segments == 0
    assert consumed(log, FetchIsolation.HIGH_WATERMARK, ALL_BYTES) == expected
