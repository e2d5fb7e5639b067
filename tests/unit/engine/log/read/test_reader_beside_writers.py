"""Tests about concurrent readers and writers.

Nothing undecided is returned, nothing committed missed.
"""

import threading
from collections.abc import Callable, Iterator

import pytest

from engine.log.log import Log
from engine.types import FetchIsolation
from tests.support.builders import World, values_of
from tests.support.conformance_places import transaction_of
from tests.support.kafka import kafka
from tests.support.logs import batches_in, with_config

TRANSACTIONS = 150
BATCHES = 300


def read_beside(
    log: Log, write: Callable[[], None], isolation: FetchIsolation
) -> Iterator[tuple[int, bytes | None]]:
    """Offset and value of every record, read while `write` runs on another thread, to its end."""
    writer = threading.Thread(target=write)
    writer.start()
    offset = 0
    try:
        while True:
            is_last_round = not writer.is_alive()
            fetched = log.reader.read(offset, max_bytes=5_000, isolation=isolation)
            assert fetched is not None
            marks = fetched.watermarks
            bound = marks.bound(isolation).offset
            for batch in batches_in(fetched.data):
                for record in batch.records():
                    assert offset <= record.offset < bound
                    yield record.offset, record.value
            if fetched.next_offset == offset and is_last_round:
                return
            offset = fetched.next_offset
    finally:
        writer.join()


@kafka("UnifiedLogTest.testReadCommittedWithConcurrentHighWatermarkUpdates")
@pytest.mark.parametrize("segment_bytes", [1 << 20, 700])
def test_a_committed_reader_never_sees_what_is_undecided(segment_bytes: int) -> None:
    """While transactions come, end and get committed, only committed ones are read, all of them."""
    log = World().open_log(with_config(segment_bytes=segment_bytes))

    def write() -> None:
        producer = transaction_of(log, 7)
        for number in range(TRANSACTIONS):
            producer.send(1, value=b"%d a" % number)
            log.durability.commit()
            producer.send(1, value=b"%d b" % number)
            if number % 2:
                producer.abort()
            else:
                producer.commit()
            log.durability.commit()

    read = list(read_beside(log, write, FetchIsolation.TXN_COMMITTED))
    expected = [b"%d %s" % (n, half) for n in range(0, TRANSACTIONS, 2) for half in (b"a", b"b")]
    assert [value for _, value in read] == expected


@kafka(
    "LogConcurrencyTest.testUncommittedDataNotConsumed",
    "LogConcurrencyTest.testUncommittedDataNotConsumedFrequentSegmentRolls",
)
@pytest.mark.parametrize("segment_bytes", [1 << 20, 300])
def test_a_reader_never_passes_the_high_watermark_and_misses_nothing(segment_bytes: int) -> None:
    """During appends, commits and many rolls of small segments, every record is read once."""
    log = World().open_log(with_config(segment_bytes=segment_bytes))

    def write() -> None:
        for number in range(BATCHES):
            log.append(values_of([b"%d" % number, b"x"]))
            if number % 3 == 0:
                log.durability.commit()
        log.durability.commit()

    read = list(read_beside(log, write, FetchIsolation.HIGH_WATERMARK))
    assert [offset for offset, _ in read] == list(range(2 * BATCHES))
    assert [value for _, value in read[::2]] == [b"%d" % number for number in range(BATCHES)]
    assert (log.reader.segments_count > 50) is (segment_bytes == 300)
