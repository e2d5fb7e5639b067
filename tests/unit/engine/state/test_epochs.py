"""Which leader epoch wrote from which offset on, in memory and in leader-epoch-checkpoint."""

import errno
from pathlib import Path

import pytest

from engine.errors import CorruptCheckpoint, InvalidRequestValue
from engine.fs.names import LEADER_EPOCH_CHECKPOINT
from engine.fs.posix import PosixFileSystem
from engine.state.epochs import LeaderEpochCache
from engine.types import EpochOffset
from tests.support.kafka import kafka


class Epochs:
    """A directory with a cache over it, and the state after a restart."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.cache = self.reopen()

    def reopen(self) -> LeaderEpochCache:
        return LeaderEpochCache(PosixFileSystem(), self.directory)

    def of(self, *entries: tuple[int, int]) -> LeaderEpochCache:
        for epoch, start_offset in entries:
            self.cache.assign(epoch, start_offset)
        self.cache.check_invariants()
        return self.cache

    def entries(self) -> list[tuple[int, int]]:
        self.cache.check_invariants()
        return [(entry.epoch, entry.start_offset) for entry in self.cache.entries]

    def stored(self) -> list[tuple[int, int]]:
        return [(entry.epoch, entry.start_offset) for entry in self.reopen().entries]


@pytest.fixture
def epochs(tmp_path: Path) -> Epochs:
    directory = tmp_path / "partition"
    directory.mkdir()
    return Epochs(directory)


def test_a_new_log_has_no_epochs_and_is_in_epoch_zero(epochs: Epochs) -> None:
    """Nothing is known or written, and a log without a cluster begins with epoch 0."""
    assert epochs.cache.entries == ()
    assert epochs.cache.highest_epoch_as_read == 0
    assert epochs.cache.latest is None
    assert not (epochs.directory / LEADER_EPOCH_CHECKPOINT).exists()


@kafka(
    "LeaderEpochFileCacheTest.shouldPersistEpochsBetweenInstances",
    "LeaderEpochCheckpointFileTest.shouldRetainValuesEvenIfCheckpointIsRecreated",
)
def test_an_assignment_is_on_disk_when_it_returns(epochs: Epochs) -> None:
    """A restart finds every epoch that was assigned."""
    assert epochs.cache.assign(2, 6)
    assert epochs.stored() == [(2, 6)]
    text = (epochs.directory / LEADER_EPOCH_CHECKPOINT).read_text()
    assert text == "0\n1\n2 6\n"


def test_the_epoch_as_read_outlives_trimming(epochs: Epochs) -> None:
    """Loading may cut the newest epoch off the history; the log's own epoch does not go back."""
    epochs.of((0, 0), (4, 9))
    reopened = epochs.reopen()
    reopened.truncate_from_end(5)
    assert reopened.latest == EpochOffset(0, 0)
    assert reopened.highest_epoch_as_read == 4


@kafka(
    "LeaderEpochFileCacheTest.shouldNotUpdateEpochAndStartOffsetIfItDidNotChange",
    "LeaderEpochFileCacheTest.shouldNotOverwriteLogEndOffsetForALeaderEpochOnceItHasBeenAssigned",
    "LeaderEpochFileCacheTest.shouldNotOverwriteOffsetForALeaderEpochOnceItHasBeenAssigned",
)
def test_the_first_offset_of_an_epoch_stays(epochs: Epochs) -> None:
    """Later appends change nothing."""
    epochs.of((2, 6))
    before = epochs.cache.entries
    assert not epochs.cache.assign(2, 7)
    assert not epochs.cache.assign(2, 6)
    assert epochs.cache.entries is before


@kafka(
    "LeaderEpochFileCacheTest.shouldEnforceMonotonicallyIncreasingStartOffsets",
    "LeaderEpochFileCacheTest.shouldEnforceMonotonicallyIncreasingEpochs",
    "LeaderEpochFileCacheTest.shouldEnforceOffsetsIncreaseMonotonically",
    "LeaderEpochFileCacheTest.shouldTruncateIfMatchingEpochButEarlierStartingOffset",
)
@pytest.mark.parametrize(
    ("assigned", "expected"),
    [
        ([(2, 9), (3, 9)], [(3, 9)]),
        ([(1, 5), (2, 6), (1, 7)], [(1, 7)]),
        ([(2, 6), (3, 5)], [(3, 5)]),
        ([(5, 11), (6, 12), (7, 13), (7, 12)], [(5, 11), (7, 12)]),
        ([(2, 9), (2, 8)], [(2, 8)]),
        ([(0, 0), (1, 5), (2, 5)], [(0, 0), (2, 5)]),
    ],
)
def test_the_latest_assignment_wins(
    epochs: Epochs, assigned: list[tuple[int, int]], expected: list[tuple[int, int]]
) -> None:
    """Contradicting entries are removed, in memory and on disk."""
    epochs.of(*assigned)
    assert epochs.entries() == epochs.stored() == expected


@pytest.mark.parametrize(("epoch", "start_offset"), [(-1, 0), (0, -1)])
def test_a_negative_assignment_is_refused(epochs: Epochs, epoch: int, start_offset: int) -> None:
    """Neither an epoch nor an offset can be negative, and nothing is written."""
    with pytest.raises(InvalidRequestValue) as caught:
        epochs.cache.assign(epoch, start_offset)
    assert caught.value.facts() == {"epoch": epoch, "start_offset": start_offset}
    assert epochs.stored() == []


@kafka(
    "LeaderEpochFileCacheTest.shouldDropEntriesOnEpochBoundaryWhenRemovingLatestEntries",
    "LeaderEpochFileCacheTest.shouldDropEntriesBetweenEpochBoundaryWhenRemovingNewest",
    "LeaderEpochFileCacheTest.shouldNotResetEpochHistoryTailIfUndefinedPassed",
)
@pytest.mark.parametrize(
    ("end_offset", "count"), [(8, 1), (9, 2), (11, 2), (12, 3), (6, 0), (0, 0), (-1, 3)]
)
def test_truncation_from_the_end(epochs: Epochs, end_offset: int, count: int) -> None:
    """Epochs that begin at the new end or later go; -1 is ignored."""
    epochs.of((2, 6), (3, 8), (4, 11))
    changed = epochs.cache.truncate_from_end(end_offset)
    assert changed == (count < 3)
    assert epochs.entries() == [(2, 6), (3, 8), (4, 11)][:count]


@kafka(
    "LeaderEpochFileCacheTest.shouldPreserveResetOffsetOnClearEarliestIfOneExists",
    "LeaderEpochFileCacheTest.shouldUpdateSavedOffsetWhenOffsetToClearToIsBetweenEpochs",
    "LeaderEpochFileCacheTest.shouldNotClearAnythingIfOffsetToEarly",
    "LeaderEpochFileCacheTest.shouldNotClearAnythingIfOffsetToFirstOffset",
    "LeaderEpochFileCacheTest.shouldNotResetEpochHistoryHeadIfUndefinedPassed",
    "LeaderEpochFileCacheTest.shouldRetainLatestEpochOnClearAllEarliest",
    "LeaderEpochFileCacheTest.shouldRetainLatestEpochOnClearAllEarliestAndUpdateItsOffset",
)
@pytest.mark.parametrize(
    ("start_offset", "expected"),
    [
        (-1, [(2, 6), (3, 8), (4, 11)]),
        (5, [(2, 6), (3, 8), (4, 11)]),
        (6, [(2, 6), (3, 8), (4, 11)]),
        (7, [(2, 7), (3, 8), (4, 11)]),
        (8, [(3, 8), (4, 11)]),
        (9, [(3, 9), (4, 11)]),
        (11, [(4, 11)]),
        (15, [(4, 15)]),
    ],
)
def test_truncation_from_the_start(
    epochs: Epochs, start_offset: int, expected: list[tuple[int, int]]
) -> None:
    """The epoch in force begins there now."""
    before = epochs.of((2, 6), (3, 8), (4, 11)).entries
    changed = epochs.cache.truncate_from_start(start_offset)
    assert changed == (epochs.cache.entries != before)
    assert epochs.entries() == expected


@kafka(
    "LeaderEpochFileCacheTest.shouldClearEarliestOnEmptyCache",
    "LeaderEpochFileCacheTest.shouldClearLatestOnEmptyCache",
)
def test_truncating_an_empty_history_does_nothing(epochs: Epochs) -> None:
    """It is not an error."""
    assert not epochs.cache.truncate_from_start(7)
    assert not epochs.cache.truncate_from_end(7)


@kafka("LeaderEpochFileCacheTest.shouldWriteCheckpointOnTruncation")
def test_a_truncation_reaches_the_file_at_the_next_flush(epochs: Epochs) -> None:
    """Until then the file has entries too many."""
    epochs.of((2, 6), (3, 8), (4, 11))
    epochs.cache.truncate_from_end(11)
    epochs.cache.truncate_from_start(7)
    assert epochs.stored() == [(2, 6), (3, 8), (4, 11)]
    epochs.cache.flush()
    assert epochs.stored() == [(2, 7), (3, 8)]


def test_a_flush_without_changes_writes_nothing(epochs: Epochs) -> None:
    """The file of an unchanged history is left alone."""
    epochs.of((2, 6))
    path = epochs.directory / LEADER_EPOCH_CHECKPOINT
    path.unlink()
    epochs.cache.flush()
    assert not path.exists()


@kafka("OffsetCheckpointFileTest.testWriteIfDirExistsShouldNotThrowWhenDirNotExists")
def test_a_flush_after_the_directory_went_does_nothing(epochs: Epochs) -> None:
    """The partition may be renamed or deleted before its file is written."""
    epochs.of((2, 6), (3, 8))
    epochs.cache.truncate_from_end(8)
    gone = epochs.directory.rename(epochs.directory.with_name("renamed"))
    epochs.cache.flush()
    epochs.cache.move_to(gone)
    epochs.cache.flush()
    assert (gone / LEADER_EPOCH_CHECKPOINT).read_text() == "0\n1\n2 6\n"


def test_clearing_empties_the_file_at_once(epochs: Epochs) -> None:
    """A log that starts again has no history on disk either."""
    epochs.of((2, 6), (3, 8))
    epochs.cache.clear_and_flush()
    assert epochs.entries() == epochs.stored() == []


class FullDisk(PosixFileSystem):
    """A disk on which no file can be given its name."""

    def rename(self, source: Path, target: Path) -> None:
        raise OSError(errno.ENOSPC, "full", str(target), None, str(source))


def test_an_assignment_that_cannot_be_written_does_not_count(tmp_path: Path) -> None:
    """If the disk refuses, memory stays as it was: what is reported is durable."""
    cache = LeaderEpochCache(FullDisk(), tmp_path)
    with pytest.raises(OSError, match="full"):
        cache.assign(1, 0)
    assert cache.entries == ()


def test_a_damaged_file_is_reported(tmp_path: Path) -> None:
    """A history that does not ascend is not guessed at."""
    (tmp_path / LEADER_EPOCH_CHECKPOINT).write_text("0\n2\n3 8\n2 9\n")
    with pytest.raises(CorruptCheckpoint):
        LeaderEpochCache(PosixFileSystem(), tmp_path)
