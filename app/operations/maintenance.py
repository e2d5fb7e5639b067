"""Maintenance: segments, flush, roll, retention, deletion, truncation, compaction."""

from __future__ import annotations

from typing import Final

from app.codecs.calls import parse_etag
from app.codecs.receipts import file_path, log_answer, shown_archive
from app.errors import PreconditionRequired
from app.http.answers import Answer
from app.operations.read.fetch import numbered
from app.store.local.partition import LocalPartition
from app.store.port import Partition
from engine.log.read.segment_files import FileKind
from engine.log.results import SegmentInfo
from schemas.common import Marks
from schemas.maintenance import CompactionReport

MARKS: Final = Marks.model_fields.keys()


async def list_segments(partition: LocalPartition) -> Answer:
    """Return the segments of a log, oldest first, with the URLs of their files."""
    marks, segments = await partition.maintenance.listing()
    shown = [
        {
            "base_offset": segment.base_offset,
            "next_offset": segment.next_offset,
            "size_bytes": segment.size_bytes,
            "largest_timestamp": segment.largest_timestamp,
            "is_active": segment.is_active,
            "files": _files(partition, segment, marks.log_start_offset),
        }
        for segment in segments
    ]
    body = {
        "topic": partition.topic,
        "partition": partition.number,
        **shown_archive(partition.archive),
        "segments": shown,
        "damage": [place.facts() for place in partition.damage],
    }
    return log_answer(partition, body, marks=marks)


def _files(
    partition: LocalPartition, segment: SegmentInfo, log_start_offset: int
) -> dict[str, str | None] | None:
    if segment.next_offset <= log_start_offset and not segment.is_active:
        return None
    return {
        kind.value: file_path(partition, segment.base_offset, kind).decode()
        if kind is not FileKind.TRANSACTION_INDEX or segment.has_transactions
        else None
        for kind in FileKind
    }


async def roll_segment(partition: LocalPartition) -> Answer:
    """Seal the active segment and open the next, durably; an empty one stays."""
    result = await partition.maintenance.roll()
    return log_answer(partition, result._asdict())


async def flush_log(partition: LocalPartition) -> Answer:
    """Flush everything to disk, indexes and snapshots too, and raise the recovery point."""
    recovery_point = await partition.maintenance.flush()
    return log_answer(partition, {"recovery_point": recovery_point})


async def run_retention(partition: LocalPartition, *, dry_run: bool) -> Answer:
    """Remove the segments that are due, or only report them."""
    removed = await partition.maintenance.run_retention(dry_run=dry_run)
    shown = [{**segment._asdict(), "reason": segment.reason.value} for segment in removed]
    body: dict[str, object] = {"dry_run": dry_run, "removed": shown}
    held = await partition.maintenance.held_by_time()
    if held is not None:
        body["held_by"] = {"base_offset": held[0], "largest_timestamp": held[1]}
    return log_answer(partition, body)


async def delete_records(partition: Partition, before_offset: int) -> Answer:
    """Delete the records below an offset, durably; -1 is the high watermark."""
    await partition.delete_records(before_offset)
    return log_answer(partition, {})


async def truncate_log(partition: LocalPartition, to_offset: int, if_match: str | None) -> Answer:
    """Truncate the log, if its end is still the one that the client saw.

    Raises PreconditionRequired without a condition, PreconditionFailed, OffsetBeyondLogEnd, and
    InvalidBody if records below the offset would be removed too.
    """
    if if_match is None:
        raise PreconditionRequired(
            "truncation needs If-Match with the ETag of an offsets response", header="if-match"
        )
    expected = parse_etag(if_match)
    await partition.maintenance.truncate(numbered(partition, to_offset), expected)
    tag = partition.tag
    marks = partition.watermarks
    epoch = marks.leader_epoch
    body = {"leader_epoch": epoch, "log_id": partition.log_id_at(epoch)}
    return log_answer(partition, body, marks=marks, etag=tag)


async def compact_log(partition: LocalPartition) -> Answer:
    """Compact a log now, however little of it is dirty; raises PolicyViolation."""
    report = await partition.maintenance.compact()
    figures = {name: getattr(report, name) for name in CompactionReport.model_fields.keys() - MARKS}
    return log_answer(partition, figures)


async def get_compaction(partition: LocalPartition) -> Answer:
    """Return what a compaction would rewrite now; changes nothing. Raises PolicyViolation."""
    found = await partition.maintenance.compaction_range()
    body = {
        "first_dirty_offset": found.first_dirty_offset,
        "end_offset": found.first_uncleanable_offset,
        "clean_bytes": found.clean_bytes,
        "cleanable_bytes": found.cleanable_bytes,
        "dirty_ratio": found.ratio,
        "is_due": found.is_due,
    }
    return log_answer(partition, body)
