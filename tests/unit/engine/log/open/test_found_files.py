"""The content of a partition's directory, classified from one listing."""

from pathlib import Path

import pytest

from engine.errors import InvalidDataDirectory
from engine.log.open.found_files import FoundFiles
from tests.support.filesystem import ForgetfulDisk

DIRECTORY = Path("/data/t-0")


@pytest.fixture
def disk() -> ForgetfulDisk:
    """A disk with an empty partition."""
    disk = ForgetfulDisk()
    disk.make_directory(DIRECTORY, parents=True)
    return disk


def offset_file(offset: int, suffix: str) -> str:
    return f"{offset:020d}{suffix}"


def put(disk: ForgetfulDisk, *names: str) -> None:
    for name in names:
        disk.open(DIRECTORY / name, create=True).close()


def test_nothing_is_found_in_a_new_partition(disk: ForgetfulDisk) -> None:
    """An empty directory has no segments, snapshots or leftovers."""
    assert FoundFiles.of(disk, DIRECTORY) == FoundFiles(frozenset(), (), (), (), ())


def test_files_are_told_apart_by_their_names(disk: ForgetfulDisk) -> None:
    """Each kind in ascending order; an index counts as an orphan where its log file is missing."""
    segments = [offset_file(one, suffix) for one in (20, 3) for suffix in (".log", ".index")]
    orphans = [offset_file(7, ".timeindex"), offset_file(9, ".txnindex")]
    leftovers = [offset_file(3, ".log.swap"), offset_file(5, ".snapshot.deleted")]
    snapshots = [offset_file(20, ".snapshot"), offset_file(11, ".snapshot")]
    put(disk, *segments, *orphans, *leftovers, *snapshots)
    found = FoundFiles.of(disk, DIRECTORY)
    assert found.base_offsets == (3, 20)
    assert found.snapshots == (11, 20)
    assert found.orphans == tuple(orphans)
    assert found.leftovers == tuple(leftovers)
    assert found.names == {*segments, *orphans, *leftovers, *snapshots}


@pytest.mark.parametrize(
    "name",
    [
        "notes.txt",
        "7.log",
        "00000000000000000007.old.index",
        "00000000000000000007.checkpoint.deleted",
        "99999999999999999999.log",
        "leader-epoch-checkpoint",
    ],
)
def test_what_is_not_a_segments_is_only_named(disk: ForgetfulDisk, name: str) -> None:
    """Such files are neither opened nor removed because of their names."""
    put(disk, name)
    assert FoundFiles.of(disk, DIRECTORY) == FoundFiles(frozenset({name}), (), (), (), ())


def test_a_directory_is_no_file(disk: ForgetfulDisk) -> None:
    """A foreign directory is ignored."""
    disk.make_directory(DIRECTORY / "mine")
    assert FoundFiles.of(disk, DIRECTORY).names == frozenset()


@pytest.mark.parametrize(
    "name",
    ["00000000000000000007.log", "00000000000000000007.index.deleted", "partition.metadata"],
)
def test_a_directory_in_the_place_of_a_file_is_refused(disk: ForgetfulDisk, name: str) -> None:
    """The error has its path: removing or ignoring it would be a guess."""
    disk.make_directory(DIRECTORY / name)
    with pytest.raises(InvalidDataDirectory, match=f"{name} is not a regular file"):
        FoundFiles.of(disk, DIRECTORY)
