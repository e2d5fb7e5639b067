"""The stream reader: micro-batches of the log, each planned once and repeatable.

On the driver one instance lives as long as the query, in a process of its own; `read` runs on
pickled copies that have seen none of its calls. Spark never calls `commit` for the last micro-batch
and often never calls `stop`, so nothing depends on them.
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
from pyspark_tidelog.positions import LATEST, LogSnapshot
from pyspark_tidelog.source.admission import (
    fraction_for_bytes,
    fraction_for_rows,
    next_offset,
    waiting_offsets,
)
from pyspark_tidelog.source.fetch import read_split
from pyspark_tidelog.source.options import Options
from pyspark_tidelog.source.service import resolve, size_bytes_of, snapshot_of
from pyspark_tidelog.source.splits import Split
from pyspark_tidelog.source.stream_offsets import StreamOffset, ranges_between
from pyspark_tidelog.source.tasks import plan_tasks


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
        """Leave the connection behind: a copy is for reading, and makes its own."""
        return {**self.__dict__, "_client": None}

    def initialOffset(self) -> dict[str, Any]:
        """Return where a new query begins: the same at every call, for Spark asks twice."""
        if self._initial is None:
            seen = self._snapshot()  # whatever the target forgives, a new query names what is there
            # AvailableNow fixes its target first: a beginning beyond it would look like a log that
            # shrank.
            client, snapshot = self._connected(), self._target or seen
            starts = resolve(client, self._options.starting or LATEST, "startingOffsets", snapshot)
            self._initial = StreamOffset.beginning_at(starts, snapshot.topic_ids)
        return self._initial.to_json()

    def getDefaultReadLimit(self) -> ReadLimit:
        """Tell Spark of one limit; it knows no pair, so `latestOffset` looks at both itself."""
        options = self._options
        if options.max_offsets_per_trigger is not None:
            return ReadMaxRows(options.max_offsets_per_trigger)
        if options.max_bytes_per_trigger is not None:
            return ReadMaxBytes(options.max_bytes_per_trigger)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        """Fix what now means: the query ends when everything there at this moment is read."""
        self._target = self._snapshot(allow_missing=not self._options.fail_on_data_loss)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Return where the next micro-batch ends; `start` itself where there is nothing to read."""
        self._latest = self._snapshot(allow_missing=not self._options.fail_on_data_loss)
        target = self._target or self._latest
        begin = StreamOffset.from_json(start)
        fraction = 1.0 if isinstance(limit, ReadAllAvailable) else self._fraction(begin, target)
        end = next_offset(
            begin, target, fraction_of=fraction, fail_on_data_loss=self._options.fail_on_data_loss
        )
        return end.to_json()

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """Return the end of the log as last seen; less the progress, this is the lag."""
        if self._latest is None:
            return None
        ends = {log: marks.end_offset for log, marks in self._latest.marks.items()}
        return StreamOffset.beginning_at(ends, self._latest.topic_ids).to_json()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Return a task per range of the micro-batch, the same however often it is repeated."""
        ranges = ranges_between(StreamOffset.from_json(start), StreamOffset.from_json(end))
        return plan_tasks(self._connected(), ranges, self._options)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the records of one task."""
        if isinstance(partition, Split):
            yield from read_split(self._options, self._columns, partition)

    def commit(self, end: dict[str, Any]) -> None:
        """Nothing: the checkpoint is where progress is kept."""

    def stop(self) -> None:
        """Give the connection back."""
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
        """Return which part of what waits the limits allow, the smaller of the two."""
        options = self._options
        waiting = waiting_offsets(begin, target)
        fraction = fraction_for_rows(waiting, options.max_offsets_per_trigger)
        if options.max_bytes_per_trigger is None or not any(waiting.values()):
            return fraction
        sizes = size_bytes_of(self._connected(), sorted({log.topic for log in target.marks}))
        return min(
            fraction, fraction_for_bytes(waiting, target, sizes, options.max_bytes_per_trigger)
        )
