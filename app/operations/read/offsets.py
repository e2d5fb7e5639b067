"""Offsets of logs, and look-ups by time."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from app.codecs.receipts import offsets_body, offsets_headers, shown_marks, to_json
from app.errors import MalformedRequest
from app.http.answers import Answer, Headers, json_answer
from app.operations.exchange import Exchange
from app.store.port import Partition
from engine.state.watermarks import Watermarks
from engine.types import INT64_MAX, TimestampAndOffset


async def get_offsets(partition: Partition) -> Answer:
    """Return all offsets of a log, and the ETag for conditional appends."""
    await partition.refresh()
    return known_offsets(partition)


def known_offsets(partition: Partition) -> Answer:
    """Return what `get_offsets` does, with the offsets as they are known."""
    # The tag first: a tag older than the offsets can only make a condition fail, never succeed
    # for a log end that the client has not seen.
    tag = partition.tag
    marks = partition.watermarks
    headers: Headers = offsets_headers(partition, marks, tag)
    return json_answer(offsets_body(partition, marks), headers=headers)


async def get_offset_at(exchange: Exchange, partition: Partition, timestamp: str) -> Answer:
    """Return the offset of a time, or of a name for one."""
    await partition.refresh()
    tag = partition.tag
    found, marks = await _offset_at(exchange, partition, timestamp)
    return json_answer(to_json(found), headers=offsets_headers(partition, marks, tag))


async def get_topic_offsets(exchange: Exchange, topic: str, timestamp: str | None) -> Answer:
    """Return the offsets of all partitions, or their look-ups by time."""
    partitions = exchange.service.partitions(topic)
    await refresh_all(partitions)
    if timestamp is None:
        described = [_marks_of(partition) for partition in partitions]
    else:
        described = []
        for partition in partitions:
            found, marks = await _offset_at(exchange, partition, timestamp)
            log_id = partition.log_id_at(marks.leader_epoch)
            described.append({"partition": partition.number, **found, "log_id": log_id})
    return json_answer(to_json({"topic": topic, "partitions": described}))


async def refresh_all(partitions: Iterable[Partition]) -> None:
    """Bring the offsets of several logs up to date."""
    await asyncio.gather(*(partition.refresh() for partition in partitions))


def _marks_of(partition: Partition) -> dict[str, object]:
    marks = partition.watermarks
    return {
        "partition": partition.number,
        **shown_marks(marks),
        "leader_epoch": marks.leader_epoch,
        "recovery_point": partition.recovery_point,
        "log_id": partition.log_id_at(marks.leader_epoch),
    }


async def _offset_at(
    exchange: Exchange, partition: Partition, timestamp: str
) -> tuple[dict[str, object], Watermarks]:
    """Return the offset of a time, and the offsets of the log in which it was looked up."""
    while True:
        marks = partition.watermarks
        epoch = marks.leader_epoch
        if timestamp == "earliest":
            return _found(TimestampAndOffset(-1, marks.log_start_offset, epoch)), marks
        if timestamp == "latest":
            return _found(TimestampAndOffset(-1, marks.high_watermark, epoch)), marks
        if timestamp == "max_timestamp":
            found = await partition.max_timestamp(exchange.look_up)
        else:
            time_ms = int(timestamp)
            if time_ms > INT64_MAX:
                raise MalformedRequest("timestamp does not fit in 64 bits", parameter="timestamp")
            found = await partition.offset_for_time(time_ms, exchange.look_up)
        # The log may have been truncated before the look-up: then what was found is of another one.
        if partition.log_id == partition.log_id_at(epoch):
            return _found(found), marks


def _found(found: TimestampAndOffset | None) -> dict[str, object]:
    if found is None:
        return {"offset": None, "timestamp": None, "leader_epoch": None}
    return {
        "offset": found.offset,
        "timestamp": None if found.timestamp < 0 else found.timestamp,
        "leader_epoch": found.leader_epoch,
    }
