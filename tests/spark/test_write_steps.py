"""A write that dies at any of its requests, and is run again: readers see each row once.

Without Spark: what its driver and its tasks would call is called here, in its order, so that every
single step can be the last one. `test_write_crashes.py` kills real processes.
"""

from __future__ import annotations

import itertools
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark.sql.types import BinaryType, StructField, StructType

from pyspark_tidelog.client import ServiceClient
from pyspark_tidelog.endpoint import Endpoint
from pyspark_tidelog.errors import DataLossError, OptionError, TidelogError
from pyspark_tidelog.sink.ledger import GROUP_PREFIX
from pyspark_tidelog.sink.options import WriteOptions
from pyspark_tidelog.sink.transactions import abort_abandoned
from pyspark_tidelog.sink.writer import BatchWriter, TaskResult

if TYPE_CHECKING:
    from tests.spark.conftest import ServiceProcess

SCHEMA = StructType([StructField("key", BinaryType()), StructField("value", BinaryType())])


class Killed(BaseException):
    """The process is gone: nothing of it runs any more."""


class Life:
    """How many requests a process makes: after the last one it is killed before the response."""

    def __init__(self, requests: float) -> None:
        self._left = requests
        self._lock = threading.Lock()
        self.was_long_enough = True

    def request(self, send: Callable[[], Any]) -> Any:
        with self._lock:
            self._left -= 1
            left = self._left
        if left > 0:
            return send()
        self.was_long_enough = False
        if left == 0:
            send()
        raise Killed


@contextmanager
def living(requests: float) -> Iterator[Life]:
    """Let everything in this process that asks a service die after some requests."""
    life = Life(requests)
    send = ServiceClient.send
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            ServiceClient,
            "send",
            lambda *given, **named: life.request(lambda: send(*given, **named)),
        )
        yield life


def rows(*names: str) -> list[pa.RecordBatch]:
    texts = [name.encode() for name in names]
    return [pa.record_batch({"key": pa.array(texts), "value": pa.array(texts)})]


def writer_of(
    tidelog: ServiceProcess, topic: str, write_id: str | None, **more: Any
) -> BatchWriter:
    options = WriteOptions(Endpoint(tidelog.url), topic, write_id=write_id, **more)
    return BatchWriter(options, SCHEMA, overwrite=False)


def run(tidelog: ServiceProcess, topic: str, write_id: str | None) -> None:
    """Write a batch as Spark does: two tasks, one of them twice, and a commit of three attempts."""
    writer = writer_of(tidelog, topic, write_id)
    first = writer.write(iter(rows(f"{write_id}/a", f"{write_id}/b", f"{write_id}/c")))
    writer.write(iter(rows(f"{write_id}/d", f"{write_id}/e")))  # not fast enough: speculation won
    second = writer.write(iter(rows(f"{write_id}/d", f"{write_id}/e")))
    writer.commit([first, second])


def page(tidelog: ServiceProcess, topic: str, partition: int, isolation: str) -> dict[str, Any]:
    path = f"/v1/topics/{topic}/partitions/{partition}/records?isolation={isolation}"
    document: dict[str, Any] = tidelog.call("GET", path + "&max_bytes=100000000")
    return document


def seen(tidelog: ServiceProcess, topic: str, isolation: str = "read_committed") -> list[str]:
    pages = [page(tidelog, topic, number, isolation) for number in range(2)]
    return sorted(record["key"] for document in pages for record in document["records"])


def has_open_transaction(tidelog: ServiceProcess, topic: str) -> bool:
    marks = tidelog.call("GET", f"/v1/topics/{topic}/offsets")["partitions"]
    return any(one["last_stable_offset"] < one["log_end_offset"] for one in marks)


def whole(write_id: str) -> list[str]:
    return [f"{write_id}/{name}" for name in "abcde"]


def test_a_write_that_dies_at_any_request_is_whole_once_it_is_run_again(
    tidelog: ServiceProcess, topic: str
) -> None:
    """Each request of driver and tasks is the last one once; the next run makes good, alone."""
    expected: list[str] = []
    for requests in itertools.count(1):
        write_id = f"dies-at-{requests}-{topic}"
        with living(requests) as life:
            try:
                run(tidelog, topic, write_id)
            except Killed:
                assert not life.was_long_enough
        run(tidelog, topic, write_id)
        expected += whole(write_id)
        assert not has_open_transaction(tidelog, topic), "or readers of committed records wait"
        if life.was_long_enough:
            break
    assert requests > 20, "the ledger alone is asked that often"
    assert seen(tidelog, topic) == sorted(expected)


def test_readers_of_what_is_committed_see_nothing_before_the_commit(
    tidelog: ServiceProcess, topic: str
) -> None:
    """The records are in the log; only the driver's commit shows them, all attempts of it."""
    writer = writer_of(tidelog, topic, None)
    results = [writer.write(iter(rows("a", "b"))), writer.write(iter(rows("c")))]
    assert seen(tidelog, topic) == []
    assert seen(tidelog, topic, "read_uncommitted") == ["a", "b", "c"]
    writer.commit(results)
    assert seen(tidelog, topic) == ["a", "b", "c"]


def test_an_abort_leaves_nothing_open_and_nothing_behind(
    tidelog: ServiceProcess, topic: str
) -> None:
    """Neither of attempts that reported their result nor of those killed before; nor a cursor."""
    writer = writer_of(tidelog, topic, None)
    told = writer.write(iter(rows("a", "b", "c")))
    writer.write(iter(rows("d", "e", "f")))
    writer.abort([told, None])
    assert seen(tidelog, topic) == []
    assert not has_open_transaction(tidelog, topic)
    groups = tidelog.call("GET", "/v1/groups")["groups"]
    assert GROUP_PREFIX + told.write_id not in groups


def test_an_abort_does_not_undo_a_decision(tidelog: ServiceProcess, topic: str) -> None:
    """Spark aborts a write whose commit failed: what was decided stays so, and is carried out."""
    writer = writer_of(tidelog, topic, f"decided-{topic}")
    results = [writer.write(iter(rows("a", "b", "c")))]
    with living(3), pytest.raises(Killed):
        writer.commit(results)  # cursor, entries, decision: dead before the first marker
    writer.abort(results)
    assert has_open_transaction(tidelog, topic)
    writer.commit([])
    assert seen(tidelog, topic) == ["a", "b", "c"]


def test_an_abort_that_fails_is_left_to_whoever_writes_next(
    tidelog: ServiceProcess, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    """It is only logged: the error to report is the one of the write."""
    write_id = f"again-{topic}"
    writer = writer_of(tidelog, topic, write_id)
    told = writer.write(iter(rows("a", "b", "c")))
    nowhere = WriteOptions(Endpoint("http://127.0.0.1:1", retries=0), topic, write_id=write_id)
    BatchWriter(nowhere, SCHEMA, overwrite=False).abort([told])
    assert "of a failed write stay open for now: no response from http://127.0.0.1:1" in caplog.text
    assert has_open_transaction(tidelog, topic)
    run(tidelog, topic, write_id)
    assert seen(tidelog, topic) == whole(write_id)
    assert not has_open_transaction(tidelog, topic)


def test_a_transaction_that_somebody_aborts_after_the_decision_is_told(
    tidelog: ServiceProcess, topic: str
) -> None:
    """Never silent: the commit fails with the partition and the offset."""
    writer = writer_of(tidelog, topic, f"lost-{topic}")
    result = writer.write(iter(rows("a")))
    assert result.attempt is not None
    (log,) = result.attempt.first_offsets
    marker = {"producer_id": result.attempt.producer.producer_id, "producer_epoch": 0}
    tidelog.call(
        "POST",
        f"/v1/topics/{topic}/partitions/{log.partition}/transactions",
        json.dumps({**marker, "action": "abort"}).encode(),
        {"Content-Type": "application/json"},
    )
    with pytest.raises(
        DataLossError, match=rf"partition {log.partition}, from offset 0 on, was ab"
    ):
        writer.commit([result])


def test_a_task_that_fails_aborts_what_it_wrote(tidelog: ServiceProcess, topic: str) -> None:
    """At once, not when the driver comes to it: its error goes on to Spark."""

    def failing() -> Iterator[pa.RecordBatch]:
        large = b"x" * (5 << 20)  # sent before the next rows are asked for
        yield pa.record_batch(
            {"key": pa.array([b"a"] * 10), "value": pa.array([large[:600_000]] * 10)}
        )
        raise ValueError("no more rows")

    writer = writer_of(tidelog, topic, f"fails-{topic}")
    with pytest.raises(ValueError, match="no more rows"):
        writer.write(failing())
    assert len(seen(tidelog, topic, "read_uncommitted")) > 0, "some had been written"
    assert not has_open_transaction(tidelog, topic)
    assert seen(tidelog, topic) == []


def test_a_task_without_rows_asks_for_no_producer(tidelog: ServiceProcess, topic: str) -> None:
    """Empty partitions are many in Spark, and cost one question."""
    writer = writer_of(tidelog, topic, f"empty-{topic}")
    first = writer.write(iter(rows("a")))
    with living(1.5):
        assert writer.write(iter(())) == TaskResult(f"empty-{topic}", None)
    writer.commit([first])
    assert seen(tidelog, topic) == ["a"]


def test_a_topic_or_a_partition_that_is_not_there_is_told_by_name(
    tidelog: ServiceProcess, topic: str
) -> None:
    """Before anything is written to it."""
    with pytest.raises(OptionError, match="the service has no topic nowhere: create it first"):
        writer_of(tidelog, "nowhere", None).write(iter(rows("a")))
    batch = pa.record_batch({"value": pa.array([b"a"]), "partition": pa.array([2], pa.int32())})
    with pytest.raises(TidelogError, match="has no partition 2: column partition must be 0 to 1"):
        writer_of(tidelog, topic, None).write(iter([batch]))
    assert seen(tidelog, topic, "read_uncommitted") == []


def test_what_nobody_comes_back_for_is_aborted_after_a_day(
    tidelog: ServiceProcess, topic: str
) -> None:
    """By the next writer.

    Decided transactions wait for their writer, younger ones for their day.
    """
    ledger = f"{topic}-ledger"
    decided = writer_of(tidelog, topic, f"decided-{topic}", ledger=ledger)
    results = [decided.write(iter(rows("a", "b", "c")))]
    with living(3), pytest.raises(Killed):
        decided.commit(results)
    writer_of(tidelog, topic, None, ledger=ledger).write(iter(rows("d", "e", "f")))
    endpoint = Endpoint(tidelog.url)
    abort_abandoned(endpoint, ledger)
    assert len(open_producers(tidelog, topic)) == 2, "both are a moment old"
    abort_abandoned(endpoint, ledger, after_ms=-1000)
    assert results[0].attempt is not None
    assert open_producers(tidelog, topic) == {results[0].attempt.producer.producer_id}
    abort_abandoned(endpoint, ledger, after_ms=-1000)
    decided.commit([])
    assert seen(tidelog, topic) == ["a", "b", "c"]
    assert not has_open_transaction(tidelog, topic)


def open_producers(tidelog: ServiceProcess, topic: str) -> set[int]:
    pages = [
        tidelog.call("GET", f"/v1/topics/{topic}/partitions/{number}/producers")["producers"]
        for number in range(2)
    ]
    return {
        one["producer_id"]
        for page in pages
        for one in page
        if one["current_txn_start_offset"] is not None
    }
