"""Maintenance: segments, flush, roll, retention, deletion, truncation, compaction."""

from __future__ import annotations

from typing import Final

from app.codecs.calls import parse_etag
from app.codecs.receipts import file_path, log_answer, shown_marks
from app.http.answers import Answer
from app.http.problems import InvalidBody, PreconditionRequired
from app.operations.read.fetch import numbered
from app.operations.service import Service
from app.store.local.partition import LocalPartition
from engine.errors import OffsetBeyondLogEnd, OffsetError, StorageError
from engine.log.log import Log
from engine.log.read.segment_files import FileKind
from engine.log.results import RollResult, SegmentInfo
from engine.records.header import parse_header
from schemas.common import Marks
from schemas.maintenance import CompactionReport

MARKS: Final = Marks.model_fields.keys()


async def list_segments(service: Service, partition: LocalPartition) -> Answer:
    """Return the segments of a log, oldest first, with the URLs of their files."""
    marks = partition.log.watermarks
    segments = await service.administer(partition.log.reader.segments_info)
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
    body = {"topic": partition.topic, "partition": partition.number, "segments": shown}
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


async def roll_segment(service: Service, partition: LocalPartition) -> Answer:
    """Seal the active segment and open the next, durably; an empty one stays."""
    log = partition.log

    def roll() -> RollResult:
        result = log.roll()
        service.commits.committed([(log, log.durability.commit())])
        return result

    result = await service.administer(roll)
    return log_answer(partition, result._asdict())


async def flush_log(service: Service, partition: LocalPartition) -> Answer:
    """Flush everything to disk, indexes and snapshots too, and raise the recovery point."""
    log = partition.log

    def flush() -> int:
        recovery_point = log.durability.flush()
        service.commits.committed([(log, log.watermarks.high_watermark)])
        return recovery_point

    recovery_point = await service.administer(flush)
    return log_answer(partition, {"recovery_point": recovery_point})


async def run_retention(service: Service, partition: LocalPartition, *, dry_run: bool) -> Answer:
    """Remove the segments that are due, or only report them."""
    log = partition.log
    removed = await service.administer(lambda: log.maintenance.run_retention(dry_run=dry_run))
    shown = [{**segment._asdict(), "reason": segment.reason.value} for segment in removed]
    return log_answer(partition, {"dry_run": dry_run, "removed": shown})


async def delete_records(service: Service, partition: LocalPartition, before_offset: int) -> Answer:
    """Delete the records below an offset, durably; -1 is the high watermark."""
    log = partition.log
    await service.administer(lambda: service.manager.delete_records(log, before_offset))
    return log_answer(partition, {})


async def truncate_log(
    service: Service, partition: LocalPartition, to_offset: int, if_match: str | None
) -> Answer:
    """Truncate the log, if its end is still the one that the client saw.

    Raises PreconditionRequired without a condition, PreconditionFailed, OffsetBeyondLogEnd, and
    InvalidBody if records below the offset would be removed too.
    """
    if if_match is None:
        raise PreconditionRequired(
            "truncation needs If-Match with the ETag of an offsets answer", header="if-match"
        )
    expected = parse_etag(if_match)
    log = partition.log
    to_offset = numbered(partition, to_offset)

    def truncate() -> None:
        # Waiting appends are answered first: the high watermark is lower afterwards.
        service.commits.committed([(log, log.durability.commit())])
        if log.reader.tag == expected:
            _ensure_between_batches(log, to_offset)
        manager = service.runtime.manager
        log_end_offset = manager.truncate(log, to_offset, expected_tag=expected)
        if to_offset > log_end_offset:
            raise OffsetBeyondLogEnd(
                f"offset {to_offset} is beyond the log end {log_end_offset}",
                offset=to_offset,
                **shown_marks(log.watermarks),
            )
        service.commits.committed([(log, log.watermarks.high_watermark)])

    await service.administer(truncate)
    tag = log.reader.tag
    body = {"leader_epoch": tag.leader_epoch, "log_id": log.reader.log_id}
    return log_answer(partition, body, etag=tag)


def _ensure_between_batches(log: Log, to_offset: int) -> None:
    """Raise InvalidBody if the offset is inside a batch, which the engine would remove whole.

    Its first records may belong to another client. A corrupt batch may be cut at any offset: it
    cannot be read anyway.
    """
    try:
        found = log.reader.look_at(to_offset)
    except (OffsetError, StorageError):
        return
    if found.first_offset is None:
        return
    base_offset = max(found.first_offset, found.watermarks.log_start_offset)
    header = parse_header(found.data)
    if base_offset >= to_offset or not header.records_count:
        return
    next_offset = header.next_offset
    raise InvalidBody(
        f"the records from offset {base_offset} to {next_offset - 1} are one batch, which goes or "
        f"stays whole: cut at {base_offset} or {next_offset}",
        batch_base_offset=base_offset,
        batch_next_offset=next_offset,
    )


async def compact_log(service: Service, partition: LocalPartition) -> Answer:
    """Compact a log now, however little of it is dirty; raises PolicyViolation."""
    log = partition.log
    report = await service.workers.compact(lambda: service.runtime.cleaner.clean_now(log))
    figures = {name: getattr(report, name) for name in CompactionReport.model_fields.keys() - MARKS}
    return log_answer(partition, figures)
