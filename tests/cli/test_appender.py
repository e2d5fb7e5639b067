"""The appender against a dumb service: order, sequences, retries, ends."""

import threading
from collections.abc import Iterable, Iterator

import pytest

from app.client.appender import Appender
from app.client.failures import BadInput, Failure, Refused
from app.client.partitioner import partition_of
from app.client.record_lines import RecordLine
from tests.cli.service_model import ServiceModel, losing


def numbered(count: int, *, keys: int = 0) -> list[RecordLine]:
    """Distinguishable records; with `keys` the keys repeat in turn."""
    return [
        RecordLine(b'{"value":%d}' % n, b"key-%d" % (n % keys) if keys else None)
        for n in range(count)
    ]


def append_all(appender: Appender, records: Iterable[RecordLine]) -> None:
    with appender:
        for record in records:
            appender.add(record)


@pytest.mark.parametrize("chance", [0.0, 0.1, 0.4])
@pytest.mark.parametrize("seed", range(5))
def test_every_record_is_there_once_and_in_order_whatever_gets_lost(
    seed: int, chance: float
) -> None:
    """Requests and answers vanish at random: each partition holds its records once, in order."""
    service = ServiceModel(is_lost=losing(seed, chance))
    records = numbered(1_000, keys=23)
    with service.connect() as connection, Appender(connection, "t", batch_records=10) as appender:
        for record in records:
            appender.add(record)
    for partition in range(4):
        sent = [r.line for r in records if partition_of(r.key or b"", 4) == partition]
        assert service.logs.get(partition, []) == sent
    assert appender.report.records == 1_000
    assert sum(appender.report.by_partition.values()) == 1_000


def test_a_retry_that_finds_its_records_there_is_counted() -> None:
    """An answer lost after the append shows as a duplicate in the report, not in the log."""
    outcomes = iter([False, True, False, False])
    service = ServiceModel(partitions=1, is_lost=lambda: next(outcomes))
    with service.connect() as connection, Appender(connection, "t") as appender:
        for record in numbered(3):
            appender.add(record)
    assert len(service.records) == 3
    assert (appender.report.duplicates, appender.report.requests) == (3, 1)


def test_records_without_a_key_change_the_partition_with_each_batch() -> None:
    """All partitions get their share, in whole batches."""
    service = ServiceModel(partitions=3)
    with service.connect() as connection, Appender(connection, "t", batch_records=5) as appender:
        for record in numbered(45):
            appender.add(record)
    assert {p: len(log) for p, log in service.logs.items()} == {0: 15, 1: 15, 2: 15}
    assert service.logs[0][:6] == [b'{"value":%d}' % n for n in (0, 1, 2, 3, 4, 15)]


def test_a_partition_that_is_named_gets_everything() -> None:
    """The partition asked for wins over the keys."""
    service = ServiceModel()
    with service.connect() as connection, Appender(connection, "t", partition=2) as appender:
        for record in numbered(10, keys=10):
            appender.add(record)
    assert list(service.logs) == [2]


def test_a_partition_that_is_not_there_is_refused_before_anything_is_sent() -> None:
    """The user reads which partitions there are."""
    service = ServiceModel()
    with (
        service.connect() as connection,
        pytest.raises(Failure, match=r"^t has partitions 0 to 3, not 4"),
    ):
        Appender(connection, "t", partition=4)


def test_a_batch_is_full_by_bytes_too() -> None:
    """Long records make small batches; a record longer than a batch goes alone."""
    service = ServiceModel(partitions=1)
    long = RecordLine(b"x" * 50, None)
    with service.connect() as connection, Appender(connection, "t", batch_bytes=120) as appender:
        for record in (long, long, long, RecordLine(b"y" * 500, None), long):
            appender.add(record)
    assert service.sizes == [2, 1, 1, 1]


def test_a_batch_the_service_finds_too_large_is_halved_until_it_fits() -> None:
    """The halves carry on the sequence, so nothing is lost, doubled or out of order."""
    service = ServiceModel(partitions=1, most_bytes=60)
    records = numbered(100)
    with service.connect() as connection, Appender(connection, "t") as appender:
        for record in records:
            appender.add(record)
    assert service.logs[0] == [record.line for record in records]
    assert max(service.sizes) < 5


def test_a_single_record_that_is_too_large_is_told() -> None:
    """What cannot be halved any more is the user's to mend; the limit is named."""
    service = ServiceModel(partitions=1, most_bytes=60)
    with (
        service.connect() as connection,
        pytest.raises(Refused, match="too large") as caught,
        Appender(connection, "t") as appender,
    ):
        appender.add(RecordLine(b"x" * 100, None))
    assert "60 bytes" in caught.value.advice


def test_after_a_failure_nothing_follows_in_any_partition_of_that_worker() -> None:
    """A batch after a missing one would leave a gap in the sequence, so it is not sent."""
    service = ServiceModel(partitions=1, most_bytes=60)
    big = RecordLine(b"x" * 100, None)
    with service.connect() as connection:
        appender = Appender(connection, "t", batch_records=1)
        with pytest.raises(Refused, match="too large"):
            append_all(appender, [*numbered(3), big, *numbered(1_000)])
    assert len(service.records) == 3
    assert appender.report.records == 3


def test_sequences_go_on_at_zero_after_the_largest() -> None:
    """Where 32 bits end the next batch begins again, and half a batch does as well."""
    service = ServiceModel(partitions=1, most_bytes=120)
    records = numbered(40)
    with (
        service.connect() as connection,
        Appender(connection, "t", batch_records=20, first_sequence=2**31 - 15) as appender,
    ):
        for record in records:
            appender.add(record)
    assert service.logs[0] == [record.line for record in records]
    assert service.sequences[0, "next"] == 25


def test_an_error_of_the_caller_sends_no_more() -> None:
    """When the input breaks off, what was not handed over stays unsent."""
    service = ServiceModel()

    def broken() -> Iterator[RecordLine]:
        yield RecordLine(b"{}", None)
        raise BadInput(3, "broken")

    with service.connect() as connection:
        appender = Appender(connection, "t")
        with pytest.raises(BadInput, match="line 3"):
            append_all(appender, broken())
    assert service.records == []


def test_progress_is_told_as_batches_are_answered() -> None:
    """The callback adds up to what is in the log."""
    told: list[int] = []
    service = ServiceModel()
    with (
        service.connect() as connection,
        Appender(connection, "t", batch_records=7, on_appended=told.append) as appender,
    ):
        for record in numbered(100, keys=5):
            appender.add(record)
    assert sum(told) == 100
    assert len(told) == appender.report.requests


def test_an_input_faster_than_the_service_waits() -> None:
    """Only a few batches are ahead of a slow answer; the rest of the input stays unread."""
    gate = threading.Event()
    service = ServiceModel(partitions=1, is_lost=lambda: not gate.wait(30))
    taken: list[int] = []
    with service.connect() as connection, Appender(connection, "t", batch_records=1) as appender:

        def feed() -> None:
            for number, record in enumerate(numbered(20)):
                appender.add(record)
                taken.append(number)

        feeder = threading.Thread(target=feed)
        feeder.start()
        feeder.join(0.5)
        assert len(taken) <= 4
        gate.set()
        feeder.join()
    assert len(service.records) == 20


def test_a_topic_that_is_not_there_is_told() -> None:
    """Before a producer is allocated or a thread started the topic is looked for."""
    service = ServiceModel()
    with service.connect() as connection, pytest.raises(Failure, match="no such topic"):
        Appender(connection, "other")
