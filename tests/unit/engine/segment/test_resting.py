"""Segments whose indexes rest: what wakes them, and what may happen to their files meanwhile."""

import errno
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from engine.errors import OffsetBelowLogStart, Overloaded, StorageFull, StoredDataCorrupt
from engine.fs.port import File
from engine.fs.posix import PosixFileSystem
from engine.index.offset import ENTRY
from engine.log.log import Log
from engine.records.control import ControlType, build_end_marker
from engine.segment.file_records import FileRecords, NotCached
from engine.segment.index_checks import floor_by_time
from engine.segment.indexes import SealedFiles
from engine.segment.segment import Segment
from engine.types import AbortedTransaction, AppendOrigin, FetchIsolation, TimestampOffset
from tests.support.builders import SMALL_CONFIG, World, new_batch
from tests.support.damage import rewrite
from tests.support.filesystem import ForgetfulDisk
from tests.support.logs import CONFIG, DIRECTORY, append_values, fill_segments, read_values
from tests.support.machine import Operation
from tests.support.segments import Shelf, append, batch_at, filled
from tests.support.time import START_MS

LIMIT_SECONDS = 0.1
TRANSACTIONAL: dict[str, Any] = {
    "producer_epoch": 0,
    "base_sequence": 0,
    "is_transactional": True,
}


def at_rest(shelf: Shelf) -> Segment:
    segment = shelf.segment()
    filled(segment, range(10))
    segment.flush()
    segment.indexes.rest()
    return segment


def test_a_small_append_wakes_no_index() -> None:
    """Only an entry needs the files: an idle partition that gets a record now and then has none."""
    shelf = Shelf()
    segment = at_rest(shelf)
    append(segment, batch_at(10))
    assert segment.is_at_hand
    assert not segment.indexes.are_open
    append(segment, *(batch_at(offset) for offset in range(11, 14)))
    assert segment.indexes.are_open


def test_an_entry_that_is_due_is_not_at_hand_while_the_indexes_rest() -> None:
    """The event loop opens no file: it leaves such an append to a worker."""
    segment = at_rest(Shelf())
    while segment.is_at_hand:
        last = segment.read_next_offset()
        append(segment, batch_at(last))
    assert not segment.indexes.are_open
    append(segment, batch_at(segment.read_next_offset()))
    assert segment.is_at_hand


def test_the_largest_time_is_noted_by_a_segment_whose_indexes_rested() -> None:
    """Small appends woke no index; a clean stop still writes the last time, and no more."""
    shelf = Shelf()
    segment = at_rest(shelf)
    segment.make_active()
    append(segment, batch_at(10))
    segment.close()
    again = shelf.segment(is_new=False)
    assert again.indexes.time.last_entry == TimestampOffset(START_MS + 10, 10)
    shelf.disk.fail("resize")
    again.load_maximum()
    again.indexes.rest()
    assert again.largest_timestamp == START_MS + 10
    again.close()
    assert shelf.disk.forget_faults()


def test_readers_go_on_when_the_names_are_gone() -> None:
    """A segment is renamed and removed under them: what rested was opened before."""
    shelf = Shelf()
    segment = at_rest(shelf)
    segment.indexes.outlive_names()
    segment.change_suffix(".deleted")
    segment.remove_files()
    assert shelf.names == []
    found = segment.locate(7)
    assert found is not None
    assert found.base_offset == 7
    assert floor_by_time(segment, 0).offset == 0


def test_a_segment_is_removed_though_its_index_cannot_be_opened() -> None:
    """Retention frees descriptors when too many are open; it must not fail for lack of one."""
    shelf = Shelf()
    segment = at_rest(shelf)
    shelf.disk.fail("open_index", error=errno.EMFILE)
    segment.indexes.outlive_names()
    assert not shelf.disk.forget_faults()
    segment.change_suffix(".deleted")
    segment.remove_files()
    assert shelf.names == []


def test_what_was_never_used_has_nothing_to_open() -> None:
    """An unused segment has no index to close, or to keep open."""
    shelf = Shelf()
    filled(shelf.segment(), range(3))
    again = shelf.segment(is_new=False)
    again.indexes.rest()
    shelf.disk.fail("open_index")
    again.indexes.outlive_names()
    again.change_suffix(".swap")
    assert shelf.disk.forget_faults()


def rename_segment(log: Log) -> None:
    log.reader.segments[0].change_suffix(".swap")


def rename_directory(log: Log) -> None:
    log.maintenance.rename_directory(DIRECTORY.with_name("events-0.0123-delete"))


@pytest.mark.parametrize(("rename", "amid"), [(rename_segment, 2), (rename_directory, 1)])
def test_an_index_is_opened_under_one_of_two_names(
    rename: Callable[[Log], None], amid: int
) -> None:
    """A reader that opens one during a rename waits for its new name.

    Otherwise it opens the old one, and a missing file takes the directory offline.
    """
    world = World()
    log = world.open_log()
    values = fill_segments(log, 5, 5)
    log.durability.flush()
    segment = log.reader.segments[0]
    segment.indexes.rest()
    found: list[bytes | None] = []
    reader = threading.Thread(target=lambda: found.extend(read_values(log, 3)))
    opening, renamed = threading.Event(), threading.Event()
    renames: list[Path] = []

    def meanwhile(operation: Operation) -> None:
        if operation.name == "open_index" and threading.current_thread() is reader:
            opening.set()
            renamed.wait()
        if operation.name == "rename":
            renames.append(operation.path)
            if len(renames) == amid:
                reader.start()
                opening.wait(LIMIT_SECONDS)  # not before it is renamed: the lock is held

    world.disk.meanwhile = meanwhile
    rename(log)
    renamed.set()
    reader.join()
    assert found == values[3:]
    assert not world.health.is_offline


def test_a_flush_lets_the_sealed_segments_rest() -> None:
    """Their entries are on disk; the active one keeps its files open."""
    world = World()
    log = world.open_log()
    fill_segments(log, 5, 5, 5)
    assert all(segment.indexes.are_open for segment in log.reader.segments)
    log.durability.flush()
    assert [segment.indexes.are_open for segment in log.reader.segments] == [False, False, True]
    assert [segment.indexes.offset.is_resting for segment in log.reader.segments] == [
        True,
        True,
        False,
    ]
    append_values(log, b"last")
    log.durability.commit()
    assert len(read_values(log)) == 16
    assert not any(segment.indexes.offset.is_resting for segment in log.reader.segments)


def test_a_look_on_the_event_loop_opens_no_file_that_a_flush_has_just_closed() -> None:
    """Between "it is open" and the look a flush may let the index rest: that waits for the next."""
    world = World()
    log = world.open_log()
    fill_segments(log, 5, 5)
    segment = log.reader.segments[0]
    assert segment.indexes.offset_stays_open()
    log.durability.flush()
    world.disk.fail("open_index")
    segment.records.file.size_bytes  # noqa: B018 - the log file rests, and is opened again
    found = segment.locate(3, cached_only=True)
    assert found is not None
    assert found.base_offset == 3
    assert world.disk.forget_faults()
    segment.indexes.rest()  # the reader has asked again
    segment.indexes.rest()
    with pytest.raises(NotCached):
        segment.locate(3, cached_only=True)


def resting(count: int = 3) -> tuple[World, Log, list[bytes]]:
    """A flushed log whose sealed segments have one record each, and no file open."""
    world = World()
    log = world.open_log()
    values = fill_segments(log, *[1] * count)
    log.durability.flush()
    assert [segment.records.is_resting for segment in log.reader.segments] == [True] * (
        count - 1
    ) + [False]
    return world, log, values


def test_nothing_is_opened_for_a_read_that_must_not_wait() -> None:
    """The event loop passes such a read to a worker."""
    _, log, _ = resting()
    assert log.reader.read(0, max_bytes=1, cached_only=True) is None
    assert log.reader.segments[0].records.is_resting


def test_a_segment_that_rests_is_read_under_its_new_name() -> None:
    """The directory was renamed, or the segment waits for its removal."""
    world, log, values = resting()
    oldest = log.reader.segments[0]
    log.maintenance.rename_directory(world.directory / "events-0.renamed")
    assert read_values(log) == values
    oldest.resting.rest()
    log.delete_records(1)
    log.maintenance.run_retention()
    assert oldest.records.is_resting
    assert oldest.read(0, oldest.size_bytes)
    oldest.records.rest()
    world.scheduler.advance(log.config.file_delete_delay_ms)
    with pytest.raises(ValueError, match="is closed"):
        oldest.read(0, oldest.size_bytes)


def test_a_reader_of_a_segment_that_was_removed_is_told_where_the_log_starts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It took the earlier segments; their files are gone when it opens them."""
    world, log, _ = resting()
    wake = FileRecords._wake  # noqa: SLF001 - the instant before the file is opened

    def removed_meanwhile(records: FileRecords) -> File:
        monkeypatch.undo()
        log.delete_records(1)
        log.maintenance.run_retention()
        world.scheduler.advance(log.config.file_delete_delay_ms)
        return wake(records)

    monkeypatch.setattr(FileRecords, "_wake", removed_meanwhile)
    with pytest.raises(OffsetBelowLogStart):
        log.reader.read(0, max_bytes=1)
    assert not world.health.is_offline


@pytest.mark.parametrize("damage", ["shorter", "gone"])
def test_a_file_that_changed_while_it_rested_is_damage(damage: str) -> None:
    """Only another program can change it: the disk is not blamed, and others are read."""
    world, log, _ = resting()
    path = log.reader.segments[0].records.path
    if damage == "gone":
        world.disk.remove(path)
    else:
        with world.disk.open(path) as file:
            file.truncate(5)
    with pytest.raises(StoredDataCorrupt, match="; it had" if damage == "shorter" else "gone"):
        log.reader.read(0, max_bytes=1)
    assert log.reader.read(1, max_bytes=1) is not None
    assert not world.health.is_offline


def test_a_truncation_wakes_the_segment_that_becomes_active() -> None:
    """Appends find it open, and it rests no more, however many others are read."""
    world, log, values = resting(5)
    log.truncate_to(3)
    active = log.reader.segments[-1]
    for _ in range(3):
        append_values(log, b"more")
        log.durability.commit()
        active.resting.rest()
        assert read_values(log)[:3] == values[:3]
        assert not active.records.is_resting
    world.restart(power_cut=True)
    assert read_values(world.open_log(recovery_point=2)) == [*values[:3], *[b"more"] * 3]


class OpenedBeside(ForgetfulDisk):
    """Takes a step, once, when a file is next opened or mapped."""

    steps: list[Callable[[], None]]

    def enter(self, name: str, path: Path) -> None:
        if name in {"open", "open_index"} and self.steps:
            self.steps.pop()()
        super().enter(name, path)


def test_files_that_are_just_opened_are_not_waited_for_to_rest() -> None:
    """Closing another segment's files waited for the disk too, perhaps under the log's lock."""
    disk = OpenedBeside()
    disk.steps = []
    segment = at_rest(Shelf(disk=disk))
    disk.steps.append(segment.indexes.rest)
    assert segment.locate(5) is not None
    segment.records.rest()
    disk.steps.append(segment.records.rest)
    assert segment.read_next_offset() == 10
    segment.indexes.transaction.append(AbortedTransaction(7, 0, 9, 10))
    segment.indexes.rest()
    disk.steps.append(segment.indexes.rest)
    assert len(list(segment.indexes.transaction.entries())) == 1
    assert disk.steps == []


def test_a_file_may_be_read_longer_than_its_segment_is_known() -> None:
    """A download only holds the file: opening it again notifies no segment."""
    shelf = Shelf()
    segment = at_rest(shelf)
    files = SealedFiles(limit=1)
    segment.resting.allow(files)
    records = segment.records
    del segment
    assert records.is_resting
    assert next(records.headers(0, records.size_bytes))[1].base_offset == 0
    assert not records.is_resting


def astray(log: Log, world: World) -> None:
    """Make the first offset index point into batches, except for its last entry.

    A start only checks that one.
    """
    path = log.reader.segments[0].indexes.offset_path
    log.close()
    world.restart(power_cut=False)
    *wrong, last = ENTRY.iter_unpack(world.disk.read_bytes(path))
    entries = [*((offset, position + 1) for offset, position in wrong), last]
    rewrite(world.disk, path, b"".join(ENTRY.pack(*entry) for entry in entries))


def reopened(world: World, count: int) -> Log:
    return world.open_log(CONFIG, recovery_point=count, was_clean=True)


def flushed() -> tuple[World, list[bytes]]:
    """A log of two sealed segments that was closed, and whose first index leads astray."""
    world = World()
    log = world.open_log(CONFIG)
    values = fill_segments(log, 30, 30, 1)
    log.durability.flush()
    astray(log, world)
    return world, values


def test_a_segment_whose_index_was_rebuilt_rests_again() -> None:
    """It is below the recovery point: no flush would sync its index, or close its files."""
    world, values = flushed()
    log = reopened(world, len(values))
    assert read_values(log, 20) == values[20:]
    segment = log.reader.segments[0]
    assert segment.proofs.is_index_trusted
    segment.resting.rest()
    assert segment.records.is_resting
    assert not segment.indexes.are_open
    world.restart(power_cut=True)
    again = reopened(world, len(values))
    again.reader.segments[0].proofs.trust_index()
    assert read_values(again, 20) == values[20:]


@pytest.mark.parametrize("nth", range(1, 4))
@pytest.mark.parametrize(
    ("operation", "error"),
    [("open", errno.EMFILE), ("open_index", errno.ENOMEM), ("resize", errno.ENOMEM)],
)
def test_an_index_that_cannot_be_rebuilt_now_is_rebuilt_later(
    operation: str, error: int, nth: int
) -> None:
    """Too few files or too little memory fail one look-up; they took the directory offline."""
    world, values = flushed()
    log = reopened(world, len(values))
    log.reader.segments[0].records.rest()
    world.disk.fail(operation, error=error, nth=nth)
    with suppress(Overloaded, StorageFull):
        assert read_values(log, 20) == values[20:]
    world.disk.forget_faults()
    assert not world.health.is_offline
    assert read_values(log, 20) == values[20:]


def abort_of(producer_id: int) -> bytearray:
    """The marker that aborts a producer's transaction."""
    return build_end_marker(
        ControlType.ABORT,
        producer_id=producer_id,
        producer_epoch=0,
        coordinator_epoch=0,
        timestamp=START_MS,
    )


def open_transaction_indexes(directory: Path) -> list[str]:
    """The files of aborted transactions that this process has open."""
    links = [str(link.resolve()) for link in Path("/proc/self/fd").iterdir()]
    return [link for link in links if link.startswith(f"{directory}/") and "txnindex" in link]


def with_aborts(world: World, count: int) -> Log:
    """A log that was started again; each of its segments has an aborted transaction."""
    log = world.open_log()
    for producer_id in range(count):
        if producer_id:
            log.roll()
        log.append(new_batch(producer_id=producer_id, **TRANSACTIONAL))
        log.append(abort_of(producer_id), origin=AppendOrigin.COORDINATOR)
    log.durability.flush()
    log.close()
    assert len(list(world.directory.rglob("*.txnindex"))) == count
    return world.open_log(recovery_point=2 * count, was_clean=True)


def test_a_start_opens_no_transaction_index_of_a_sealed_segment(tmp_path: Path) -> None:
    """Thousands of segments with an aborted transaction each took as many descriptors."""
    log = with_aborts(World(fs=PosixFileSystem(), directory=tmp_path / "data"), 5)
    assert len(open_transaction_indexes(tmp_path)) <= 1
    read = log.reader.read(0, max_bytes=1 << 20, isolation=FetchIsolation.TXN_COMMITTED)
    assert read is not None
    assert (bytes(read.data), read.next_offset) == (b"", 10)
    log.close()


def test_transaction_indexes_rest_with_their_segments(tmp_path: Path) -> None:
    """They count among the sealed segments that are open, whichever of their files was opened."""
    config = replace(SMALL_CONFIG, max_open_sealed_segments=2)
    log = with_aborts(World(PosixFileSystem(), tmp_path / "data", config=config), 6)
    for offset in (*range(0, 12, 2), *range(10, -1, -2)):
        log.reader.read(offset, max_bytes=1, isolation=FetchIsolation.TXN_COMMITTED)
        assert len(open_transaction_indexes(tmp_path)) <= 3, "two, and that of the active one"
    for segment in log.reader.segments:
        assert len(list(segment.indexes.transaction.entries())) == 1
        assert len(open_transaction_indexes(tmp_path)) <= 3
    log.close()
