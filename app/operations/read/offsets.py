"""Where logs are: marks, and look-ups by time."""

from __future__ import annotations

from collections.abc import Sequence

from app.codecs.receipts import Place, offsets_body, offsets_headers, to_json
from app.http.answers import Answer, Headers, json_answer
from app.http.problems import MalformedRequest
from app.operations.service import Service
from engine.log.log import Log
from engine.types import INT64_MAX, TimestampAndOffset


def get_offsets(place: Place) -> Answer:
    """Return all marks of a log, and the tag that conditional appends take."""
    log = place.log
    # The tag first: one that is older than the marks can only make a condition fail, never hold
    # for an end of the log that the client has not seen.
    tag = log.reader.tag
    marks = log.watermarks
    headers: Headers = offsets_headers(place, marks, tag)
    body = offsets_body(log, marks, tag.leader_epoch)
    return json_answer(body, headers=headers)


async def get_offset_at(service: Service, place: Place, timestamp: str) -> Answer:
    """Return the offset that a time, or a name for one, stands for."""
    found = await service.workers.read(lambda: _offset_at(place.log, timestamp))
    tag = place.log.reader.tag
    return json_answer(to_json(found), headers=offsets_headers(place, place.log.watermarks, tag))


async def get_topic_offsets(service: Service, topic: str, timestamp: str | None) -> Answer:
    """Return the marks of all partitions, or their answers to a look-up by time."""
    places = service.places(topic)
    if timestamp is None:
        partitions = [_marks_of(place) for place in places]
    else:
        partitions = await service.workers.read(lambda: _offsets_at(places, timestamp))
    return json_answer(to_json({"topic": topic, "partitions": partitions}))


def _marks_of(place: Place) -> dict[str, object]:
    marks = place.log.watermarks
    return {
        "partition": place.partition,
        "log_start_offset": marks.log_start_offset,
        "high_watermark": marks.high_watermark,
        "last_stable_offset": marks.last_stable_offset,
        "log_end_offset": marks.log_end_offset,
        "leader_epoch": place.log.reader.leader_epoch,
        "recovery_point": place.log.durability.recovery_point,
        "log_id": place.log.reader.log_id,
    }


def _offsets_at(places: Sequence[Place], timestamp: str) -> list[dict[str, object]]:
    return [
        {
            "partition": place.partition,
            **_offset_at(place.log, timestamp),
            "log_id": place.log.reader.log_id,
        }
        for place in places
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
