"""The files of a segment as downloads get them: whole, committed, and of one moment."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.errors import LogReplaced, SegmentNotFound, StorageOffline, StoredDataCorrupt
from engine.index.offset import ENTRY as OFFSET_ENTRY
from engine.index.time import ENTRY as TIME_ENTRY
from engine.index.transaction import ENTRY as ABORTED_ENTRY
from engine.log.log import Log
from engine.log.read.segment_files import FileKind
from engine.records.control import ControlType, build_end_marker
from engine.types import AppendOrigin
from tests.support.builders import World, values_of
from tests.support.compaction import Compacted
from tests.support.damage import one_bit_flipped, rewrite
from tests.support.logs import (
    ALL_BYTES,
    CONFIG,
    append_values,
    fill,
    fill_segments,
    log_path,
    with_config,
)
from tests.support.time import START_MS

INDEXES = (FileKind.OFFSET_INDEX, FileKind.TIME_INDEX)


def content(
    log: Log, base_offset: int = 0, kind: FileKind = FileKind.LOG, *, step: int = 500
) -> bytes:
    """A file as it is shown, read from its first byte to its last."""
    file = log.reader.open_file(base_offset, kind)
    data = b""
    while len(data) < file.size_bytes:
        data += log.reader.read_file(file, len(data), step)
    return data


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def log(world: World) -> Log:
    log = world.open_log(CONFIG)
    fill_segments(log, 40, 20)
    log.durability.commit()
    return log


def test_a_sealed_segment_is_shown_byte_for_byte(log: Log, world: World) -> None:
    """Log and indexes are the bytes on disk."""
    for kind in (FileKind.LOG, *INDEXES):
        stored = world.disk.read_bytes(log_path(suffix=f".{kind.value}"))
        assert content(log, kind=kind) == stored
        assert stored


def test_the_active_segment_is_shown_as_far_as_it_is_committed(log: Log, world: World) -> None:
    """Unsynced records are not in the download, and no index entry points at or after them."""
    shown = {kind: content(log, 40, kind) for kind in (FileKind.LOG, *INDEXES)}
    fill(log, batches=30, first=60)
    assert {kind: content(log, 40, kind) for kind in shown} == shown
    log_bytes = shown[FileKind.LOG]
    assert world.disk.read_bytes(log_path(40)).startswith(log_bytes)
    positions = [entry[1] for entry in OFFSET_ENTRY.iter_unpack(shown[FileKind.OFFSET_INDEX])]
    assert positions
    assert max(positions) < len(log_bytes)
    offsets = [40 + entry[1] for entry in TIME_ENTRY.iter_unpack(shown[FileKind.TIME_INDEX])]
    assert all(offset < 60 for offset in offsets)
    log.durability.commit()
    assert len(content(log, 40)) == world.disk.size_bytes(log_path(40))
    assert len(content(log, 40, FileKind.OFFSET_INDEX)) > len(shown[FileKind.OFFSET_INDEX])


def test_a_segment_above_the_high_watermark_is_shown_empty(log: Log) -> None:
    """It is listed before its content is on disk."""
    log.roll()
    fill(log, batches=2, first=60)
    assert log.reader.open_file(60, FileKind.LOG).size_bytes == 0
    assert log.reader.open_file(60, FileKind.OFFSET_INDEX).size_bytes == 0


@given(st.integers(0, 4000), st.integers(1, 2000))
def test_any_part_of_a_log_file_is_that_part(position: int, max_bytes: int) -> None:
    """From any byte on come the bytes of the file, up to the end of a batch."""
    world = World()
    log = world.open_log(CONFIG)
    fill(log, batches=30, records=2)
    log.durability.commit()
    stored = world.disk.read_bytes(log_path())
    file = log.reader.open_file(0, FileKind.LOG)
    position %= file.size_bytes
    data = bytes(log.reader.read_file(file, position, max_bytes))
    batch_bytes = len(stored) // 30
    assert 0 < len(data) <= max(max_bytes, batch_bytes)
    assert stored[position : position + len(data)] == data
    assert (position + len(data)) % batch_bytes == 0


@pytest.mark.parametrize("base_offset", [1, 39, 41, 99])
def test_only_the_base_offset_names_a_segment(log: Log, base_offset: int) -> None:
    """An offset inside a segment, or after all of them, is not found."""
    with pytest.raises(SegmentNotFound):
        log.reader.open_file(base_offset, FileKind.LOG)


def test_a_segment_given_up_is_not_shown(log: Log) -> None:
    """Below the log start is nothing, though the file waits for its removal; around it is all."""
    log.delete_records(39)
    assert content(log, 0)
    log.delete_records(40)
    with pytest.raises(SegmentNotFound):
        log.reader.open_file(0, FileKind.LOG)
    assert content(log, 40)


def test_aborted_transactions_are_shown_when_their_marker_is(world: World) -> None:
    """The index of transactions is missing where none was aborted, and ends at the mark."""
    log = world.open_log(CONFIG)
    fill(log, batches=2)
    log.durability.commit()
    with pytest.raises(SegmentNotFound, match="none was aborted"):
        log.reader.open_file(0, FileKind.TRANSACTION_INDEX)
    for producer_id in (7, 8):
        options = {"producer_id": producer_id, "producer_epoch": 0, "base_sequence": 0}
        log.append(values_of([b"v"], is_transactional=True, **options))
        marker = build_end_marker(
            ControlType.ABORT,
            producer_id=producer_id,
            producer_epoch=0,
            coordinator_epoch=0,
            timestamp=START_MS,
        )
        log.append(marker, origin=AppendOrigin.COORDINATOR)
        if producer_id == 7:
            log.durability.commit()
    shown = list(ABORTED_ENTRY.iter_unpack(content(log, kind=FileKind.TRANSACTION_INDEX)))
    assert [entry[1] for entry in shown] == [7]


def test_a_removed_segment_is_read_to_its_end(world: World) -> None:
    """Retention removes the names of the files; readers with an open file continue."""
    log = world.open_log(with_config(retention_bytes=0))
    fill_segments(log, 20, 3)
    log.durability.commit()
    stored = world.disk.read_bytes(log_path())
    file = log.reader.open_file(0, FileKind.LOG)
    first = bytes(log.reader.read_file(file, 0, 300))
    log.maintenance.run_retention()
    world.scheduler.advance(CONFIG.file_delete_delay_ms)
    rest = bytes(log.reader.read_file(file, len(first), ALL_BYTES))
    assert first + rest == stored
    with pytest.raises(SegmentNotFound):
        log.reader.open_file(0, FileKind.LOG)


def test_a_segment_that_rests_when_it_is_removed_is_not_found(world: World) -> None:
    """Its file was not open, and the log itself is open: the error used to be that it is closed."""
    log = world.open_log(with_config(retention_bytes=0))
    fill_segments(log, 20, 3)
    log.durability.flush()
    file = log.reader.open_file(0, FileKind.LOG)
    file.segment.records.rest()
    log.maintenance.run_retention()
    world.scheduler.advance(CONFIG.file_delete_delay_ms)
    with pytest.raises(SegmentNotFound, match="removed"):
        log.reader.read_file(file, 0, 100)
    with pytest.raises(SegmentNotFound, match="removed"):
        log.reader.check_file(file, 0, 100)
    assert not world.health.is_offline


def test_a_compacted_segment_is_read_to_its_end_and_has_another_version() -> None:
    """Bytes of the old and the new file are never mixed, and nothing takes one for the other."""
    compacted = Compacted()
    for _ in range(3):
        compacted.put(*((f"k{number}", "v" * 50) for number in range(8)))
    compacted.seal()
    log = compacted.log
    stored = content(log)
    old = log.reader.open_file(0, FileKind.LOG)
    first = bytes(log.reader.read_file(old, 0, 1))
    compacted.cleaner.clean_now(log)
    assert first + bytes(log.reader.read_file(old, len(first), ALL_BYTES)) == stored
    new = log.reader.open_file(0, FileKind.LOG)
    assert new.version != old.version
    assert 0 < new.size_bytes < old.size_bytes
    compacted.close()


def test_a_cut_log_is_not_read_on(log: Log) -> None:
    """Bytes written after the cut belong to another log.

    The reader of the old one gets an error.
    """
    file = log.reader.open_file(40, FileKind.LOG)
    first = log.reader.read_file(file, 0, 100)
    log.truncate_to(50)
    fill(log, batches=30, first=900)
    log.durability.commit()
    with pytest.raises(LogReplaced):
        log.reader.read_file(file, len(first), 100)
    assert content(log, 40)


def test_a_cut_under_a_read_is_no_damage(log: Log) -> None:
    """A file that is shorter because of a truncation is not reported as damaged."""
    file = log.reader.open_file(40, FileKind.LOG)
    log.truncate_to(40)
    with pytest.raises(LogReplaced):
        log.reader.read_file(file, file.size_bytes - 10, 100)


def test_a_closed_log_says_so(log: Log) -> None:
    """A download that a stop overtakes ends with a reason."""
    file = log.reader.open_file(0, FileKind.LOG)
    log.close()
    with pytest.raises(StorageOffline):
        log.reader.read_file(file, 0, 100)


def test_damage_is_not_shown(world: World) -> None:
    """Batches found on disk are verified before any byte of them goes out, wherever one begins."""
    log = world.open_log(CONFIG)
    append_values(log, *[b"x" * 100] * 3)
    append_values(log, *[b"y" * 100] * 3)
    append_values(log, *[b"z" * 100] * 3)
    log.durability.commit()
    log.close()
    world.restart(power_cut=False)
    stored = world.disk.read_bytes(log_path())
    rewrite(world.disk, log_path(), one_bit_flipped(stored))
    again = world.open_log(CONFIG, was_clean=True)
    batch_bytes = len(stored) // 3
    file = again.reader.open_file(0, FileKind.LOG)
    assert bytes(again.reader.read_file(file, 5, 1)) == stored[5:batch_bytes]
    for position in (batch_bytes, 2 * batch_bytes - 1):
        with pytest.raises(StoredDataCorrupt):
            again.reader.read_file(file, position, 1)
    assert (
        bytes(again.reader.read_file(file, 2 * batch_bytes + 7, 1)) == stored[2 * batch_bytes + 7 :]
    )


def test_a_wrong_index_entry_is_rebuilt(world: World) -> None:
    """A download finds its batches although the index on disk is wrong, as any read does."""
    log = world.open_log(CONFIG)
    fill(log, batches=60)
    log.durability.commit()
    log.close()
    world.restart(power_cut=False)
    index = log_path(suffix=".index")
    stored = world.disk.read_bytes(log_path())
    entries = list(OFFSET_ENTRY.iter_unpack(world.disk.read_bytes(index)))
    rewrite(world.disk, index, b"".join(OFFSET_ENTRY.pack(one, two + 1) for one, two in entries))
    again = world.open_log(CONFIG, was_clean=True)
    file = again.reader.open_file(0, FileKind.LOG)
    position = len(stored) - 5
    assert bytes(again.reader.read_file(file, position, 10)) == stored[position:]


def test_the_version_changes_with_what_is_shown(log: Log) -> None:
    """Equal versions mean equal bytes; looking again does not change one."""
    kinds = (FileKind.LOG, *INDEXES)
    before = [log.reader.open_file(40, kind).version for kind in kinds]
    assert [log.reader.open_file(40, kind).version for kind in kinds] == before
    fill(log, batches=30, first=60)
    log.durability.commit()
    after = [log.reader.open_file(40, kind).version for kind in kinds]
    assert before[0] != after[0]
    assert before[1] != after[1]
    assert log.reader.open_file(0, FileKind.LOG).version != after[0]
