"""A first load: closed segments downloaded whole, beside the ordinary read of the same offsets.

Both decode all columns in this process, as a task on an executor does. Processor time is compared,
not rates: on a busy machine both change, and their ratio stays.
"""

from __future__ import annotations

import time
from statistics import median
from typing import Final, NamedTuple
from unittest.mock import patch

from bench.figures import Figure
from bench.memory import processor_seconds
from bench.spark import fill
from bench.target import Bench
from pyspark_tidelog.client import ServiceClient
from pyspark_tidelog.records.columns import spark_schema
from pyspark_tidelog.source import segments
from pyspark_tidelog.source.fetch import read_ranges
from pyspark_tidelog.source.options import Options
from pyspark_tidelog.source.service import snapshot_of
from pyspark_tidelog.source.tasks import OffsetRange

_TOPIC: Final = "backfill"
_RECORDS: Final = 4_000_000
_SEGMENT_BYTES: Final = 128 << 20
_ROUNDS: Final = 5


class _Read(NamedTuple):
    service_s: float
    task_s: float
    rows: int


def backfill(bench: Bench) -> list[Figure]:
    """Read four million records of 150 bytes out of segments of 128 MiB, both ways in turn."""
    bench.create_topic(_TOPIC, partitions=1, segment_bytes=str(_SEGMENT_BYTES))
    fill(bench, _TOPIC, _RECORDS, partitions=1)
    options = Options.parse({"url": bench.service.url, "subscribe": _TOPIC})
    with ServiceClient(options.endpoint) as client:
        snapshot = snapshot_of(client, options.topics)
    ((log, marks),) = snapshot.marks.items()
    wanted = OffsetRange(_TOPIC, log.partition, 0, marks.end_offset, snapshot.topic_ids[_TOPIC])
    downloads: list[_Read] = []
    ordinary: list[_Read] = []
    for _ in range(_ROUNDS):
        downloads.append(_read(bench, options, wanted))
        with patch.object(segments, "MIN_ANSWERS", 1 << 40):
            ordinary.append(_read(bench, options, wanted))
    service = median(o.service_s / d.service_s for o, d in zip(ordinary, downloads, strict=True))
    both = median(
        (o.service_s + o.task_s) / (d.service_s + d.task_s)
        for o, d in zip(ordinary, downloads, strict=True)
    )
    note = (
        f"service {median(d.service_s for d in downloads) / _RECORDS * 1e9:,.0f} ns of processor "
        f"a record against {median(o.service_s for o in ordinary) / _RECORDS * 1e9:,.0f}; "
        f"median of {_ROUNDS}"
    )
    return [
        Figure("service, ordinary read / segments", service, "times", target=1.2, note=note),
        Figure("service and task, ordinary read / segments", both, "times", target=1.0),
    ]


def _read(bench: Bench, options: Options, wanted: OffsetRange) -> _Read:
    service_s, task_s = processor_seconds(bench.service.pid), time.process_time()
    columns = spark_schema(include_headers=False).fieldNames()
    rows = sum(batch.num_rows for batch in read_ranges(options, columns, [wanted]))
    if rows != wanted.offsets_count:
        raise SystemExit(f"{rows} of {wanted.offsets_count} records were read")
    return _Read(
        processor_seconds(bench.service.pid) - service_s, time.process_time() - task_s, rows
    )
