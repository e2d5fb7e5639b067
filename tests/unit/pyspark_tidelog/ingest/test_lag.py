"""The lag of a job, from Spark's reports and the age of the next record."""

from __future__ import annotations

import json
from functools import partial
from types import SimpleNamespace
from typing import Any

from pyspark_tidelog.ingest.progress import Lag, LagMeter
from pyspark_tidelog.partitions import TopicPartition
from pyspark_tidelog.source.options import Options
from pyspark_tidelog.source.stream_offsets import StreamOffset
from tests.support.kafka_batches import SentRecord
from tests.support.log_service import LogService, Reply

NOW_S = 1_788_000_100.0


def report(end: tuple[int, int] | None, latest: tuple[int, int]) -> Any:
    """What Spark says after a micro-batch; no end for one that is repeated after a crash."""

    def offset(pair: tuple[int, int] | None) -> str | None:
        if pair is None:
            return None
        logs = {TopicPartition("t", n): o for n, o in enumerate(pair)}
        return json.dumps(StreamOffset(logs, logs, {"t": "first"}).to_json())

    source = SimpleNamespace(endOffset=offset(end), latestOffset=offset(latest))
    return SimpleNamespace(sources=[source])


def meter(service: LogService) -> LagMeter:
    options = Options.parse({"url": service.url, "subscribe": "t"})
    return LagMeter(options, lambda: NOW_S)


def fill(service: LogService) -> None:
    """Ten records a second from 100 seconds ago on, in both partitions."""
    for log in service.make("t", partitions=2):
        for first in range(0, 100, 10):
            log.append(
                [SentRecord(1_788_000_000_000 + (first + n) * 100, None, b"") for n in range(10)]
            )


def replied(reply: Reply, _path: str) -> Reply:
    return reply


def test_the_oldest_record_that_waits_gives_the_seconds(service: LogService) -> None:
    """Of all partitions; nothing is asked where nothing waits."""
    fill(service)
    assert meter(service).measure(report((100, 60), (100, 100))) == Lag(40, 94.0)
    assert len(service.requests) == 1
    assert meter(service).measure(report((30, 60), (100, 100))) == Lag(110, 97.0)
    service.requests.clear()
    assert meter(service).measure(report((100, 100), (100, 100))) == Lag(0, 0.0)
    assert meter(service).measure(report(None, (100, 100))) == Lag(None, None)
    assert service.requests == []


def test_a_service_that_does_not_answer_costs_only_the_seconds(service: LogService) -> None:
    """The records are known from Spark; a restart is not waited for."""
    fill(service)
    for reply in (*map(Reply.of_json, (503, 410, 404)), Reply(200, b"x" * 100), Reply(200)):
        service.fault = partial(replied, reply)
        assert meter(service).measure(report((0, 100), (100, 100))) == Lag(100, None)
