"""Where logs are: marks, and look-ups by time."""

from __future__ import annotations

from collections.abc import Sequence

from app.codecs.receipts import offsets_body, offsets_headers, to_json
from app.http.answers import Answer, Headers, json_answer
from app.http.problems import MalformedRequest
from app.operations.service import Service
from app.store.partition import Partition
from engine.log.log import Log
from engine.types import INT64_MAX, TimestampAndOffset


def get_offsets(partition: Partition) -> Answer:
    """Return all marks of a log, and the tag that conditional appends take."""
    log = partition.log
    # The tag first: one that is older than the marks can only make a condition fail, never hold
    # for an end of the log that the client has not seen.
    tag = log.reader.tag
    marks = log.watermarks
    headers: Headers = offsets_headers(partition, marks, tag)
    body = offsets_body(log, marks, tag.leader_epoch)
    return json_answer(body, headers=headers)


async def get_offset_at(service: Service, partition: Partition, timestamp: str) -> Answer:
    """Return the offset that a time, or a name for one, stands for."""
    found = await service.workers.read(lambda: _offset_at(partition.log, timestamp))
    tag = partition.log.reader.tag
    return json_answer(
        to_json(found), headers=offsets_headers(partition, partition.log.watermarks, tag)
    )


async def get_topic_offsets(service: Service, topic: str, timestamp: str | None) -> Answer:
    """Return the marks of all partitions, or their answers to a look-up by time."""
    partitions = service.partitions(topic)
    if timestamp is None:
        described = [_marks_of(partition) for partition in partitions]
    else:
        described = await service.workers.read(lambda: _offsets_at(partitions, timestamp))
    return json_answer(to_json({"topic": topic, "partitions": described}))


def _marks_of(partition: Partition) -> dict[str, object]:
    marks = partition.log.watermarks
    return {
        "partition": partition.number,
        "log_start_offset": marks.log_start_offset,
        "high_watermark": marks.high_watermark,
        "last_stable_offset": marks.last_stable_offset,
        "log_end_offset": marks.log_end_offset,
        "leader_epoch": partition.log.reader.leader_epoch,
        "recovery_point": partition.log.durability.recovery_point,
        "log_id": partition.log.reader.log_id,
    }


def _offsets_at(partitions: Sequence[Partition], timestamp: str) -> list[dict[str, object]]:
    return [
        {
            "partition": partition.number,
            **_offset_at(partition.log, timestamp),
            "log_id": partition.log.reader.log_id,
        }
        for partition in partitions
    ]


def _offset_at(log: Log, timestamp: str) -> dict[str, object]:
    marks = log.watermarks
    if timestamp == "earliest":
        return _found(TimestampAndOffset(-1, marks.log_start_offset, log.reader.leader_epoch))
    if timestamp == "latest":
        return _found(TimestampAndOffset(-1, marks.high_watermark, log.reader.leader_epoch))
    if timestamp == "max_timestamp":
        return _found(log.reader.max_timestamp())
    time_ms = int(timestamp)
    if time_ms > INT64_MAX:
        raise MalformedRequest("timestamp does not fit in 64 bits", parameter="timestamp")
    return _found(log.reader.offset_for_time(time_ms))


def _found(found: TimestampAndOffset | None) -> dict[str, object]:
    if found is None:
        return {"offset": None, "timestamp": None, "leader_epoch": None}
    return {
        "offset": found.offset,
        "timestamp": None if found.timestamp < 0 else found.timestamp,
        "leader_epoch": found.leader_epoch,
    }
