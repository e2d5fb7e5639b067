"""Every partition that a real broker wrote, read through `Log`: what its consumer got, no more."""

import shutil
from collections.abc import Iterator
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

CLEAN = [directory.name for directory in golden_partitions("clean")]
LOG_STARTS = {"trimmed-0": 2345}
ISOLATIONS = {
    "read_uncommitted": FetchIsolation.HIGH_WATERMARK,
    "read_committed": FetchIsolation.TXN_COMMITTED,
}


def opened(tmp_path: Path, archive: str, partition: str, *, was_clean: bool = True) -> Log:
    shutil.copytree(golden_archive(archive) / partition, tmp_path / partition)
    world = World(fs=PosixFileSystem(), directory=tmp_path)
    return world.open_log(
        golden_config(partition),
        log=parse_partition_directory(partition).topic_partition,
        log_start_offset=LOG_STARTS.get(partition, 0),
        was_clean=was_clean,
    )


def consumed(
    log: Log, *, max_bytes: int, isolation: FetchIsolation = FetchIsolation.HIGH_WATERMARK
) -> Iterator[ExpectedRecord]:
    """Read the log from its start as a consumer does, in the form of `expected.json`."""
    start = log.watermarks.log_start_offset
    for data in read_pieces(log, max_bytes=max_bytes, isolation=isolation):
        for batch in batches_in(data):
            for record in () if batch.header.is_control else batch.records():
                if record.offset >= start:
                    yield ExpectedRecord(
                        record.offset,
                        record.timestamp,
                        batch.header.timestamp_type + 1,
                        record.key,
                        record.value,
                        tuple(record.headers),
                        batch.header.leader_epoch,
                    )


def ensure_small_reads_agree(log: Log, isolation: FetchIsolation) -> None:
    whole = b"".join(read_pieces(log, isolation=isolation))
    for max_bytes in (1, 500, 20_000):
        pieces = list(read_pieces(log, max_bytes=max_bytes, isolation=isolation))
        assert b"".join(pieces) == whole
        for piece in pieces:
            assert len(piece) <= max_bytes or len(list(batches_in(piece))) == 1


@pytest.mark.parametrize("partition", CLEAN)
def test_a_reader_gets_what_a_kafka_consumer_got(partition: str, tmp_path: Path) -> None:
    """Offsets, times, keys, values, headers and epochs agree, however small the pieces are."""
    log = opened(tmp_path, "clean", partition)
    expected = golden_records(golden_archive("clean") / partition)
    assert list(consumed(log, max_bytes=ALL_BYTES)) == expected
    ensure_small_reads_agree(log, FetchIsolation.HIGH_WATERMARK)
    log.maintenance.check_invariants()


@pytest.mark.parametrize("partition", CLEAN)
def test_a_committed_reader_gets_what_a_kafka_consumer_got(partition: str, tmp_path: Path) -> None:
    """With `read_committed` aborted records, markers and the undecided are left out."""
    log = opened(tmp_path, "clean", partition)
    expected = golden_records(golden_archive("clean") / partition, "read_committed")
    isolation = FetchIsolation.TXN_COMMITTED
    assert list(consumed(log, max_bytes=ALL_BYTES, isolation=isolation)) == expected
    ensure_small_reads_agree(log, isolation)


@pytest.mark.parametrize("partition", CLEAN)
def test_offsets_and_times_are_the_brokers(partition: str, tmp_path: Path) -> None:
    """Log start, high watermark, last stable offset, maximum time and look-ups by time agree."""
    log = opened(tmp_path, "clean", partition)
    expected = golden_expected(golden_archive("clean") / partition)
    marks = log.watermarks
    assert marks.log_start_offset == expected["log_start_offset"]
    assert marks.high_watermark == expected["high_watermark"] == marks.log_end_offset
    assert marks.last_stable_offset == expected["last_stable_offset"]
    latest = log.reader.max_timestamp()
    assert latest is not None
    assert latest._asdict().items() >= expected["max_timestamp"].items()
    found = {time: log.reader.offset_for_time(int(time)) for time in expected["offsets_for_times"]}
    offsets = {time: -1 if answer is None else answer.offset for time, answer in found.items()}
    assert offsets == expected["offsets_for_times"]


@pytest.mark.parametrize("partition", CLEAN)
def test_reading_may_begin_at_any_offset(partition: str, tmp_path: Path) -> None:
    """From a sample of offsets, inside batches too, the record asked for is there."""
    log = opened(tmp_path, "clean", partition)
    expected = golden_records(golden_archive("clean") / partition)
    for index in range(0, len(expected), max(1, len(expected) // 40)):
        wanted = expected[index]
        data = next(read_pieces(log, wanted.offset, max_bytes=1))
        records = [record for batch in batches_in(data) for record in batch.records()]
        assert next(r.value for r in records if r.offset == wanted.offset) == wanted.value


@pytest.mark.parametrize("partition", ["codec-lz4-0", "segments-0", "txn-0", "epochs-0"])
def test_a_killed_brokers_log_is_read_whole(partition: str, tmp_path: Path) -> None:
    """After `kill -9` of the broker every record it had then is read, and nothing was cut."""
    log = opened(tmp_path, "killed", partition, was_clean=False)
    expected = golden_records(golden_archive("clean") / partition)
    if partition == "epochs-0":
        expected = expected[:20]
    assert list(consumed(log, max_bytes=20_000)) == expected
    assert log.durability.recovery.truncated_bytes == 0
    assert log.durability.recovery.damage is None
    assert log.durability.recovery.recovered_segments >= 1
