"""Segments whose files are removed while a reader still holds them: the directory stays online."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from engine.errors import OffsetBelowLogStart, SegmentNotFound
from engine.log.log import Log
from engine.log.read.segment_files import FileKind
from tests.support.builders import World
from tests.support.filesystem import ForgetfulDisk
from tests.support.logs import CONFIG, fill_segments, log_path, read_values


class DuringRead(ForgetfulDisk):
    """Does something once, while the first segment is read."""

    work: Callable[[], None] | None = None

    def enter(self, name: str, path: Path) -> None:
        if name == "read" and path == log_path() and self.work is not None:
            work, self.work = self.work, None
            work()
        super().enter(name, path)


def remove_first_two(world: World, log: Log) -> None:
    log.delete_records(4)
    assert len(log.maintenance.run_retention()) == 2
    world.scheduler.advance(log.config.file_delete_delay_ms)


def test_a_read_reaches_a_closed_segment_after_its_files_were_removed() -> None:
    """It finds the log start raised, and does not open an index that is gone."""
    disk = DuringRead()
    world = World(fs=disk)
    log = world.open_log(CONFIG)
    fill_segments(log, 2, 2, 2)
    log.durability.flush()
    disk.work = lambda: remove_first_two(world, log)
    with pytest.raises(OffsetBelowLogStart):
        log.reader.read(0, max_bytes=1 << 20)
    assert world.health.cause is None
    assert len(read_values(log, 4)) == 2


def test_a_download_ends_when_its_closed_segment_was_removed() -> None:
    """It is refused; the other readers of the data directory notice nothing."""
    world = World()
    log = world.open_log(CONFIG)
    fill_segments(log, 2, 2, 2)
    log.durability.commit()
    file = log.reader.open_file(0, FileKind.LOG)
    assert log.reader.read_file(file, 0, 1)
    log.durability.flush()
    remove_first_two(world, log)
    with pytest.raises(SegmentNotFound, match="was removed"):
        log.reader.read_file(file, 10, 1 << 20)
    assert world.health.cause is None
    assert len(read_values(log, 4)) == 2
