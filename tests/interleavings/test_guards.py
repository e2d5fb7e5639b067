"""Each lock is held wherever its state is used or changed, in whole lives of the engine.

The checks define what each lock guards; mutual exclusion of threads follows.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, Final

import pytest

from engine.background.mover import PartitionMover
from engine.checkpoint.kafka_files import OffsetCheckpoint
from engine.cleaner.cleaner import LogCleaner
from engine.fs import names
from engine.fs.health import DirectoryHealth
from engine.index.sparse import SparseIndex
from engine.log import index_repair
from engine.log.files import LocalLog, SyncOrder
from engine.log.read.segment_files import FileKind
from engine.log.state import LogCore, LogState
from engine.manager.checkpoints import Checkpoints
from engine.manager.directories import Directories
from engine.manager.directory import DataDirectory
from engine.manager.manager import LogManager
from engine.manager.moving import Move, WantedMoves
from engine.manager.opening import ProgressBoard
from engine.runtime import Runtime
from engine.segment import index_checks
from engine.segment.file_records import FileRecords
from engine.segment.indexes import Resting, SegmentIndexes
from engine.segment.segment import Segment
from engine.state.epochs import LeaderEpochCache
from engine.state.producer_table import SharedRoom
from engine.state.producers import ProducerStates
from tests.simulation.runs import failure_of
from tests.support.builders import EVENTS, World
from tests.support.compaction import Compacted
from tests.support.damage import PARTITION, rewrite
from tests.support.damage import fill as filled_directory
from tests.support.guards import Guard, Locks, Watch, guarded
from tests.support.logs import fill, read_values
from tests.unit.engine.manager.test_directories import B, opened

KNOWN: Final[dict[type, weakref.WeakSet[Any]]] = {
    LogCore: weakref.WeakSet(),
    LogManager: weakref.WeakSet(),
    Checkpoints: weakref.WeakSet(),
    Runtime: weakref.WeakSet(),
}
"""The owners of locks that guard parts of them."""


@contextmanager
def known_owners() -> Iterator[None]:
    """Remember the owners that are made inside."""
    with pytest.MonkeyPatch.context() as patch:
        for kind, known in KNOWN.items():
            patch.setattr(kind, "__init__", _remembering(vars(kind)["__init__"], known))
        yield


def _remembering(make: Callable[..., None], known: weakref.WeakSet[Any]) -> Callable[..., None]:
    def __init__(self: Any, *arguments: Any, **options: Any) -> None:  # noqa: N807 - it is one
        make(self, *arguments, **options)
        known.add(self)

    return __init__


def own(*names: str) -> Locks:
    """The locks of the object itself."""
    return lambda guarded: [[getattr(guarded, name) for name in names]]


def of_owner(kind: type, has: Callable[[Any, Any], bool], *names: str) -> Locks:
    """The locks of an object that has it, if there is one."""

    def locks(guarded: Any) -> Sequence[Sequence[Any]]:
        owners = [owner for owner in KNOWN[kind] if has(owner, guarded)]
        return [[getattr(owner, name) for name in names] for owner in owners]

    return locks


def of_log(*names: str) -> Locks:
    return of_owner(LogCore, has_part, *names)


def has_part(core: LogCore, part: object) -> bool:
    state = core.state
    parts = (state, state.local, state.producers, state.epochs)
    return any(part is one for one in parts) or any(
        part is one for segment in state.local.segments for one in (segment, segment.indexes)
    )


def syncs(core: LogCore, order: SyncOrder) -> bool:
    return any(segment in order.segments for segment in core.state.local.segments)


def of_manager(*names: str) -> Locks:
    return of_owner(LogManager, belongs, *names)


def belongs(manager: LogManager, part: object) -> bool:
    directories, moves = manager._directories, manager._moves  # noqa: SLF001 - as above
    if isinstance(part, Move):
        return part._log in manager.logs()  # noqa: SLF001 - as above
    return part is directories or part is moves or part in directories.all


GUARDS: Final = (
    # -- a log: `reshaping`, `syncing`, `naming` and `lock` are taken in this order
    Guard(
        LogState,
        (
            "place",
            "is_roll_due",
            "roll_before",
            "write",
            "raise_high_watermark",
            "raise_log_start",
            "roll",
            "check_invariants",
        ),
        of_log("lock"),
    ),
    Guard(
        LogState,
        ("begin_removal", "remove_oldest", "swap_in", "truncate_to"),
        of_log("reshaping", "lock"),
    ),
    Guard(LogState, ("rename_directory",), of_log("reshaping", "naming", "lock")),
    Guard(LogState, ("stand_still",), of_log("reshaping", "syncing", "naming", "lock")),
    Guard(
        LogState,
        (
            "keeps_order",
            "leader_epoch",
            "recovery_point",
            "tag",
            "truncations",
            "watermarks",
        ),
        of_log("lock"),
        only_set=True,
    ),
    Guard(
        LocalLog,
        ("append", "retire", "rest_sealed", "roll", "sync_order", "synced"),
        of_log("lock"),
    ),
    Guard(SyncOrder, ("run",), of_owner(LogCore, syncs, "syncing")),
    Guard(LocalLog, ("close", "close_handles"), of_log("naming", "lock")),
    Guard(LocalLog, ("config", "directory"), of_log("lock"), only_set=True),
    Guard(
        ProducerStates,
        (
            "active_producers",
            "expire",
            "forget_idle",
            "judge",
            "recent",
            "snapshots",
            "take_snapshot",
        ),
        of_log("lock"),
    ),
    Guard(ProducerStates, ("open_snapshot", "write_windows"), of_log("naming")),
    Guard(Segment, ("append", "change_suffix", "replace_entries"), of_log("lock")),
    Guard(SegmentIndexes, ("open",), of_log("naming")),
    Guard(index_repair, ("rebuild_index_held",), lambda core: [[core.reshaping]]),
    Guard(SharedRoom, ("_is_asked", "_left", "_low"), own("_lock"), only_set=True),
    Guard(LeaderEpochCache, ("_path", "_written"), own("_file_lock"), only_set=True),
    # -- files of a segment
    Guard(SparseIndex, ("_opened",), own("_file_lock")),
    Guard(
        SparseIndex,
        ("_is_closed", "_is_wanted", "_length_bytes", "_file", "_max_entries", "_syncs"),
        own("_file_lock"),
        only_set=True,
    ),
    Guard(FileRecords, ("_file", "_is_closed", "_resting_bytes"), own("_opening"), only_set=True),
    Guard(
        SegmentIndexes,
        ("_is_gone", "_offset", "_time", "_transaction"),
        own("_opening"),
        only_set=True,
        not_in=frozenset({"begin_anew", "forget_transactions"}),
    ),
    Guard(Resting, ("_files",), own("_lock"), only_set=True),
    Guard(index_checks, ("_prove",), lambda segment: [[segment.proofs.proving]]),
    # -- the data directories
    Guard(Checkpoints, ("_write", "_write_marks"), own("_writing")),
    Guard(Checkpoints, ("_marks", "_read_promises", "kept"), own("_writing"), only_set=True),
    Guard(
        OffsetCheckpoint,
        ("write",),
        of_owner(Checkpoints, lambda owner, part: part in vars(owner).values(), "_writing"),
    ),
    Guard(DirectoryHealth, ("_can_read", "cause"), own("_lock"), only_set=True),
    Guard(Directories, ("_allocate_above",), own("_allocating")),
    Guard(Directories, ("write_topics",), of_manager("_admin")),
    Guard(Directories, ("leave_clean",), of_manager("_moving", "_admin")),
    Guard(DataDirectory, ("delete_records", "truncate"), of_manager("_admin")),
    Guard(WantedMoves, ("adopt", "end", "give_up", "targets", "want"), of_manager("_admin")),
    Guard(LogManager, ("_forget", "_grow", "_publish"), own("_admin")),
    Guard(LogManager, ("_deleted", "_is_open"), own("_admin"), only_set=True),
    Guard(LogManager, ("_under_way",), own("_moving", "_admin"), only_set=True),
    Guard(Move, ("finish",), of_manager("_admin")),
    Guard(ProgressBoard, ("_publish",), own("_lock")),
    # -- what runs in the background
    Guard(PartitionMover, ("_enqueue",), own("_lock")),
    Guard(PartitionMover, ("_is_stopped",), own("_lock"), only_set=True),
    Guard(
        LogCleaner,
        ("_clean", "_clean_fully", "_forget_departed", "_write_marks"),
        own("_one_at_a_time"),
    ),
    Guard(LogCleaner, ("_marks",), own("_one_at_a_time"), only_set=True),
    Guard(
        LogManager,
        ("close", "open"),
        of_owner(Runtime, lambda runtime, part: runtime.manager is part, "_life"),
    ),
)


@contextmanager
def watched() -> Iterator[Watch]:
    with known_owners(), guarded(GUARDS) as watch:
        yield watch


A_MINUTE_MS: Final = 60_000
LIVES: Final = range(1, 21)


def test_nothing_is_used_without_its_lock() -> None:
    """In some lives, and in what lives seldom do; each guard has something to check."""
    works: list[Callable[[], None]] = [clean_and_remove, mend, move]
    works += [partial(ensure_good_life, seed) for seed in LIVES]
    with watched() as watch:
        for work in works:
            work()
            assert not watch.broken, "\n".join(sorted(set(watch.broken)))
    names = {f"{guard.owner.__name__}.{name}" for guard in GUARDS for name in guard.names}
    assert names == {*watch.checked}


def ensure_good_life(seed: int) -> None:
    assert failure_of(seed) is None


def clean_and_remove() -> None:
    """A pass of the cleaner, and a removal of several segments."""
    compacted = Compacted(overrides={"cleanup.policy": "compact,delete", "retention.bytes": 0})
    log = compacted.log
    log.producers.forget_idle((0, 0))
    for number in range(4):
        compacted.put(("key", f"{number}"))
        compacted.seal()
    log.durability.commit()
    assert compacted.cleaner.run_pass() is not None
    for number in range(4):
        compacted.put((f"{number}", "value"))
        compacted.seal()
    log.durability.commit()
    log.delete_records(-1)
    assert len(log.maintenance.run_retention()) > 2
    compacted.world.scheduler.advance(A_MINUTE_MS)


def mend() -> None:
    """A wrong index entry that a reader finds, and a truncation."""
    filled = filled_directory()
    path = PARTITION / names.index_name(0)
    content = bytearray(filled.world.fs.read_bytes(path))
    content[7] += 1  # the position of the first entry
    rewrite(filled.world.fs, path, bytes(content))
    log = filled.reopen().log(EVENTS)
    assert len(read_values(log)) == len(filled.values)
    for offset in filled.values:
        log.reader.read(offset, max_bytes=1)
        log.reader.read(offset, max_bytes=1, cached_only=True)
    for kind in FileKind:
        log.reader.read_file(log.reader.open_file(0, kind), 0, 1)
    assert log.reader.segments[0].indexes.time.entry(0).timestamp >= 0
    log.truncate_to(1)


def move() -> None:
    """From one data directory to another."""
    world = World()
    manager = opened(world)
    manager.create_topic("events", 1, {})
    manager.update_topic("events", {"segment.bytes": "100"})
    fill(manager.log(EVENTS), batches=3)  # each in a segment of its own
    manager.move_partition(EVENTS, B)
    manager.close()
