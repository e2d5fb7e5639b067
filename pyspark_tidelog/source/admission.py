"""Admission control: how far the next micro-batch goes. Pure functions.

As in Spark's Kafka source (`KafkaMicroBatchStream`), a limit is shared among the partitions in
proportion to what waits in each, and every partition with records gets at least one offset.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from pyspark_tidelog.errors import DataLossError
from pyspark_tidelog.partitions import LogSnapshot, TopicPartition
from pyspark_tidelog.source.stream_offsets import StreamOffset


def next_offset(
    start: StreamOffset,
    target: LogSnapshot,
    *,
    fraction: float = 1.0,
    fail_on_data_loss: bool = True,
) -> StreamOffset:
    """Return where the next micro-batch ends.

    It takes `fraction` of what waits, at least one offset of each partition with any. A partition
    that is new, or whose topic was created again, begins at its log start. Raises DataLossError if
    records after `start` are gone, unless `fail_on_data_loss` is false.
    """
    offsets = dict(start.offsets)
    initial = dict(start.initial)
    if fail_on_data_loss:
        _require_all(start, target)
    for log, marks in target.marks.items():
        begin = _begin(start, target, log, fail_on_data_loss=fail_on_data_loss)
        if begin is None:
            begin = initial[log] = marks.log_start_offset
        waiting = max(marks.end_offset - begin, 0)
        taken = waiting if fraction >= 1 else min(max(1, math.floor(waiting * fraction)), waiting)
        # After a truncation the stream continues from the log's new end, with an empty range.
        offsets[log] = min(begin, marks.high_watermark) + taken
    return StreamOffset(offsets, initial, {**start.topic_ids, **target.topic_ids})


def waiting_offsets(start: StreamOffset, target: LogSnapshot) -> dict[TopicPartition, int]:
    """Return how many offsets of each partition lie between `start` and the end of the log."""
    waiting: dict[TopicPartition, int] = {}
    for log, marks in target.marks.items():
        begin = marks.log_start_offset
        if not _is_created_again(start, target, log.topic):
            begin = max(start.offsets.get(log, begin), begin)
        waiting[log] = max(marks.end_offset - begin, 0)
    return waiting


def waiting_bytes(
    waiting: Mapping[TopicPartition, int],
    target: LogSnapshot,
    size_bytes: Mapping[TopicPartition, int],
) -> float:
    """Estimate the size of the waiting offsets from the mean size of a record."""
    total = 0.0
    for log, count in waiting.items():
        marks = target.marks[log]
        span = max(marks.high_watermark - marks.log_start_offset, 1)
        total += count * size_bytes.get(log, 0) / span
    return total


def fraction_for(limit: int | None, waiting: float) -> float:
    """Return the fraction of what waits that the limit allows."""
    return 1.0 if limit is None or waiting <= limit else limit / waiting


def _require_all(start: StreamOffset, target: LogSnapshot) -> None:
    """Raise DataLossError if a partition of the checkpoint is no longer read."""
    for log in sorted(start.offsets.keys() - target.marks.keys()):
        raise DataLossError(
            f"{log.described} of the checkpoint was deleted or is no longer subscribed to: "
            f"set failOnDataLoss to false to continue without it"
        )


def _begin(
    start: StreamOffset, target: LogSnapshot, log: TopicPartition, *, fail_on_data_loss: bool
) -> int | None:
    """Return the partition's offset in `start`, or None if the partition is new."""
    if _is_created_again(start, target, log.topic):
        if fail_on_data_loss:
            raise DataLossError(
                f"topic {log.topic} was deleted and created again since the last micro-batch: "
                f"choose a new checkpoint and sink, or set failOnDataLoss to false to read the new "
                f"topic"
            )
        return None
    begin = start.offsets.get(log)
    if begin is None or not fail_on_data_loss:
        return begin
    marks = target.marks[log]
    if begin < marks.log_start_offset:
        raise DataLossError(
            f"offsets {begin} to {marks.log_start_offset - 1} of {log.described} were deleted "
            f"before they were read: set failOnDataLoss to false to continue without them"
        )
    if begin > marks.high_watermark:
        raise DataLossError(
            f"{log.described} ends at offset {marks.high_watermark}, before offset {begin} of the "
            f"checkpoint: it was truncated; set failOnDataLoss to false to continue from its end"
        )
    return begin


def _is_created_again(start: StreamOffset, target: LogSnapshot, topic: str) -> bool:
    known, current = start.topic_ids.get(topic), target.topic_ids.get(topic)
    return bool(known) and bool(current) and known != current
