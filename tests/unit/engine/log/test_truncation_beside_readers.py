"""A truncation with concurrent readers: they see the log before it or after it, never between.

The remaining log is read and verified before the log's lock is taken, and a truncation that fails
then has changed nothing.
"""

from __future__ import annotations

import struct
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import pytest

from engine.errors import StorageOffline, StoredDataCorrupt
from engine.fs import names
from engine.log.log import Log
from engine.log.state import LogView
from engine.metrics import NullRecorder
from engine.segment.file_records import FileRecords
from engine.segment.recovery import plan_cut
from engine.segment.segment import Segment, SegmentCut
from engine.types import TopicPartition
from tests.support.builders import World
from tests.support.damage import rewrite
from tests.support.logs import (
    ALL_BYTES,
    CONFIG,
    DIRECTORY,
    append_values,
    fill,
    log_path,
    read_values,
    with_config,
)
from tests.support.machine import Operation
from tests.support.time import START_MS
from tests.unit.engine.log.test_log_transactions import Producer

INDEX_ENTRY = struct.Struct(">ii")

LOOKS: dict[str, Callable[[Log], object]] = {
    "read": lambda log: values_read(log, 0),
    "offset for time": lambda log: log.reader.offset_for_time(START_MS + 5),
    "newest record": lambda log: log.reader.max_timestamp(),
    "segments": lambda log: log.reader.listing().segments,
    "splits": lambda log: log.reader.splits(0, log.watermarks.high_watermark, parts=3),
}


class CountedDamage(NullRecorder):
    """Counts reports of damage."""

    def __init__(self) -> None:
        self.count = 0

    def corrupt_data_found(self, log: TopicPartition) -> None:
        self.count += 1


def values_read(log: Log, offset: int) -> list[int]:
    fetched = log.reader.read(offset, max_bytes=ALL_BYTES)
    assert fetched is not None
    return [fetched.next_offset, fetched.leader_epoch]


def ten_records(world: World) -> Log:
    """A log of ten batches with ascending times."""
    log = world.open_log(with_config(index_interval_bytes=100))
    for number in range(10):
        append_values(log, b"%d" % number, timestamp=START_MS + number)
    log.durability.commit()
    return log


@contextmanager
def in_the_middle(
    world: World, log: Log, work: Callable[[], object]
) -> Iterator[list[threading.Thread]]:
    """Start `work` on another thread right before a truncation cuts the file.

    The truncation continues once that thread has ended or waits for the lock.
    """
    threads: list[threading.Thread] = []

    def suspended(operation: Operation) -> None:
        if operation.name == "truncate" and not threads:
            threads.append(threading.Thread(target=work))
            threads[0].start()
            wait_for_thread(log, threads[0])

    world.disk.meanwhile = suspended
    yield threads
    for thread in threads:
        thread.join(60)


def wait_for_thread(log: Log, thread: threading.Thread) -> None:
    """Return once a thread has ended, or has noticed a running truncation."""
    lock: object = log._core.lock  # noqa: SLF001 - the test watches the waiting threads
    assert isinstance(lock, WatchedLock)
    while thread.is_alive() and not lock.wanted.wait(0.001):
        pass


class WatchedLock:
    """A log's lock that reports when a second thread wants it."""

    def __init__(self, lock: threading.Lock) -> None:
        self._lock = lock
        self._holder: int | None = None
        self.wanted = threading.Event()

    def __enter__(self) -> None:
        if self._holder is not None:
            self.wanted.set()
        self._lock.acquire()
        self._holder = threading.get_ident()

    def __exit__(self, *error: object) -> None:
        self._holder = None
        self._lock.release()


@pytest.mark.parametrize("look", LOOKS.values(), ids=LOOKS)
def test_a_read_that_begins_during_a_truncation_sees_the_log_after_it(
    look: Callable[[Log], object],
) -> None:
    """The old bytes were returned with the new leader epoch, or a reader got a damage error."""
    damage = CountedDamage()
    world = World(recorder=damage)
    log = ten_records(world)
    log._core.lock = WatchedLock(log._core.lock)  # type: ignore[assignment]  # noqa: SLF001 - see there
    seen: list[object] = []
    with in_the_middle(world, log, lambda: seen.append(look(log))) as threads:
        log.truncate_to(4)
    assert len(threads) == 1
    assert seen == [look(log)]
    assert damage.count == 0


def test_a_read_on_the_event_loop_does_not_wait_for_a_truncation() -> None:
    """It is left to a worker, which may."""
    world = World()
    log = ten_records(world)
    seen: list[object] = []

    def look(operation: Operation) -> None:
        if operation.name == "truncate":
            seen.append(log.reader.read(0, max_bytes=ALL_BYTES, cached_only=True))

    world.disk.meanwhile = look
    log.truncate_to(4)
    assert seen == [None]


@pytest.mark.parametrize("name", ["offset for time", "newest record"])
def test_a_look_up_by_time_that_a_truncation_overtook_looks_again(name: str) -> None:
    """It got a damage error although nothing was damaged."""
    damage = CountedDamage()
    log = ten_records(World(recorder=damage))
    file = log._core.state.local.active.records.file  # noqa: SLF001 - where the bytes go
    read_at = file.read_at
    cuts: list[int] = []

    def cutting(position: int, length: int) -> bytes:
        if not cuts:
            cuts.append(4)
            log.truncate_to(4)
        return read_at(position, length)

    file.read_at = cutting  # type: ignore[method-assign]  # a truncation during the look-up
    found = LOOKS[name](log)
    assert cuts == [4]
    assert found == LOOKS[name](log)
    assert damage.count == 0


def test_a_truncation_does_not_follow_a_wrong_index_entry() -> None:
    """The last entry that stays leads into the middle of a batch: the index is rebuilt first.

    Half of the log was cut before that was found out, and the next append left a hole.
    """
    world = World()
    log = ten_records(world)
    entries = [*log.reader.segments[0].indexes.offset.entries()]
    end = log.durability.flush()
    log.close()
    path = DIRECTORY / names.index_name(0)
    content = bytearray(world.fs.read_bytes(path))
    INDEX_ENTRY.pack_into(content, INDEX_ENTRY.size, entries[1].offset, entries[1].position + 7)
    rewrite(world.fs, path, bytes(content))
    log = world.open_log(with_config(index_interval_bytes=100), recovery_point=end, was_clean=True)
    target = entries[2].offset
    assert log.truncate_to(target) == target
    log.maintenance.check_invariants()
    assert append_values(log, b"new") == target
    log.durability.commit()
    assert read_values(log) == [*(b"%d" % number for number in range(target)), b"new"]
    assert [*log.reader.segments[0].indexes.offset.entries()][: len(entries)] == entries[:2]


def test_a_truncation_that_fails_changes_nothing() -> None:
    """The remaining log is damaged near its end, so that the producer state would be unknown."""
    world = World()
    log = world.open_log(CONFIG)
    producer = Producer(log, 7)
    for value in (b"first", b"second", b"third"):
        producer.write(value)
    log.durability.flush()
    with world.fs.open(log_path(0)) as file:
        content = bytes(file.read_at(0, file.size_bytes))
    _, second, third = (at for at, _ in log.reader.segments[0].headers())
    rewrite(world.fs, log_path(0), content[:second] + b"\xff" * 20 + content[second + 20 :])
    before = (
        log.watermarks,
        log.reader.tag,
        log.reader.size_bytes,
        log.reader.log_id,
        log.producers.active(),
    )
    with pytest.raises(StoredDataCorrupt):
        log.truncate_to(2)
    assert (
        log.watermarks,
        log.reader.tag,
        log.reader.size_bytes,
        log.reader.log_id,
        log.producers.active(),
    ) == before
    assert third < log.reader.size_bytes
    assert not log.durability.health.is_offline


def test_a_truncation_reads_what_stays_before_it_takes_the_lock(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Appends waited for a walk over up to a whole segment: 295 ms for 40 MB of small batches."""
    log = World().open_log(CONFIG)
    producer = Producer(log, 7)
    for value in fill(log, batches=300):
        producer.write(value)
    log.durability.commit()
    under_the_lock: list[int] = []
    walk = FileRecords.headers

    def counted(self: FileRecords, position: int, end: int, **options: object) -> Iterator[object]:
        for at, header in walk(self, position, end, **options):  # type: ignore[arg-type]  # passed on
            if log._core.lock.locked():  # noqa: SLF001 - whether an append would wait
                under_the_lock.append(at)
            yield at, header

    monkeypatch.setattr(FileRecords, "headers", counted)
    log.truncate_to(590)
    assert log.watermarks.log_end_offset == 590
    assert len(under_the_lock) < 5, "the place of the open transaction is looked up, no more"


def test_a_log_that_is_closed_while_its_truncation_is_planned_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It was a bare ValueError of a closed file."""
    log = ten_records(World())

    def closed_first(segment: Segment, offset: int) -> SegmentCut:
        log.close()
        return plan_cut(segment, offset)

    monkeypatch.setattr("engine.log.truncation.plan_cut", closed_first)
    with pytest.raises(StorageOffline, match="is closed"):
        log.truncate_to(4)


def test_a_look_up_whose_batch_goes_after_it_was_located_is_repeated() -> None:
    """Found by scheduled threads (seed 5004601): the walk to its header met the end of the file."""
    world = World()
    ten_records(world).close()
    log = world.open_log(CONFIG, recovery_point=10, was_clean=True)

    def cut(frame: FrameType, event: str, argument: object) -> None:
        caller = frame.f_back
        is_there = caller is not None and caller.f_code.co_name == "ensure_true"
        if is_there and frame.f_code.co_name == "headers":
            sys.settrace(None)
            log.truncate_to(0)

    sys.settrace(cut)
    try:
        assert log.reader.max_timestamp() is None
    finally:
        sys.settrace(None)
    assert log.watermarks.log_end_offset == 0


@pytest.mark.parametrize("change", [Log.roll, lambda log: log.truncate_to(4)], ids=["roll", "cut"])
@pytest.mark.parametrize(
    "error",
    [
        FileNotFoundError(2, "of a segment that left the log"),
        StoredDataCorrupt(
            "another file has its name", file=Path("x.deleted"), position=0, offset=0
        ),
    ],
    ids=["gone", "replaced"],
)
def test_a_file_that_is_missed_where_the_log_has_changed_is_looked_for_again(
    error: Exception, change: Callable[[Log], object]
) -> None:
    """A cut and a move, or two compactions, during a read: it took the directory offline."""
    damage = CountedDamage()
    log = ten_records(World(recorder=damage))
    views: list[LogView] = []

    def look(view: LogView) -> int:
        views.append(view)
        if len(views) == 1:
            change(log)
            raise error
        return view.marks.log_end_offset

    assert log.reader._seen(look) == log.watermarks.log_end_offset  # noqa: SLF001 - what readers share
    assert len(views) == 2
    assert damage.count == 0
    assert not log.durability.health.is_offline


def test_a_file_that_is_missed_where_nothing_has_changed_is_a_failed_disk() -> None:
    """The directory takes no more reads or writes until a start has looked."""
    log = ten_records(World())

    def look(_: LogView) -> None:
        raise FileNotFoundError(2, "gone")

    with pytest.raises(StorageOffline):
        log.reader._seen(look)  # noqa: SLF001 - what readers share
    assert log.durability.health.is_offline
