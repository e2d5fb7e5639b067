"""One task reads its range, whatever happens on the way."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pyspark_tidelog.errors import DamagedBatchError, DataLossError, ServiceError
from pyspark_tidelog.source.fetch import read_ranges
from pyspark_tidelog.source.options import Options
from pyspark_tidelog.source.tasks import OffsetRange
from tests.support.kafka_batches import numbered
from tests.support.log_service import LogService, MemoryLog, Reply


def offsets_read(
    service: LogService, split: OffsetRange, *, retries: int = 1, **given: str
) -> list[int]:
    raw = {"url": service.url, "subscribe": "t", "retries": str(retries), **given}
    batches = read_ranges(Options.parse(raw), ("offset",), [split])
    return [offset for batch in batches for offset in batch.column("offset").to_pylist()]


@pytest.fixture
def log(service: LogService) -> MemoryLog:
    """A log of ten batches with ten records each."""
    (log,) = service.make("t")
    for first in range(0, 100, 10):
        log.append(numbered(10, first=first))
    return log


def test_a_task_reads_several_ranges_on_one_connection(service: LogService) -> None:
    """One after the other; what is wrong with one of them is told with its name."""
    for partition, log in enumerate(service.make("t", partitions=3)):
        log.append(numbered(10 + partition))
    ranges = [OffsetRange("t", n, n, 10 + n) for n in range(3)]
    options = Options.parse({"url": service.url, "subscribe": "t", "retries": "0"})
    rows = [
        row
        for batch in read_ranges(options, ("partition", "offset"), ranges)
        for row in zip(*(column.to_pylist() for column in batch.columns), strict=True)
    ]
    assert rows == [(n, offset) for n in range(3) for offset in range(n, 10 + n)]
    beyond = [ranges[0], OffsetRange("t", 1, 0, 99)]
    with pytest.raises(DataLossError, match="topic t, partition 1"):
        list(read_ranges(options, ("offset",), beyond))


def batch_bytes(log: MemoryLog) -> int:
    return len(log.batches[0][2])


def test_a_range_is_read_whole_in_one_request(service: LogService, log: MemoryLog) -> None:
    """The end of the range travels in the request, so that nothing beyond it is sent."""
    assert offsets_read(service, OffsetRange("t", 0, 0, log.end_offset)) == list(range(100))
    assert service.requests == [
        "/v1/topics/t/partitions/0/batches?offset=0&end_offset=100&max_bytes=8388608"
    ]


def test_a_range_is_read_in_small_requests(service: LogService, log: MemoryLog) -> None:
    """Each request goes on where the last answer ended; borders of batches do not matter."""
    small = str(2 * max(len(raw) for _, _, raw in log.batches))
    assert offsets_read(service, OffsetRange("t", 0, 3, 97), fetchBytes=small) == list(range(3, 97))
    assert len(service.requests) == 5


def test_an_answer_that_breaks_off_is_resumed_after_its_last_whole_batch(
    service: LogService, log: MemoryLog
) -> None:
    """Two and a half batches arrive: two count, and the rest is asked for again, once each."""
    whole = service.answer(
        "/v1/topics/t/partitions/0/batches?offset=0&end_offset=100&max_bytes=9999999"
    )
    replies: Iterator[Reply | None] = iter(
        [Reply(200, whole.body, whole.headers, cut_after=batch_bytes(log) * 5 // 2)]
    )
    service.fault = lambda _path: next(replies, None)
    assert offsets_read(service, OffsetRange("t", 0, 0, 100)) == list(range(100))
    assert service.requests[-1].split("?")[1].startswith("offset=20&")


def test_answers_that_always_break_off_inside_the_first_batch_end_the_task(
    service: LogService, log: MemoryLog
) -> None:
    """Without progress nothing is repeated for ever."""
    service.fault = lambda _path: Reply(200, log.batches[0][2], cut_after=80)
    with pytest.raises(ServiceError, match="broke off in its first batch"):
        offsets_read(service, OffsetRange("t", 0, 0, 100))


def test_gaps_at_the_end_of_a_range_are_passed_over(service: LogService, log: MemoryLog) -> None:
    """Compaction may have left nothing up to the end; the answer's next offset says so."""
    log.batches = log.batches[:2]
    service.fault = lambda path: (
        Reply(200, b"", {"Log-Next-Offset": "100"}) if "offset=20&" in path else None
    )
    assert offsets_read(service, OffsetRange("t", 0, 0, 100)) == list(range(20))


def test_records_that_retention_removed_are_an_error(service: LogService, log: MemoryLog) -> None:
    """The offsets that are lost are named, and the option that would go on."""
    log.start_offset = 30
    told = (
        "offsets 5 to 29 of topic t, partition 0 were deleted before they were read; "
        "set failOnDataLoss to false"
    )
    with pytest.raises(DataLossError, match=told):
        offsets_read(service, OffsetRange("t", 0, 5, 100))


def test_records_that_retention_removed_are_passed_over_if_allowed(
    service: LogService, log: MemoryLog
) -> None:
    """Reading goes on at the log's start, and ends at once if that is beyond the range."""
    log.start_offset = 30
    assert offsets_read(service, OffsetRange("t", 0, 5, 40), failOnDataLoss="false") == list(
        range(30, 40)
    )
    assert offsets_read(service, OffsetRange("t", 0, 5, 25), failOnDataLoss="false") == []


@pytest.mark.parametrize("lost", ["shorter", "gone", "made again", "ends"])
def test_a_log_that_no_longer_reaches_the_range_is_an_error(
    service: LogService, log: MemoryLog, lost: str
) -> None:
    """Truncated, deleted, or replaced by another log under its name: distinguished from an end."""
    split = OffsetRange("t", 0, 50, 100, "first")
    if lost == "shorter":
        log.end_offset = 40
    elif lost == "gone":
        del service.topics["t"]
    elif lost == "made again":
        service.topic_ids["t"] = "second"
    else:
        log.end_offset, log.batches = 80, log.batches[:8]
    with pytest.raises(DataLossError, match=r"topic t, partition 0 .*(truncated|created again)"):
        offsets_read(service, split)
    assert offsets_read(service, split, failOnDataLoss="false") == (
        list(range(50, 80)) if lost == "ends" else []
    )


def test_an_answer_that_repeats_records_does_not_repeat_rows(
    service: LogService, log: MemoryLog
) -> None:
    """A cache in between may answer from too early an offset; each offset still comes once."""
    everything = service.answer(
        "/v1/topics/t/partitions/0/batches?offset=0&end_offset=100&max_bytes=9999999"
    )
    small = str(batch_bytes(log))
    service.fault = lambda path: everything if "offset=50&" in path else None
    assert offsets_read(service, OffsetRange("t", 0, 0, 100), fetchBytes=small) == list(range(100))


def test_an_answer_that_ends_inside_a_batch_and_claims_to_be_whole_is_damage(
    service: LogService, log: MemoryLog
) -> None:
    """Going on at the next offset it names would lose what the torn batch held."""
    torn = log.batches[0][2] + log.batches[1][2][:-1]
    service.fault = lambda _path: Reply(200, torn, {"Log-Next-Offset": "20"})
    with pytest.raises(DamagedBatchError, match="after offset 9: the answer ends inside it"):
        offsets_read(service, OffsetRange("t", 0, 0, 100))


def test_a_service_that_contradicts_itself_is_found_out(
    service: LogService, log: MemoryLog
) -> None:
    """A refusal of the very offset at which the log is said to start would repeat for ever."""
    assert log.start_offset == 0
    service.fault = lambda _path: Reply.of_json(410, log_start_offset=5)
    with pytest.raises(ServiceError, match="refuses offset 5 of t-0 as below the log start"):
        offsets_read(service, OffsetRange("t", 0, 5, 9), failOnDataLoss="false")


def test_an_answer_without_a_next_offset_is_refused(service: LogService, log: MemoryLog) -> None:
    """Such a response is not from tidelog."""
    service.fault = lambda _path: Reply(200, log.batches[0][2])
    with pytest.raises(ServiceError, match="without Log-Next-Offset: is it tidelog"):
        offsets_read(service, OffsetRange("t", 0, 0, 9))


def test_damage_is_told_with_its_place(service: LogService, log: MemoryLog) -> None:
    """Bytes that are not a batch: the error has topic, partition and the expected offset."""
    service.fault = lambda _path: Reply(200, b"\xff" * 100, {"Log-Next-Offset": "100"})
    with pytest.raises(
        DamagedBatchError, match="topic t, partition 0, at offset 50: message format"
    ):
        offsets_read(service, OffsetRange("t", 0, 50, log.end_offset))


def test_a_reader_that_stops_early_leaves_nothing_running(
    service: LogService, log: MemoryLog
) -> None:
    """`limit(5)` closes the generator; the request under way is the last one."""
    raw = {"url": service.url, "subscribe": "t", "fetchBytes": str(batch_bytes(log))}
    batches = read_ranges(Options.parse(raw), ("offset",), [OffsetRange("t", 0, 0, 100)])
    assert next(batches).num_rows == 10
    batches.close()  # type: ignore[attr-defined] # a generator, and that is the point
    assert sum("/batches?" in path for path in service.requests) <= 2
