"""Links, FIFOs and endless files in a data directory: never waited for or read whole.

A linked file was followed, and one outside the data directory cut; a FIFO or a file without an end
kept the start waiting for ever. Only a partition's folder may be a link.
"""

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from bench.stock import opened
from engine.config import LogConfig
from engine.errors import (
    InvalidDataDirectory,
    LogOffline,
    StorageOffline,
    StoredDataCorrupt,
)
from engine.fs import names
from engine.fs.port import MAX_SMALL_FILE_BYTES
from engine.fs.posix import PosixFileSystem
from engine.runtime import Runtime
from engine.tools.verify import DirectoryCheck
from engine.types import TopicPartition
from tests.support.builders import EVENTS, new_batch
from tests.support.logs import read_values
from tests.support.time import ManualClock, ManualScheduler

OTHER = TopicPartition("other", 0)
OUTSIDE = b"precious " * 1000

OF_THE_DIRECTORY = [
    names.LOCK_FILE,
    names.CLEAN_SHUTDOWN_FILE,
    names.RECOVERY_POINT_CHECKPOINT,
    names.LOG_START_CHECKPOINT + names.TEMPORARY_SUFFIX,
    names.TOPICS_FILE,
    names.PRODUCER_ID_FILE + names.TEMPORARY_SUFFIX,
]
OF_A_LOG = [
    names.log_name(0),
    names.index_name(0),
    names.time_index_name(0),
    names.txn_index_name(0),
    names.snapshot_name(0),
    names.snapshot_name(1),
    names.LEADER_EPOCH_CHECKPOINT,
    names.LEADER_EPOCH_CHECKPOINT + names.TEMPORARY_SUFFIX,
    names.PARTITION_METADATA,
    names.SEGMENT_GAPS,
]


def link_outside(path: Path) -> None:
    path.unlink(missing_ok=True)
    path.symlink_to(outside_of(path))


def outside_of(path: Path) -> Path:
    return next(one / "outside" for one in path.parents if (one / "outside").exists())


def fifo(path: Path) -> None:
    path.unlink(missing_ok=True)
    os.mkfifo(path)


FOREIGN = pytest.mark.parametrize("put", [link_outside, fifo])
Put = Callable[[Path], None]


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Two logs of one record each, and a file outside."""
    (tmp_path / "outside").write_bytes(OUTSIDE)
    with opened(tmp_path / "data") as manager:
        for topic in ("events", "other"):
            manager.create_topic(topic, 1, {"segment.index.bytes": "4096"})
            log = manager.log(TopicPartition(topic, 0))
            log.append(new_batch())
            log.durability.commit()
    return tmp_path / "data"


@FOREIGN
@pytest.mark.parametrize("is_clean", [True, False], ids=["clean", "after a crash"])
@pytest.mark.parametrize("name", OF_A_LOG)
def test_a_foreign_file_of_a_log_takes_that_log_offline(
    name: str, put: Put, directory: Path, *, is_clean: bool
) -> None:
    """The start names the file, and serves the other log."""
    path = directory / str(EVENTS) / name
    put(path)
    if not is_clean:
        (directory / names.CLEAN_SHUTDOWN_FILE).unlink()
    with opened(directory) as manager:
        with pytest.raises(LogOffline) as told:
            manager.log(EVENTS)
        assert name in str(told.value) + str(told.value.facts())
        assert len(read_values(manager.log(OTHER))) == 1
    assert (directory.parent / "outside").read_bytes() == OUTSIDE
    assert not path.is_file() or path.is_symlink()


@FOREIGN
@pytest.mark.parametrize("name", OF_THE_DIRECTORY)
def test_a_foreign_file_of_the_directory_is_refused_by_name(
    name: str, put: Put, directory: Path
) -> None:
    """Nothing is opened, and `tidelog verify` reports the same."""
    put(directory / name)
    with pytest.raises(InvalidDataDirectory, match=f"{name} is not a regular file"):
        opened(directory).__enter__()
    assert (directory.parent / "outside").read_bytes() == OUTSIDE
    if not name.endswith(names.TEMPORARY_SUFFIX):
        found = DirectoryCheck(PosixFileSystem(), directory).findings()
        assert f"{directory / name}: it is not a regular file: move it away" in [
            f"{one.file}: {one.detail}" for one in found if one.is_problem
        ]


def linked(directory: Path) -> Path:
    """Move the partition `EVENTS` out of the data directory, with a link in its place."""
    path, elsewhere = directory / str(EVENTS), directory.parent / "elsewhere"
    path.rename(elsewhere)
    path.symlink_to(elsewhere)
    return elsewhere


def problems(directory: Path) -> dict[str, str]:
    """What `tidelog verify` finds wrong, by file name."""
    found = DirectoryCheck(PosixFileSystem(), directory).findings()
    return {one.file.name: one.detail for one in found if one.is_problem}


@pytest.mark.parametrize("is_clean", [True, False], ids=["clean", "after a crash"])
def test_a_linked_partition_is_served_where_it_lies(directory: Path, *, is_clean: bool) -> None:
    """As a broker serves it, whether it stopped or was killed."""
    elsewhere = linked(directory)
    if not is_clean:
        (directory / names.CLEAN_SHUTDOWN_FILE).unlink()
    assert problems(directory) == {}
    with opened(directory) as manager:
        log = manager.log(EVENTS)
        log.append(new_batch())
        log.roll()
        log.durability.commit()
        assert len(read_values(log)) == 2
    assert (directory / str(EVENTS)).is_symlink()
    assert len(list(elsewhere.glob("*.log"))) == 2
    with opened(directory) as manager:
        assert len(read_values(manager.log(EVENTS))) == 2


def test_a_deleted_topic_takes_its_files_from_where_a_link_leads(directory: Path) -> None:
    """The link goes, and the files of the partition; what else lies there is somebody's."""
    elsewhere = linked(directory)
    (elsewhere / "precious").write_bytes(OUTSIDE)
    with opened(directory) as manager:
        manager.delete_topic("events")
    clock = ManualClock()  # the deletion's delay outlasts the process
    scheduler = ManualScheduler(clock)
    runtime = Runtime(directory, clock=clock, scheduler=scheduler)
    runtime.open()
    scheduler.advance(LogConfig().file_delete_delay_ms)
    runtime.close()
    assert [one.name for one in elsewhere.iterdir()] == ["precious"]
    assert (elsewhere / "precious").read_bytes() == OUTSIDE
    assert not [one for one in directory.iterdir() if one.is_symlink()]


def test_a_link_that_leads_to_no_directory_takes_its_partition_offline(directory: Path) -> None:
    """The start says where the files belong, and serves the other log."""
    elsewhere = linked(directory)
    elsewhere.rename(directory.parent / "unmounted")
    assert list(problems(directory)) == [str(EVENTS)]
    with opened(directory) as manager:
        with pytest.raises(LogOffline, match="leads to no directory"):
            manager.log(EVENTS)
        assert len(read_values(manager.log(OTHER))) == 1
    assert not elsewhere.exists()


def test_two_links_to_one_directory_are_not_both_served(directory: Path) -> None:
    """Two logs would write into the same files."""
    (directory / "events-1").symlink_to(linked(directory))
    with opened(directory) as manager:
        assert len(read_values(manager.log(EVENTS))) == 1
        with pytest.raises(LogOffline, match="as events-0 does"):
            manager.log(TopicPartition("events", 1))


def test_a_link_into_the_data_directory_is_not_served(directory: Path) -> None:
    """The partition there is served under its own name."""
    (directory / "events-1").symlink_to(directory / str(EVENTS))
    with opened(directory) as manager:
        assert len(read_values(manager.log(EVENTS))) == 1
        with pytest.raises(LogOffline, match="into the data directory itself"):
            manager.log(TopicPartition("events", 1))


def test_a_link_with_another_name_is_left_alone(directory: Path) -> None:
    """`tidelog verify` reports it, and the start does not follow it."""
    (directory / "a link").symlink_to(linked(directory))
    assert list(problems(directory)) == ["a link"]
    with opened(directory) as manager:
        assert len(read_values(manager.log(EVENTS))) == 1


def test_the_data_directory_itself_may_be_a_link(directory: Path) -> None:
    """The operator names it."""
    link = directory.parent / "link"
    link.symlink_to(directory)
    with opened(link) as manager:
        assert len(read_values(manager.log(EVENTS))) == 1
        manager.create_topic("new", 1, {"segment.index.bytes": "4096"})
    with opened(directory) as manager:
        assert "new" in manager.topics()


@pytest.mark.parametrize("name", [names.LEADER_EPOCH_CHECKPOINT, names.PARTITION_METADATA])
def test_a_file_of_a_log_that_has_no_end_takes_that_log_offline(name: str, directory: Path) -> None:
    """It is not read: a checkpoint has at most MAX_SMALL_FILE_BYTES."""
    os.truncate(directory / str(EVENTS) / name, MAX_SMALL_FILE_BYTES + 1)
    with opened(directory) as manager:
        with pytest.raises(LogOffline, match=name):
            manager.log(EVENTS)
        assert len(read_values(manager.log(OTHER))) == 1


def test_a_checkpoint_that_has_no_end_is_refused_by_name(directory: Path) -> None:
    """A start with one data directory has no other copy."""
    path = directory / names.RECOVERY_POINT_CHECKPOINT
    os.truncate(path, MAX_SMALL_FILE_BYTES + 1)
    with pytest.raises(StorageOffline, match=f"it has {MAX_SMALL_FILE_BYTES + 1} bytes"):
        opened(directory).__enter__()
    path.unlink()
    with opened(directory) as manager:
        assert len(read_values(manager.log(EVENTS))) == 1


def test_a_file_that_somebody_else_keeps_may_be_a_link(tmp_path: Path) -> None:
    """A certificate, for example, where secrets are mounted as links."""
    fs = PosixFileSystem()
    (tmp_path / "secret").write_bytes(b"content")
    (tmp_path / "link").symlink_to(tmp_path / "secret")
    assert fs.read_bytes(tmp_path / "link", follow_links=True) == b"content"
    with fs.open(tmp_path / "link", read_only=True, follow_links=True) as file:
        assert file.read_at(0, 10) == b"content"
    for refused in (fs.read_bytes, fs.open, fs.open_index):
        with pytest.raises(OSError, match="symbolic link") as told:
            refused(tmp_path / "link")
        assert told.value.errno == errno.ELOOP


@FOREIGN
@pytest.mark.parametrize("name", [names.log_name(0), names.index_name(0)])
def test_a_file_that_is_replaced_after_the_start_is_the_damage_of_its_log(
    name: str, put: Put, directory: Path
) -> None:
    """The log refuses reads that need it and names it; its directory stays online."""
    with opened(directory) as manager:
        manager.log(EVENTS).roll()
        manager.log(EVENTS).durability.flush()
    with opened(directory) as manager:
        log = manager.log(EVENTS)
        log.reader.segments[0].resting.rest()  # as once too many other segments are open
        put(directory / str(EVENTS) / name)
        with pytest.raises(StoredDataCorrupt) as told:
            log.reader.read(0, max_bytes=1 << 20)
        assert told.value.file == directory / str(EVENTS) / name
        assert not log.durability.health.is_offline
        other = manager.log(OTHER)
        other.append(new_batch())
        other.durability.commit()
        assert len(read_values(other)) == 2
    assert (directory.parent / "outside").read_bytes() == OUTSIDE
