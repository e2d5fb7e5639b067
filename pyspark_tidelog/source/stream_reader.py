"""The reader of streaming queries: micro-batches that can be repeated.

On the driver one instance lives as long as the query. `read` runs on pickled copies of it, in other
processes. Spark never calls `commit` for the last micro-batch and often never calls `stop`, so
nothing depends on these calls.
"""

# ruff: noqa: N802 -- the names of methods are PySpark's

from __future__ import annotations

from collections.abc import Iterator, Sequence
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
from pyspark_tidelog.partitions import LogSnapshot
from pyspark_tidelog.source.admission import (
    fraction_for,
    next_offset,
    waiting_bytes,
    waiting_offsets,
)
from pyspark_tidelog.source.fetch import read_ranges
from pyspark_tidelog.source.options import Options
from pyspark_tidelog.source.positions import LATEST
from pyspark_tidelog.source.service import resolve, size_bytes_of, snapshot_of
from pyspark_tidelog.source.stream_offsets import StreamOffset, ranges_between
from pyspark_tidelog.source.tasks import plan_tasks, ranges_of


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
