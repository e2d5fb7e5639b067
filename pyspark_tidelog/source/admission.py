"""How much of the log the next micro-batch takes: pure decisions, tested with plain numbers.

Mirrors `KafkaMicroBatchStream`: a limit is shared among the partitions in proportion to what waits
in each, and no partition with anything to read gets nothing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from pyspark_tidelog.errors import DataLossError
from pyspark_tidelog.positions import LogSnapshot, PartitionMarks, TopicPartition
from pyspark_tidelog.source.stream_offsets import StreamOffset


def next_offset(
    start: StreamOffset,
    target: LogSnapshot,
    *,
    fraction_of: Mapping[TopicPartition, float] | float = 1.0,
    fail_on_data_loss: bool = True,
) -> StreamOffset:
    """Return where the next micro-batch ends.

    `fraction_of` is how much of what waits is taken, from 0 to 1, at least one offset of each log
    that has any. A log that is new, or whose topic was made again, begins at its start. Raises
    DataLossError where records after `start` are gone and the query must not go on without them.
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
        fraction = fraction_of if isinstance(fraction_of, float) else fraction_of[log]
        taken = waiting if fraction >= 1 else min(max(1, math.floor(waiting * fraction)), waiting)
        # A truncated log goes on from its new end: the stream follows it down, with an empty range.
        offsets[log] = min(begin, marks.high_watermark) + taken
    return StreamOffset(offsets, initial, {**start.topic_ids, **target.topic_ids})


def waiting_offsets(start: StreamOffset, target: LogSnapshot) -> dict[TopicPartition, int]:
    """Return how many offsets of each log lie between `start` and the end of the log."""
    return {
        log: max(marks.end_offset - _place(start, target, log, marks), 0)
        for log, marks in target.marks.items()
    }


def fraction_for_rows(waiting: Mapping[TopicPartition, int], max_rows: int | None) -> float:
    """Return which part of what waits makes up `max_rows` offsets."""
    total = sum(waiting.values())
    return 1.0 if max_rows is None or total <= max_rows else max_rows / total


def fraction_for_bytes(
    waiting: Mapping[TopicPartition, int],
    target: LogSnapshot,
    size_bytes: Mapping[TopicPartition, int],
    max_bytes: int | None,
) -> float:
    """Return which part of what waits is about `max_bytes`, by the mean size of a record."""
    if max_bytes is None:
        return 1.0
    total = sum(
        count * size_bytes.get(log, 0) / _span(target.marks[log]) for log, count in waiting.items()
    )
    return 1.0 if total <= max_bytes else max_bytes / total


def _require_all(start: StreamOffset, target: LogSnapshot) -> None:
    """Raise DataLossError where a log of the checkpoint is not read any more."""
    for log in sorted(start.offsets.keys() - target.marks.keys()):
        raise DataLossError(
            f"{log.described} of the checkpoint was deleted or is not subscribed to any more: "
            f"set failOnDataLoss to false to go on without it"
        )


def _begin(
    start: StreamOffset, target: LogSnapshot, log: TopicPartition, *, fail_on_data_loss: bool
) -> int | None:
    """Return the offset of `start` in this log, or None where the log is a new one."""
    if _is_made_again(start, target, log.topic):
        if fail_on_data_loss:
            raise DataLossError(
                f"topic {log.topic} was deleted and made again since the last micro-batch: choose "
                f"a new checkpoint and sink, or set failOnDataLoss to false to read the new one"
            )
        return None
    begin = start.offsets.get(log)
    if begin is None or not fail_on_data_loss:
        return begin
    marks = target.marks[log]
    if begin < marks.log_start_offset:
        raise DataLossError(
            f"offsets {begin} to {marks.log_start_offset - 1} of {log.described} were deleted "
            f"before they were read: set failOnDataLoss to false to go on without them"
        )
    if begin > marks.high_watermark:
        raise DataLossError(
            f"{log.described} ends at offset {marks.high_watermark}, before offset {begin} of the "
            f"checkpoint: it was truncated; set failOnDataLoss to false to go on from its end"
        )
    return begin


def _is_made_again(start: StreamOffset, target: LogSnapshot, topic: str) -> bool:
    known, current = start.topic_ids.get(topic), target.topic_ids.get(topic)
    return bool(known) and bool(current) and known != current


def _place(
    start: StreamOffset, target: LogSnapshot, log: TopicPartition, marks: PartitionMarks
) -> int:
    if _is_made_again(start, target, log.topic):
        return marks.log_start_offset
    return max(start.offsets.get(log, marks.log_start_offset), marks.log_start_offset)


def _span(marks: PartitionMarks) -> int:
    return max(marks.high_watermark - marks.log_start_offset, 1)
