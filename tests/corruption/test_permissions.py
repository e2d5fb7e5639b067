"""A real directory with an unreadable file: it is not treated as missing, and not recreated."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from engine.errors import LogOffline, StorageOffline
from engine.fs import names
from engine.fs.posix import PosixFileSystem
from engine.manager.manager import LogManager
from engine.records.control import ControlType
from tests.support.builders import EVENTS, World, new_batch
from tests.support.damage import OVERRIDES, Writer
from tests.support.logs import read_values

NOBODY = 65_534
ORIGINAL, DATA = Path("original"), Path("data")
NOT_READ = {
    names.CLEAN_SHUTDOWN_FILE,  # its being there is all it says
    names.PRODUCER_ID_FILE,  # only when an id is requested
}


KINDS = {
    names.LOG_SUFFIX,
    *names.INDEX_SUFFIXES,
    names.SNAPSHOT_SUFFIX,
    names.RECOVERY_POINT_CHECKPOINT,
    names.LOG_START_CHECKPOINT,
    names.HIGH_WATERMARK_CHECKPOINT,
    names.LEADER_EPOCH_CHECKPOINT,
    names.PARTITION_METADATA,
    names.TOPICS_FILE,
}


@contextmanager
def without_privileges(folder: Path) -> Iterator[None]:
    """Run as a user to whom permissions apply; the folder belongs to that user meanwhile."""
    if os.geteuid() != 0:
        yield
        return
    for path in (folder, *folder.rglob("*")):
        os.chown(path, NOBODY, NOBODY)
    os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)


def kind_of(path: Path) -> str:
    return path.suffix if names.base_offset_of(path.name) is not None else path.name


def opened() -> LogManager:
    return World(fs=PosixFileSystem(), directory=DATA).open_manager()


def look_up() -> None:
    """Start, and ask for the log."""
    manager = opened()
    try:
        manager.log(EVENTS)
    finally:
        manager.close()


def fill() -> list[bytes | None]:
    """Two segments, an aborted transaction and a producer id, and a clean stop."""
    manager = World(fs=PosixFileSystem(), directory=ORIGINAL).open_manager()
    manager.create_topic(EVENTS.topic, 1, OVERRIDES)
    log = manager.log(EVENTS)
    writer = Writer(log)
    for _ in range(2):
        writer.put(4)
        writer.put(2, producer_id=11)
        writer.end(11, ControlType.ABORT)
        log.roll()
    producer_id, epoch = manager.allocate_producer()
    log.append(new_batch(producer_id=producer_id, producer_epoch=epoch, base_sequence=0))
    log.durability.commit()
    values = read_values(log)
    manager.close()
    return values


def test_a_file_that_may_not_be_read_is_not_taken_for_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sentence says whose permission is missing; with it every record is there again.

    A file of a partition takes its log offline, a file above the partitions the directory.
    """
    monkeypatch.chdir(tmp_path)
    values = fill()
    files = {kind_of(path): path.relative_to(ORIGINAL) for path in sorted(ORIGINAL.rglob("*"))}
    assert files.keys() >= KINDS | NOT_READ
    with without_privileges(tmp_path):
        for kind in sorted(KINDS):
            shutil.rmtree(DATA, ignore_errors=True)
            shutil.copytree(ORIGINAL, DATA)
            file = DATA / files[kind]
            file.chmod(0)
            error = StorageOffline if file.parent == DATA else LogOffline
            with pytest.raises(error, match=r"Permission denied.*let this user read"):
                look_up()
            file.chmod(0o600)
            assert file.read_bytes() == (ORIGINAL / files[kind]).read_bytes()
        shutil.rmtree(DATA)
        shutil.copytree(ORIGINAL, DATA)
        for kind in NOT_READ:
            (DATA / files[kind]).chmod(0)
        manager = opened()
        assert read_values(manager.log(EVENTS)) == values
        manager.close()
