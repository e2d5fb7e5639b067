"""The reader of streaming queries: micro-batches that can be repeated.

On the driver one instance lives as long as the query. `read` runs on pickled copies of it, in other
processes. Spark never calls `commit` for the last micro-batch and often never calls `stop`, so
nothing depends on these calls.

As in Spark's Kafka source (`KafkaMicroBatchStream`), a limit is shared among the partitions in
proportion to what waits in each, and every partition with records gets at least one offset.
"""

# ruff: noqa: N802 -- the names of methods are PySpark's

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from pyspark_tidelog.client import ServiceClient
from pyspark_tidelog.errors import DataLossError
from pyspark_tidelog.partitions import LogSnapshot, TopicPartition
from pyspark_tidelog.source.fetch import read_ranges
from pyspark_tidelog.source.options import Options
from pyspark_tidelog.source.positions import LATEST
from pyspark_tidelog.source.service import resolve, size_bytes_of, snapshot_of
from pyspark_tidelog.source.stream_offsets import StreamOffset, ranges_between
from pyspark_tidelog.source.tasks import plan_tasks, ranges_of


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


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans micro-batches on the driver; reads them on the executors."""

    def __init__(self, options: Options, columns: Sequence[str]) -> None:
        self._options = options
        self._columns = tuple(columns)
        self._initial: StreamOffset | None = None
        self._target: LogSnapshot | None = None
        self._latest: LogSnapshot | None = None
        self._client: ServiceClient | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Leave the connection out: a copy on an executor opens its own."""
        return {**self.__dict__, "_client": None}

    def initialOffset(self) -> dict[str, Any]:
        """Return where a new query begins; the same at every call, because Spark asks twice."""
        if self._initial is None:
            # A missing topic is an error for a new query, even if failOnDataLoss is false.
            seen = self._snapshot()
            # AvailableNow fixes its target first. A start after it would look like a truncated log.
            client, snapshot = self._connected(), self._target or seen
            starts = resolve(client, self._options.starting or LATEST, "startingOffsets", snapshot)
            self._initial = StreamOffset.beginning_at(starts, snapshot.topic_ids)
        return self._initial.to_json()

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return one limit. Spark knows no pair, so `latestOffset` applies both itself."""
        options = self._options
        if options.max_offsets_per_trigger is not None:
            return ReadMaxRows(options.max_offsets_per_trigger)
        if options.max_bytes_per_trigger is not None:
            return ReadMaxBytes(options.max_bytes_per_trigger)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        """Fix the target: the query ends when everything written before this call is read."""
        self._target = self._snapshot(allow_missing=not self._options.fail_on_data_loss)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Return where the next micro-batch ends; `start` itself if there is nothing to read."""
        self._latest = self._snapshot(allow_missing=not self._options.fail_on_data_loss)
        target = self._target or self._latest
        begin = StreamOffset.from_json(start)
        fraction = 1.0 if isinstance(limit, ReadAllAvailable) else self._fraction(begin, target)
        end = next_offset(
            begin, target, fraction=fraction, fail_on_data_loss=self._options.fail_on_data_loss
        )
        return end.to_json()

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """Return the end of the log as last seen, from which Spark's progress computes the lag."""
        if self._latest is None:
            return None
        ends = {log: marks.end_offset for log, marks in self._latest.marks.items()}
        return StreamOffset.beginning_at(ends, self._latest.topic_ids).to_json()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Return the tasks of a micro-batch, the same if it is repeated."""
        ranges = ranges_between(StreamOffset.from_json(start), StreamOffset.from_json(end))
        return plan_tasks(self._connected(), ranges, self._options)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the records of one task."""
        yield from read_ranges(self._options, self._columns, ranges_of(partition))

    def commit(self, end: dict[str, Any]) -> None:
        """Do nothing: Spark's checkpoint holds the progress."""

    def stop(self) -> None:
        """Close the connection."""
        if self._client is not None:
            self._client.close()

    def _connected(self) -> ServiceClient:
        if self._client is None:
            self._client = ServiceClient(self._options.endpoint)
        return self._client

    def _snapshot(self, *, allow_missing: bool = False) -> LogSnapshot:
        return snapshot_of(
            self._connected(),
            self._options.topics,
            isolation=self._options.isolation,
            allow_missing=allow_missing,
        )

    def _fraction(self, begin: StreamOffset, target: LogSnapshot) -> float:
        """Return the fraction of the waiting records that both limits allow."""
        max_bytes = self._options.max_bytes_per_trigger
        waiting = waiting_offsets(begin, target)
        fraction = fraction_for(self._options.max_offsets_per_trigger, sum(waiting.values()))
        if max_bytes is None or not any(waiting.values()):
            return fraction
        sizes = size_bytes_of(self._connected(), sorted({log.topic for log in target.marks}))
        return min(fraction, fraction_for(max_bytes, waiting_bytes(waiting, target, sizes)))
