"""Segments, flush, roll, retention, deletion of records, producer ids: an operator's work."""

from __future__ import annotations

from app.answers import Answer, json_answer
from app.operations.service import Service
from app.translate.receipts import Place, to_json
from engine.log.log import Log


async def list_segments(service: Service, place: Place) -> Answer:
    """Return the segments of a log, oldest first."""
    segments = await service.administer(place.log.segments_info)
    shown = [
        {
            "base_offset": segment.base_offset,
            "next_offset": segment.next_offset,
            "size_bytes": segment.size_bytes,
            "largest_timestamp": segment.largest_timestamp,
            "is_active": segment.is_active,
        }
        for segment in segments
    ]
    body = {"topic": place.topic, "partition": place.partition, "segments": shown}
    return json_answer(to_json(body))


async def roll_segment(service: Service, place: Place) -> Answer:
    """Seal the active segment and open the next; an empty one stays."""
    result = await service.administer(place.log.roll)
    return json_answer(to_json(result._asdict()))


async def flush_log(service: Service, place: Place) -> Answer:
    """Put everything on disk, indexes and snapshots too, and raise the recovery point."""
    log = place.log

    def flush() -> int:
        recovery_point = log.flush()
        service.commits.committed([(log, log.watermarks.high_watermark)])
        return recovery_point

    recovery_point = await service.administer(flush)
    return json_answer(to_json({**_marks(log), "recovery_point": recovery_point}))


async def run_retention(service: Service, place: Place, *, dry_run: bool) -> Answer:
    """Remove the segments that are due, or tell which they are."""
    log = place.log
    removed = await service.administer(lambda: log.run_retention(dry_run=dry_run))
    shown = [{**segment._asdict(), "reason": segment.reason.value} for segment in removed]
    return json_answer(to_json({**_marks(log), "dry_run": dry_run, "removed": shown}))


async def delete_records(service: Service, place: Place, before_offset: int) -> Answer:
    """Give up the records below an offset; -1 is the high watermark."""
    log = place.log
    await service.administer(lambda: log.delete_records(before_offset))
    return json_answer(to_json(_marks(log)))


async def allocate_producer(service: Service) -> Answer:
    """Return a producer id that nobody has used."""
    manager = service.manager
    producer_id, producer_epoch = await service.administer(manager.allocate_producer)
    return json_answer(
        to_json({"producer_id": producer_id, "producer_epoch": producer_epoch}), status=201
    )


def _marks(log: Log) -> dict[str, object]:
    marks = log.watermarks
    return {
        "log_start_offset": marks.log_start_offset,
        "high_watermark": marks.high_watermark,
        "last_stable_offset": marks.last_stable_offset,
        "log_end_offset": marks.log_end_offset,
    }
