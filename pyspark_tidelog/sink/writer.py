"""The writers of `df.write` and `df.writeStream`: readers of committed records see each row once.

A task attempt writes transactions under a producer id of its own (`attempt`). The driver decides
which attempts count, records that in the ledger, and carries it out (`ledger`, `transactions`). So
retried and speculative attempts, killed executors and a driver that dies at any step leave nothing
that a reader with `isolation.level=read_committed` sees twice or not at all.

Spark creates a writer for each write or micro-batch, pickles it to the tasks, and calls `commit` or
`abort` on another copy in another process. So writers keep no state but their arguments.

The columns are those of Spark's Kafka sink, and `timestamp`. `value` is required; `key`, `headers`,
`topic`, `partition` and `timestamp` are optional. Strings are encoded as UTF-8. `offset` and
`timestampType` are ignored, so that what was read can be written; every other column is refused.
"""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from pyspark_tidelog.client import ServiceClient
from pyspark_tidelog.errors import OptionError, TidelogError
from pyspark_tidelog.records.columns import HEADERS
from pyspark_tidelog.records.encode import encode_headers
from pyspark_tidelog.records.varints import Int64s
from pyspark_tidelog.sink.attempt import WritingAttempt
from pyspark_tidelog.sink.ledger import Attempt, Decision, Entries, Ledger
from pyspark_tidelog.sink.options import WriteOptions
from pyspark_tidelog.sink.transactions import abort_abandoned, abort_all, commit_all

_HEADERS_TYPE: Final = "array<struct<key:string,value:binary>>"
_ALLOWED: Final[dict[str, tuple[str, ...]]] = {
    "key": ("binary", "string"),
    "value": ("binary", "string"),
    HEADERS: (_HEADERS_TYPE,),
    "topic": ("string",),
    "partition": ("int",),
    "timestamp": ("timestamp",),
}
_IGNORED: Final = frozenset({"offset", "timestampType"})


def ensure_writable(schema: StructType, *, has_topic: bool) -> None:
    """Raise OptionError for columns that cannot be written."""
    for field in schema.fields:
        if field.name in _IGNORED:
            continue
        allowed = _ALLOWED.get(field.name)
        if allowed is None:
            raise OptionError(
                f"column {field.name} cannot be written: rename or drop it; "
                f"written are {', '.join(_ALLOWED)}"
            )
        if field.dataType.simpleString() not in allowed:
            raise OptionError(
                f"column {field.name} must be {' or '.join(allowed)}, "
                f"not {field.dataType.simpleString()}"
            )
    if "value" not in schema.fieldNames():
        raise OptionError("a column value is required")
    if not has_topic and "topic" not in schema.fieldNames():
        raise OptionError("no topic is given: set the option topic, or write a column topic")


def records_of(batch: pa.RecordBatch, topic: str | None) -> pa.RecordBatch:
    """Return the records of a batch of rows, with the columns `topic` and `partition` as well.

    `topic` takes precedence over the column. `partition` is null if the key decides. Raises
    TidelogError for a row that cannot be a record.
    """
    names, count = batch.schema.names, batch.num_rows
    if topic is None and batch["topic"].null_count:
        raise TidelogError(
            "column topic is null in a row: set the option topic, or filter such rows out"
        )
    columns = {
        "key": _binary(batch["key"]) if "key" in names else pa.nulls(count, pa.binary()),
        "value": _binary(batch["value"]),
        "timestamp": _times(batch),
        "topic": pa.repeat(topic, count) if topic is not None else batch["topic"],
        "partition": batch["partition"] if "partition" in names else pa.nulls(count, pa.int32()),
    }
    if HEADERS in names and pc.any(pc.greater(pc.list_value_length(batch[HEADERS]), 0)).as_py():
        headers = [encode_headers(pairs) for pairs in batch[HEADERS].to_pylist()]
        columns[HEADERS] = pa.array(headers, pa.binary())
    return pa.record_batch(columns)


def _binary(array: pa.Array) -> pa.Array:
    return array if array.type == pa.binary() else array.cast(pa.binary())


def _times(batch: pa.RecordBatch) -> pa.Array:
    """Return milliseconds; a row without a timestamp gets the current time."""
    now_ms = time.time_ns() // 1_000_000
    if "timestamp" not in batch.schema.names:
        return pa.repeat(pa.scalar(now_ms, pa.int64()), batch.num_rows)
    micros: Int64s = pc.fill_null(batch["timestamp"].cast(pa.int64()), now_ms * 1000).to_numpy()
    return pa.array(micros // 1000)


_LOGGER: Final = logging.getLogger(__name__)

# A task collects Spark's batches up to this size before it sends them.
_BUFFER_BYTES: Final = 4 << 20

# The local properties in which Spark gives a micro-batch's tasks their query and batch.
_QUERY_ID: Final = "sql.streaming.queryId"
_BATCH_ID: Final = "streaming.sql.batchId"

_ONLY_BATCH: Final = 0

# A look for abandoned transactions takes a few requests, and they are abandoned after a day.
_BATCHES_PER_SWEEP: Final = 500


@dataclass(frozen=True, slots=True)
class TaskResult(WriterCommitMessage):
    """The message of a task attempt to the driver."""

    write_id: str
    attempt: Attempt | None
    """None if the task wrote nothing, or its batch was settled before."""


class BatchWriter(DataSourceArrowWriter):
    """`df.write.format("tidelog").mode("append")`, with or without a `writeId`."""

    def __init__(self, options: WriteOptions, schema: StructType, *, overwrite: bool) -> None:
        _refuse(schema, options, overwrite=overwrite)
        self._options = options
        self._write_id = options.write_id or str(uuid.uuid4())

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskResult:
        """Append the rows of one task; runs on an executor."""
        return _write(self._options, iterator, self._write_id, _ONLY_BATCH)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Commit what the tasks wrote."""
        _commit(self._options, self._write_id, _ONLY_BATCH, _results(messages))
        self._forget()

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:  # noqa: ARG002 the ledger knows more
        """Abort what any task wrote, unless the decision was to commit it."""
        with _failure_logged():
            if _abort(self._options, self._write_id, _ONLY_BATCH):
                self._forget()

    def _forget(self) -> None:
        if self._options.write_id is None:
            with ServiceClient(self._options.endpoint) as client:
                Ledger(client, self._options.ledger, self._write_id).forget()


class StreamWriter(DataSourceStreamArrowWriter):
    """`df.writeStream.format("tidelog")`: each micro-batch once, even if Spark repeats it."""

    def __init__(self, options: WriteOptions, schema: StructType, *, overwrite: bool) -> None:
        _refuse(schema, options, overwrite=overwrite)
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskResult:
        """Append the rows of one task; runs on an executor."""
        context = TaskContext.get()
        assert context is not None, "write runs in a task"
        query_id = context.getLocalProperty(_QUERY_ID)
        batch_id = context.getLocalProperty(_BATCH_ID)
        if query_id is None or batch_id is None:
            raise TidelogError("Spark does not give this task the ids of its query and batch")
        return _write(self._options, iterator, query_id, int(batch_id))

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 PySpark's
        """Commit a micro-batch, or carry out the decision that an earlier run recorded."""
        results = _results(messages)
        for write_id in {result.write_id for result in results}:
            _commit(self._options, write_id, batchId, results)

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 PySpark's
        """Abort what the tasks of a micro-batch wrote, unless the decision was to commit it.

        If no task has sent a message, the query's id is unknown, and the next run of the batch
        aborts it.
        """
        with _failure_logged():
            for write_id in {result.write_id for result in _results(messages)}:
                _abort(self._options, write_id, batchId)


@contextmanager
def _failure_logged() -> Iterator[None]:
    """Log a failed abort: the ledger knows what is open, and the next writer ends it.

    If an abort raised an error, Spark would report it instead of the failure of the write.
    """
    try:
        yield
    except TidelogError as trouble:
        _LOGGER.warning("transactions of a failed write stay open for now: %s", trouble)


def _refuse(schema: StructType, options: WriteOptions, *, overwrite: bool) -> None:
    """Raise OptionError for an overwrite, and for columns that cannot be written."""
    if overwrite:
        raise OptionError(
            "a log is appended to, never overwritten: use the mode append, "
            "or for a stream the output mode append or update"
        )
    ensure_writable(schema, has_topic=options.topic is not None)


def _results(messages: Sequence[WriterCommitMessage | None]) -> list[TaskResult]:
    return [message for message in messages if isinstance(message, TaskResult)]


def _write(
    options: WriteOptions, iterator: Iterator[pa.RecordBatch], write_id: str, batch: int
) -> TaskResult:
    with ServiceClient(options.endpoint.for_executor()) as client:
        ledger = Ledger(client, options.ledger, write_id)
        if ledger.cursor().batch >= batch:
            return TaskResult(write_id, None)
        attempt = WritingAttempt(client, ledger, codec=options.compression)
        try:
            for rows in _buffered(iterator):
                attempt.write(records_of(rows, options.topic))
            return TaskResult(write_id, attempt.finish())
        except BaseException as error:
            try:
                attempt.give_up()
            except TidelogError as trouble:  # the driver finds the attempt in the ledger
                error.add_note(f"its transactions stay open for now: {trouble}")
            raise


def _buffered(iterator: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield fewer and larger batches, because each costs a request per partition or more."""
    held: list[pa.RecordBatch] = []
    for batch in iterator:
        held.append(batch)
        if sum(one.nbytes for one in held) >= _BUFFER_BYTES:
            yield pa.concat_batches(held)
            held = []
    if held:
        yield pa.concat_batches(held)


def _commit(
    options: WriteOptions, write_id: str, batch: int, results: Sequence[TaskResult]
) -> None:
    """Decide on a batch, unless that was done before, and carry the decision out."""
    attempts = [result.attempt for result in results if result.attempt is not None]
    with ServiceClient(options.endpoint) as client:
        ledger = Ledger(client, options.ledger, write_id)
        cursor = ledger.cursor()
        entries = ledger.entries(cursor.offset)
        if cursor.batch >= batch:
            _abort_others(options, entries, ())
            return
        if (write_id, batch) not in entries.decisions:
            ledger.decide(batch, attempts)
            entries = ledger.entries(cursor.offset)
        decision = entries.decisions[write_id, batch]
        commit_all(options.endpoint, decision.attempts)
        _abort_others(options, entries, (decision,))
        ledger.settle(decision)
    if batch % _BATCHES_PER_SWEEP == 0:
        abort_abandoned(options.endpoint, options.ledger)


def _abort(options: WriteOptions, write_id: str, batch: int) -> bool:
    """Abort every attempt of a batch; return False if the decision was to commit it."""
    with ServiceClient(options.endpoint) as client:
        ledger = Ledger(client, options.ledger, write_id)
        cursor = ledger.cursor()
        entries = ledger.entries(cursor.offset)
        if (write_id, batch) in entries.decisions:
            return False
        _abort_others(options, entries, ())
        return True


def _abort_others(options: WriteOptions, entries: Entries, decided: Sequence[Decision]) -> None:
    """Abort every attempt that began and is not in a decision."""
    accepted = {one.producer for decision in decided for one in decision.attempts}
    rest = [(p, sorted(topics)) for p, topics in entries.begun.items() if p not in accepted]
    abort_all(options.endpoint, rest)
