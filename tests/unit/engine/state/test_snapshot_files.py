"""The snapshot files of one partition: found, written, kept, retired."""

from collections.abc import Callable
from pathlib import Path

import pytest

from engine.fs.names import snapshot_name
from engine.fs.posix import PosixFileSystem
from engine.state.producer_snapshots import SnapshotFiles
from tests.support.kafka import kafka


@pytest.fixture
def partition(tmp_path: Path) -> Path:
    """A partition directory with a name that can change."""
    directory = tmp_path / "partition"
    directory.mkdir()
    return directory


@pytest.fixture
def found(partition: Path, fs: PosixFileSystem) -> Callable[..., SnapshotFiles]:
    """Open a directory with these snapshots."""

    def open_with(*offsets: int) -> SnapshotFiles:
        for offset in offsets:
            (partition / snapshot_name(offset)).write_bytes(b"x")
        return SnapshotFiles(fs, partition)

    return open_with


Found = Callable[..., SnapshotFiles]


def test_only_snapshots_are_found(found: Found, partition: Path) -> None:
    """Other files, retired snapshots and foreign names are ignored."""
    for name in (
        "00000000000000000005.log",
        "00000000000000000006.snapshot.deleted",
        "00000000000000000007.old.snapshot",
        "8.snapshot",
        "leader-epoch-checkpoint",
    ):
        (partition / name).write_bytes(b"")
    files = found(42, 3)
    assert files.offsets == (3, 42)
    assert files.newest == 42


def test_there_may_be_none(found: Found) -> None:
    """A new partition has no newest snapshot."""
    files = found()
    assert (files.offsets, files.newest) == ((), None)


@pytest.mark.parametrize("sync", [False, True], ids=["written", "synced"])
def test_a_snapshot_is_written_whole(found: Found, partition: Path, *, sync: bool) -> None:
    """A longer file of that name leaves no bytes, and the set has it once."""
    (partition / snapshot_name(7)).write_bytes(b"a longer one from before")
    files = found(3)
    files.write(7, b"state", sync=sync)
    files.write(5, b"older", sync=sync)
    files.write(7, b"state!", sync=sync)
    assert files.read(7) == (partition / snapshot_name(7)).read_bytes() == b"state!"
    assert files.offsets == (3, 5, 7)


def test_a_snapshot_that_is_gone_is_not_there_to_be_synced(found: Found) -> None:
    """Retention may come before the flush."""
    files = found(3)
    file = files.open(3)
    assert file is not None
    file.close()
    files.delete(3)
    assert files.open(3) is None
    assert files.offsets == ()


def test_deleting_forgets_and_removes(found: Found, partition: Path) -> None:
    """A file that is already gone is not an error."""
    files = found(3, 5)
    files.delete(3)
    files.delete(4)
    assert files.offsets == (5,)
    assert [path.name for path in partition.iterdir()] == [snapshot_name(5)]


@kafka("ProducerStateManagerTest.testRemoveAndMarkSnapshotForDeletion")
def test_retiring_renames_and_forgets(found: Found, partition: Path) -> None:
    """The file waits for its removal under another name."""
    files = found(5)
    retired = files.retire(5)
    assert retired == partition / "00000000000000000005.snapshot.deleted"
    assert retired.exists()
    assert files.offsets == ()


@kafka("ProducerStateManagerTest.testRemoveAndMarkSnapshotForDeletionAlreadyDeleted")
def test_retiring_a_missing_file_forgets_it(found: Found, partition: Path) -> None:
    """There is nothing to remove."""
    files = found(5)
    (partition / snapshot_name(5)).unlink()
    assert files.retire(5) is None
    assert files.offsets == ()


@kafka(
    "ProducerStateManagerTest.testRemoveStraySnapshotsKeepCleanShutdownSnapshot",
    "ProducerStateManagerTest.testRemoveAllStraySnapshots",
)
@pytest.mark.parametrize(
    ("offsets", "bases", "kept"),
    [
        ((2, 5, 42), {5}, (5, 42)),
        ((2, 5), {42}, ()),
        ((1, 2, 3, 4), {0, 1, 2}, (1, 2, 4)),
        ((2, 5, 42), set(), (42,)),
        ((5,), {5}, (5,)),
        ((), {5}, ()),
    ],
)
def test_strays_go_but_that_of_a_clean_shutdown(
    found: Found, offsets: tuple[int, ...], bases: set[int], kept: tuple[int, ...]
) -> None:
    """The rest is useless (testRemoveStraySnapshotsKeepCleanShutdownSnapshot, and All)."""
    files = found(*offsets)
    files.delete_strays(bases)
    assert files.offsets == kept


@kafka("ProducerStateManagerTest.testReloadSnapshots")
def test_strays_are_looked_for_on_disk(found: Found, partition: Path) -> None:
    """What recovery wrote meanwhile is taken into account."""
    files = found(5)
    (partition / snapshot_name(2)).write_bytes(b"x")
    files.rescan()
    files.delete_strays({5})
    assert files.offsets == (5,)
    assert not (partition / snapshot_name(2)).exists()


def test_files_follow_their_directory(found: Found, partition: Path) -> None:
    """After the partition directory was renamed its snapshots are found under the new name."""
    files = found(5)
    moved = partition.rename(partition.with_name("renamed"))
    files.move_to(moved)
    assert files.read(5) == b"x"
