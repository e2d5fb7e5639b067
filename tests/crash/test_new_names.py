"""Names of files that a power cut must not take, and names that must not come back."""

from __future__ import annotations

import errno
from contextlib import suppress

import pytest

from engine.checkpoint.kafka_files import read_epochs
from engine.errors import StorageFull
from engine.fs import names
from engine.manager.opening import flush_and_close
from engine.types import EpochOffset
from tests.support.builders import World
from tests.support.logs import (
    CONFIG,
    DIRECTORY,
    append_values,
    fill_segments,
    read_values,
    segment_bases,
)
from tests.support.machine import Operation
from tests.support.patience import TakesTooLong, at_most


def test_a_log_that_ended_below_its_start_has_lost_its_old_segments() -> None:
    """The name of the first segment gives the log start to the next start.

    No checkpoint line does.
    """
    world = World()
    log = world.open_log(CONFIG)
    fill_segments(log, 2, 2)
    log.durability.flush()
    world.restart(power_cut=True)
    log = world.open_log(CONFIG, log_start_offset=9)
    assert segment_bases(log) == [9]
    append_values(log, b"value")
    log.durability.commit()
    world.restart(power_cut=True)
    log = world.open_log(CONFIG)
    assert log.watermarks.log_start_offset == 9
    assert read_values(log) == [b"value"]


def test_a_clean_stop_leaves_the_epochs_as_they_are() -> None:
    """Not as they were at the last flush: readers of the file need not trim it."""
    world = World()
    log = world.open_log(CONFIG)
    append_values(log, *[b"value"] * 4)
    log.durability.flush()
    log.delete_records(3)
    flush_and_close(log)
    epochs = read_epochs(world.fs, DIRECTORY / names.LEADER_EPOCH_CHECKPOINT)
    assert [*epochs] == [EpochOffset(0, 3)]


def test_a_stop_flushes_a_log_before_it_closes_it() -> None:
    """The appended batches are below the recovery point that a clean stop writes."""
    world = World()
    log = world.open_log(CONFIG)
    append_values(log, b"value")
    with suppress(TakesTooLong), at_most(1):
        flush_and_close(log)
    assert log.durability.recovery_point == 1


def test_a_stop_waits_for_the_flush_of_a_roll_that_is_under_way() -> None:
    """Until it has ended, neither the new segment nor its snapshot has a durable name."""
    world = World()
    log = world.open_log(CONFIG)
    append_values(log, b"value", producer_id=3, producer_epoch=0, base_sequence=0)
    log.durability.flush()
    log.roll()
    answers: list[bool] = []

    def close_beside(operation: Operation) -> None:
        if operation.name in {"sync", "sync_directory"} and not answers:
            answers.append(log.close(if_flushed=True))

    world.disk.meanwhile = close_beside
    log.durability.flush()
    world.disk.meanwhile = None
    assert answers == [False]
    assert log.close(if_flushed=True)


def test_a_clean_stop_leaves_all_names_on_the_disk() -> None:
    """Those of indexes too, which were made after the roll was committed."""
    world = World()
    log = world.open_log(CONFIG)
    append_values(log, b"value")
    log.roll()
    flush_and_close(log)
    names_left = world.disk.list_directory(DIRECTORY)
    world.restart(power_cut=True)
    assert world.disk.list_directory(DIRECTORY) == names_left


def test_a_stop_flushes_what_a_roll_made_that_found_no_space() -> None:
    """The new segment has its indexes, and a durable name."""
    world = World()
    log = world.open_log(CONFIG)
    append_values(log, b"value")
    log.durability.flush()
    world.disk.fail("append", error=errno.ENOSPC, path_end=names.SNAPSHOT_SUFFIX)
    with pytest.raises(StorageFull):
        log.roll()
    assert log.durability.needs_flush
    flush_and_close(log)
    world.restart(power_cut=True)
    found = world.disk.list_directory(DIRECTORY)
    assert {names.log_name(1), names.index_name(1), names.time_index_name(1)} <= {*found}
