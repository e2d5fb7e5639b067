"""Compares everything a log shows, except records, with its model."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

from engine.errors import SegmentNotFound
from engine.log.read.segment_files import FileKind
from engine.types import FetchIsolation
from tests.support.driven_log import DrivenLog
from tests.support.log_checks import check_look_ups
from tests.support.logs import batches_in

if TYPE_CHECKING:
    from tests.simulation.simulation import Simulation


def look_beside(driven: DrivenLog, random: Random) -> None:
    """Read while a thread waits for the disk.

    The model does not know how far a compaction has got: in such a log only errors are checked.
    """
    driven.see_commits()
    if driven.log.config.is_compacted or driven.was_compacted:
        driven.log.reader.listing()
        driven.log.reader.max_timestamp()
        driven.log.reader.offset_for_time(driven.clock.now_ms() - random.randint(0, 2_000))
        for isolation in FetchIsolation:
            driven.log.reader.read(driven.model.log_start, max_bytes=1_000, isolation=isolation)
    else:
        check_look_ups(driven.log, driven.model, step=7, first=random.randint(0, 6))
        check_files(driven)


def check_everything(driven: DrivenLog, random: Random) -> None:
    """Check values that only some callers use."""
    check_files(driven)
    check_extents(driven, random)
    check_counts(driven)


def check_files(driven: DrivenLog) -> None:
    """Each file of each segment, as far as it is committed: the very batches of the log."""
    log, model = driven.log, driven.model
    for segment in log.reader.listing().segments:
        if segment.next_offset <= model.log_start and not segment.is_active:
            continue  # it waits for its removal
        file = log.reader.open_file(segment.base_offset, FileKind.LOG)
        data = b""
        while len(data) < file.size_bytes:
            data += bytes(log.reader.read_file(file, len(data), 300))
        batches = list(batches_in(data))
        end = min(segment.next_offset, model.high_watermark)
        due = [one for one in model.batches if segment.base_offset <= one.base_offset < end]
        kept = [batch for batch in batches if batch.header.next_offset > model.log_start]
        expected = [one.data for one in due if one.next_offset > model.log_start]
        assert [bytes(batch.buffer) for batch in kept] == expected
        check = log.reader.check_file(file, 0, 1 << 20) if file.size_bytes else None
        assert check is None or check.damage == ()
        for kind in (FileKind.OFFSET_INDEX, FileKind.TIME_INDEX, FileKind.TRANSACTION_INDEX):
            try:
                index = log.reader.open_file(segment.base_offset, kind)
            except SegmentNotFound:
                assert kind is FileKind.TRANSACTION_INDEX
            else:
                assert index.content is not None
                assert len(log.reader.read_file(index, 0, 1 << 20)) == index.size_bytes


def check_extents(driven: DrivenLog, random: Random) -> None:
    """Ranges in parts without gap or overlap, and their bytes."""
    log, model = driven.log, driven.model
    ends = sorted(random.randint(model.log_start, model.high_watermark) for _ in range(2))
    start, end = ends
    due = [one for one in model.due(start, model.high_watermark) if one.base_offset < end]
    assert log.reader.extent_bytes(start, end) == sum(len(one.data) for one in due)
    parts = log.reader.splits(start, end, parts=random.randint(1, 4))
    starts = [part.start_offset for part in parts]
    assert start == end or (starts[0], parts[-1].end_offset) == (start, end)
    assert [part.end_offset for part in parts[:-1]] == starts[1:]
    if due := model.due(start, model.end):
        assert log.reader.look_at(start).first_offset == due[0].base_offset


def check_counts(driven: DrivenLog) -> None:
    """Check counts and sizes."""
    log, model = driven.log, driven.model
    above = [one for one in model.batches if one.base_offset >= model.high_watermark]
    assert log.durability.uncommitted_bytes == sum(len(one.data) for one in above)
    assert log.durability.has_uncommitted == bool(model.end > model.high_watermark)
    assert log.reader.size_bytes == sum(segment.size_bytes for segment in log.reader.segments)
    assert log.reader.segments_count == len(log.reader.segments)
    assert log.reader.log_id == f"{log.topic_id}.{log.reader.leader_epoch}"
    assert log.reader.tag.log_end_offset == model.end
    known = {entry.producer_id for entry in log.producers.active()}
    assert known >= model.remembered.keys()
    assert log.producers.count >= len(known)
    assert log.producers.highest_id >= max(known, default=-1)


def check_state(simulation: Simulation, driven: DrivenLog) -> None:
    """Check the global state: what is open, at rest, due, and where."""
    manager, log = simulation.manager, driven.log
    assert manager.offline_logs == ()
    assert log in manager.logs()
    assert log in manager.logs_of(log.topic_partition.topic)
    assert manager.data_directory(log.directory.parent) is log.durability.health
    assert not manager.health.is_offline
    progress = manager.recovery_progress
    assert progress.opened_logs == progress.total_logs
    assert log.durability.recovery_point <= driven.model.end
    is_behind = log.durability.recovery_point < driven.model.end
    assert log.durability.needs_flush == (
        is_behind or log.durability.has_uncommitted or log.durability.is_flush_due
    )
    report = simulation.runtime.scrubber.report
    assert report is None or report.damage == ()
