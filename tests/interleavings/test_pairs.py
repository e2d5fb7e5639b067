"""Two threads: one is interrupted at each line while the second one runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from engine.archive.upkeep import load_manifest
from engine.errors import StorageOffline
from engine.fs import names
from engine.log.log import Log
from engine.log.maintenance import CleaningAborted, Compaction, Maintenance
from engine.log.results import CopySource
from engine.segment.segment import Segment
from tests.interleavings.pairs import each_interruption
from tests.interleavings.steps import Grain, Steps
from tests.support.bucket import Bucket
from tests.support.builders import EVENTS, World, new_batch
from tests.support.damage import PARTITION, rewrite
from tests.support.damage import fill as filled_directory
from tests.support.logs import CONFIG, DIRECTORY, fill_segments, read_values, with_config
from tests.unit.engine.archive.test_archiver import Site

Works = tuple[Callable[[], object], Callable[[], object]]

IN_LOG = Steps(("/engine/log/",), Grain.LINE)
IN_LOG_MODULES = Steps(
    ("/engine/log/log.py", "/engine/log/durability.py", "/engine/log/maintenance.py"),
    Grain.OPCODE,
)
IN_RESTING = Steps(("/engine/segment/indexes.py",), Grain.LINE)
COMPACTED = with_config(cleanup_policy=("compact",))
IN_REBUILD = Steps(("/engine/log/index_repair.py",), Grain.LINE)
KEPT = {"retention.ms": "-1", "remote.storage.enable": "true", "local.retention.bytes": "-1"}
RENAMED = DIRECTORY.with_name("renamed-0")


def sealed_segments(world: World, *, max_open: int = 100) -> tuple[Log, list[Segment]]:
    """A log whose sealed segments rest."""
    world.config = replace(world.config, max_open_sealed_segments=max_open)
    log = world.open_log(COMPACTED)
    for _ in range(4):
        log.append(new_batch())
        log.roll()
    log.durability.flush()
    return log, list(log.reader.segments[:-1])


def use(segment: Segment) -> None:
    """Have the log file open."""
    segment.records.read(0, 1)


def test_as_many_segments_stay_open_as_may_be() -> None:
    """Two that are opened at once have as many others rest as there are too many."""
    segments: list[Segment] = []

    def make() -> Works:
        _, segments[:] = sealed_segments(World(), max_open=1)
        use(segments[0])
        return partial(use, segments[1]), partial(use, segments[2])

    for errors in each_interruption(IN_RESTING, make):
        assert errors == [None, None]
        assert sum(not segment.records.is_resting for segment in segments) == 1


def test_a_segment_that_may_rest_no_more_stays_open() -> None:
    """The caller of `forbid` opens the files afterwards, and they stay open."""
    segments: list[Segment] = []

    def make() -> Works:
        _, segments[:] = sealed_segments(World())
        use(segments[0])

        def forbid() -> None:
            segments[0].resting.forbid()
            use(segments[0])

        return segments[0].resting.rest, forbid

    for errors in each_interruption(IN_RESTING, make):
        assert errors == [None, None]
        assert not segments[0].records.is_resting


def test_a_round_of_the_cleaner_beside_a_rename_is_given_up() -> None:
    """What fails because the directory has another name takes nothing offline."""
    worlds: list[World] = []

    def make() -> Works:
        world = World()
        worlds.append(world)
        log, _ = sealed_segments(world)
        compaction = log.maintenance.compaction()
        return lambda: log.maintenance.rename_directory(RENAMED), lambda: compaction.create_output(
            0
        )

    for renamed, cleaned in each_interruption(IN_LOG, make):
        assert renamed is None
        assert cleaned is None or isinstance(cleaned, CleaningAborted)
        assert not worlds[-1].health.is_offline


def test_a_commit_beside_a_rename_syncs_the_directory_under_its_name() -> None:
    """It looks for the directory under the name that it has."""
    worlds: list[World] = []

    def make() -> Works:
        world = World()
        worlds.append(world)
        log = world.open_log(CONFIG)
        fill_segments(log, 1, 1)
        return log.durability.commit, lambda: log.maintenance.rename_directory(RENAMED)

    for errors in each_interruption(IN_LOG_MODULES, make):
        assert errors == [None, None]
        assert not worlds[-1].health.is_offline


def test_a_round_beside_the_end_of_a_move_works_in_one_directory() -> None:
    """Its context and its files are those of one log: the old one or the new one."""
    begun: list[Compaction] = []

    def make() -> Works:
        begun.clear()
        log = World().open_log(CONFIG)
        copy = World(directory=Path("/other")).open_log(CONFIG)

        def complete(_: CopySource) -> Maintenance:
            return copy.maintenance

        def give_name(_: Maintenance) -> None:
            pass

        return (
            lambda: log.maintenance.relocate(RENAMED, complete, give_name),
            lambda: begun.append(log.maintenance.compaction()),
        )

    for errors in each_interruption(IN_LOG_MODULES, make):
        assert errors == [None, None]
        compaction = begun[0]
        directory = compaction.segments[0].directory.parent
        assert compaction.context.health.directory == directory


def test_a_rebuilt_index_is_synced_before_the_log_is_closed() -> None:
    """Otherwise the reader gets the error that the log is closed, and no other error."""

    def make() -> Works:
        filled = filled_directory()
        path = PARTITION / names.index_name(0)
        content = bytearray(filled.world.fs.read_bytes(path))
        content[7] += 1  # the position of the first entry
        rewrite(filled.world.fs, path, bytes(content))
        log = filled.reopen().log(EVENTS)
        return lambda: log.reader.read(20, max_bytes=1), log.maintenance.close_handles

    for read, closed in each_interruption(IN_REBUILD, make):
        assert closed is None
        assert read is None or isinstance(read, StorageOffline)


@pytest.mark.parametrize("is_read_first", [True, False], ids=["read", "release"])
def test_a_reader_finds_every_record_beside_a_release(*, is_read_first: bool) -> None:
    """Each segment is on the disk, in the archive or in both, whichever thread is interrupted."""
    seen: list[list[bytes | None]] = []
    sites: list[Site] = []

    def make() -> Works:
        for one in sites:
            one.close()
        sites[:] = [Site(Bucket(), config=KEPT)]
        log, manager = sites[0].log(), sites[0].runtime.manager
        seen.append([*fill_segments(log, 1, 1, 1)])
        log.durability.commit()
        assert sites[0].archive()
        (archive,) = sites[0].archiver.partitions.values()
        manifest = load_manifest(sites[0].bucket, log.topic_id, 0)
        assert manifest is not None
        manager.update_topic("events", {"local.retention.bytes": "0"})
        due = log.maintenance.due_for_release()
        assert len(due.segments) == 2
        archived = archive._tier._snapshot(manifest.pieces[:2])  # noqa: SLF001  # as `release` does

        def read() -> None:
            seen.append(read_values(log))

        def release() -> None:
            assert manager.release(log, due._replace(archived=archived))

        return (read, release) if is_read_first else (release, read)

    for errors in each_interruption(IN_LOG, make):
        assert errors == [None, None]
        written, found = seen
        assert found == written
        seen.clear()
