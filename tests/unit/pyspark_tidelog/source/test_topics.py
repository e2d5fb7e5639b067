"""Which logs a query reads, from where to where, and what becomes of logs that come and go."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from pyspark.sql.datasource import InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable
from pyspark.sql.types import LongType, StructField, StructType

from pyspark_tidelog import DefaultSource
from pyspark_tidelog.errors import DataLossError, OptionError
from pyspark_tidelog.source.stream_reader import StreamReader
from pyspark_tidelog.source.tasks import OffsetRange
from tests.support.kafka_batches import numbered
from tests.support.log_service import LogService

OFFSET = StructType([StructField("offset", LongType())])
CHOSEN = tuple[str, int, int, int]


def source(service: LogService, **given: str) -> DefaultSource:
    return DefaultSource({"url": service.url, "retries": "0", **given})


def ranges(service: LogService, **given: str) -> list[CHOSEN]:
    """Plan a batch."""
    return of(source(service, **given).reader(OFFSET).partitions())


def of(splits: object) -> list[CHOSEN]:
    assert isinstance(splits, list)
    return [(s.topic, s.partition, s.start_offset, s.end_offset) for s in splits]


@pytest.fixture
def topics(service: LogService) -> LogService:
    """Three topics of two partitions, with 10 and 20 records each."""
    for topic in ("clicks", "clicks-old", "views"):
        first, second = service.make(topic, partitions=2)
        first.append(numbered(10))
        second.append(numbered(20))
    return service


def test_a_pattern_reads_all_topics_that_match(topics: LogService) -> None:
    """Every page of the list is looked at, and only whole names match."""
    assert ranges(topics, subscribePattern="clicks|v.*") == [
        ("clicks", 0, 0, 10),
        ("clicks", 1, 0, 20),
        ("views", 0, 0, 10),
        ("views", 1, 0, 20),
    ]


def test_a_pattern_without_a_topic_reads_nothing(topics: LogService) -> None:
    """As in Kafka's source: the topics may come later."""
    assert ranges(topics, subscribePattern="none.*") == []


def test_single_partitions_may_be_assigned(topics: LogService) -> None:
    """The others are left out, also where offsets name partitions."""
    given = {"assign": '{"views": [1], "clicks": [0]}', "endingOffsets": '{"views": {"1": 5}}'}
    with pytest.raises(OptionError, match="must name every partition: clicks-0 is missing"):
        ranges(topics, **given)
    given["endingOffsets"] = '{"views": {"1": 5}, "clicks": {"0": -1}}'
    assert ranges(topics, **given) == [("clicks", 0, 0, 10), ("views", 1, 0, 5)]


def test_a_partition_that_is_not_there_is_named(topics: LogService) -> None:
    """The topic is there, the partition is not: the sentence says which."""
    with pytest.raises(OptionError, match="the service has no topic views, partition 7: correct"):
        ranges(topics, assign='{"views": [1, 7]}')


def test_a_moment_becomes_an_offset_in_each_partition(topics: LogService) -> None:
    """From the first record at or after the one to the first at or after the other."""
    topics.topics["views"][0].times = {1000: 3, 2000: 6}
    topics.topics["views"][1].times = {1000: 8}
    between = {"startingTimestamp": "1000", "endingTimestamp": "2000"}
    found = [("views", 0, 3, 6), ("views", 1, 8, 20)]
    assert ranges(topics, subscribe="views", **between) == found
    each = '{"views": {"0": 1000, "1": 1000}}'
    assert ranges(topics, subscribe="views", startingOffsetsByTimestamp=each) == [
        ("views", 0, 3, 10),
        ("views", 1, 8, 20),
    ]


def test_a_moment_after_the_last_record_is_an_error_or_the_end(topics: LogService) -> None:
    """Kafka's strategy decides, and its default is to refuse."""
    topics.topics["views"][0].times = {1000: 3}
    given = {"subscribe": "views", "startingTimestamp": "1000"}
    told = "option startingTimestamp: views-1 has no record at or after 1000: set startingOff"
    with pytest.raises(OptionError, match=told):
        ranges(topics, **given)
    given["startingOffsetsByTimestampStrategy"] = "latest"
    assert ranges(topics, **given) == [("views", 0, 3, 10)]


def test_moments_name_the_partitions_that_are_read(topics: LogService) -> None:
    """One too few is named with the option it is missing in."""
    given = {"subscribe": "views", "startingOffsetsByTimestamp": '{"views": {"0": 1000}}'}
    told = "option startingOffsetsByTimestamp must name every partition: views-1 is missing"
    with pytest.raises(OptionError, match=told):
        ranges(topics, **given)


def test_an_offset_found_behind_what_may_be_read_is_its_end(topics: LogService) -> None:
    """A record of an open transaction has the time that was asked for; it is not read yet."""
    for log in topics.topics["views"]:
        log.stable_offset, log.times = 4, {1000: 7}
    given = {"subscribe": "views", "isolation.level": "read_committed"}
    assert ranges(topics, **given) == [("views", 0, 0, 4), ("views", 1, 0, 4)]
    assert ranges(topics, **given, startingTimestamp="1000") == []


def test_isolation_travels_to_the_reads(topics: LogService) -> None:
    """The service leaves aborted records out of the answers to such requests."""
    given = {"subscribe": "views", "isolation.level": "read_committed"}
    reader = source(topics, **given).reader(OFFSET)
    list(reader.read(OffsetRange("views", 0, 0, 10, "first")))
    assert topics.requests[-1].endswith("&isolation=read_committed")


@pytest.fixture
def stream(topics: LogService, request: pytest.FixtureRequest) -> Callable[..., StreamReader]:
    """Makes stream readers that begin at the start, and stops them in the end."""

    def made(**given: str) -> StreamReader:
        reader = source(topics, startingOffsets="earliest", **given).streamReader(OFFSET)
        assert isinstance(reader, StreamReader)
        request.addfinalizer(reader.stop)
        return reader

    return made


def test_a_topic_that_comes_to_match_joins_the_stream(
    topics: LogService, stream: Callable[..., StreamReader]
) -> None:
    """From its first record on, without a restart."""
    reader = stream(subscribePattern="new-.*")
    start = reader.initialOffset()
    topics.make("new-1")[0].append(numbered(3))
    end = reader.latestOffset(start, ReadAllAvailable())
    assert of(reader.partitions(start, end)) == [("new-1", 0, 0, 3)]


@pytest.mark.parametrize("option", ["subscribe", "subscribePattern"])
def test_a_topic_that_was_deleted_stops_the_stream_unless_it_may_go_on(
    topics: LogService, stream: Callable[..., StreamReader], option: str
) -> None:
    """With failOnDataLoss=false the others go on, and its successor is read from its start."""
    named = "views,clicks" if option == "subscribe" else "views|clicks"
    start = stream(**{option: named}).initialOffset()
    del topics.topics["views"]
    with pytest.raises((DataLossError, OptionError), match="topic views"):
        stream(**{option: named}).latestOffset(start, ReadAllAvailable())
    reader = stream(**{option: named}, failOnDataLoss="false")
    reader.prepareForTriggerAvailableNow()
    end = json.loads(json.dumps(reader.latestOffset(start, ReadAllAvailable())))
    assert [topic for topic, *_ in of(reader.partitions(start, end))] == ["clicks", "clicks"]
    topics.make("views", topic_id="second")[0].append(numbered(4))
    again = stream(**{option: named}, failOnDataLoss="false")
    after = again.latestOffset(end, ReadAllAvailable())
    assert of(again.partitions(end, after)) == [("views", 0, 0, 4)]


def test_a_new_query_names_topics_that_are_there(stream: Callable[..., StreamReader]) -> None:
    """A misspelt name is an error even for a query that may lose data."""
    reader = stream(subscribe="vews", failOnDataLoss="false")
    reader.prepareForTriggerAvailableNow()
    with pytest.raises(OptionError, match="the service has no topic vews"):
        reader.initialOffset()
    assert list(reader.read(InputPartition(None))) == []
