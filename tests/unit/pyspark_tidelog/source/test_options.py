"""Options are read once, and a wrong one is one clear sentence."""

from __future__ import annotations

import pytest

from pyspark_tidelog.endpoint import Endpoint
from pyspark_tidelog.errors import OptionError
from pyspark_tidelog.partitions import TopicPartition
from pyspark_tidelog.source.options import DEFAULT_FETCH_BYTES, Options
from pyspark_tidelog.source.positions import EARLIEST, LATEST, OffsetSpec, TimeSpec
from pyspark_tidelog.source.topics import Topics

NEEDED = {"url": "http://127.0.0.1:8080/", "subscribe": "b, a,b"}


def test_two_options_are_enough() -> None:
    """An address and a topic suffice; the rest has defaults, and topics keep their order."""
    options = Options.parse(NEEDED)
    assert options == Options(Endpoint("http://127.0.0.1:8080"), Topics(("b", "a")))
    assert options.fetch_bytes == DEFAULT_FETCH_BYTES


def test_every_option_is_read_whatever_its_case() -> None:
    """Spark hands over lower-case names; people write them as the documentation does."""
    given = {
        "startingOffsets": "earliest",
        "ENDINGOFFSETS": "latest",
        "maxOffsetsPerTrigger": "5",
        "maxbytespertrigger": "6",
        "minPartitions": "7",
        "maxRecordsPerPartition": "9",
        "isolation.level": "READ_COMMITTED",
        "failOnDataLoss": "false",
        "includeHeaders": "True",
        "fetchBytes": "8",
        "checkCrcs": "true",
        "token": "secret",
        "timeout": "0.5",
        "retries": "0",
    }
    assert Options.parse({**NEEDED, **given}) == Options(
        endpoint=Endpoint("http://127.0.0.1:8080", "secret", 0.5, 0),
        topics=Topics(("b", "a")),
        starting=EARLIEST,
        ending=LATEST,
        max_offsets_per_trigger=5,
        max_bytes_per_trigger=6,
        min_partitions=7,
        max_records_per_partition=9,
        isolation="read_committed",
        fail_on_data_loss=False,
        include_headers=True,
        fetch_bytes=8,
        check_crcs=True,
    )


def test_a_token_is_not_shown() -> None:
    """Options end up in logs and stack traces; the secret does not."""
    assert "secret" not in repr(Options.parse({**NEEDED, "token": "secret"}))


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"startingOffset": "x"}, "unknown option startingoffset: did you mean startingOffsets?"),
        ({"zzz": "x"}, "unknown option zzz: known are url, token"),
        ({"url": ""}, "option url is required, for example http://127.0.0.1:8080"),
        ({"url": "ftp://x"}, "option url must be http://host:port or https://host:port"),
        ({"url": "http://x:y"}, "option url must be http://host:port"),
        ({"url": "http://me:pass@x"}, "put credentials into the option token"),
        ({"url": "ftp://me:pass@x:y"}, "option url must be only an address"),
        ({"kafka.bootstrap.servers": "x:9092"}, "here it is called url"),
        ({"apiKey": "s3cret"}, "unknown option apikey: here it is called token"),
        ({"subscribe": " , "}, "option subscribe is required"),
        ({"subscribe": " "}, "option subscribe is required, with a topic or a comma list"),
        ({"assign": "{}"}, "options subscribe and assign exclude each other: give one of them"),
        ({"subscribe": "../x"}, "'../x' cannot be the name of a topic"),
        ({"subscribe": ".."}, "'..' cannot be the name of a topic"),
        ({"minPartitions": "0"}, "option minPartitions must be a whole number of at least 1"),
        ({"retries": "many"}, "option retries must be a whole number of at least 0 and at most"),
        ({"includeHeaders": "yes"}, "option includeHeaders must be true or false, not 'yes'"),
        ({"timeout": "0"}, "option timeout must be seconds between 0 and 3600, not '0'"),
        ({"timeout": "soon"}, "option timeout must be seconds between 0 and 3600"),
        ({"startingOffsets": "begin"}, "option startingOffsets must be earliest, latest or JSON"),
        ({"startingOffsets": "[]"}, "option startingOffsets must be earliest, latest or JSON"),
        ({"startingOffsets": '{"t": {"x": 1}}'}, "must be earliest, latest or JSON"),
        ({"startingOffsets": '{"t": {"0": -3}}'}, "must be earliest, latest or JSON"),
        ({"startingOffsets": '{"t": {"0": true}}'}, "must be earliest, latest or JSON"),
        ({"startingOffsets": '{"t": 5}'}, "must be earliest, latest or JSON"),
        ({"startingTimestamp": "soon"}, "option startingTimestamp must be milliseconds since 1970"),
        ({"endingTimestamp": "9" * 20}, "option endingTimestamp must be milliseconds since 1970"),
        ({"endingOffsetsByTimestamp": "5"}, "option endingOffsetsByTimestamp must be JSON such as"),
        ({"startingOffsetsByTimestampStrategy": "x"}, "must be error or latest, not 'x'"),
        ({"isolation.level": "none"}, "must be read_uncommitted or read_committed, not 'none'"),
        ({"maxRecordsPerPartition": "0"}, "maxRecordsPerPartition must be a whole number of at"),
    ],
)
def test_a_wrong_option_is_one_sentence(given: dict[str, str], sentence: str) -> None:
    """What is wrong is named, with what would be right."""
    with pytest.raises(OptionError) as refused:
        Options.parse({**NEEDED, **given})
    assert sentence in str(refused.value)
    assert "\n" not in str(refused.value)


def test_offsets_as_json_are_those_of_kafka() -> None:
    """A map of topics to partitions to offsets, -2 and -1 included."""
    options = Options.parse(
        {**NEEDED, "startingOffsets": '{"a": {"1": -1, "0": 23}, "b": {"0": -2}}'}
    )
    assert options.starting == OffsetSpec(
        offsets=(
            (TopicPartition("a", 0), 23),
            (TopicPartition("a", 1), -1),
            (TopicPartition("b", 0), -2),
        )
    )


@pytest.mark.parametrize(
    "given", [{"startingOffsets": "latest"}, {"endingOffsets": "earliest"}], ids=str
)
def test_a_batch_that_would_read_nothing_is_refused(given: dict[str, str]) -> None:
    """Kafka's source refuses both, too."""
    with pytest.raises(OptionError, match="would read nothing"):
        Options.parse({**NEEDED, **given}).for_batch()
    assert Options.parse(NEEDED).for_batch() == Options.parse(NEEDED)


def test_a_stream_has_no_end() -> None:
    """The option endingOffsets belongs to batch queries alone."""
    with pytest.raises(OptionError, match="a streaming query has no end"):
        Options.parse({**NEEDED, "endingOffsets": "latest"}).for_stream()
    assert Options.parse(NEEDED).for_stream() == Options.parse(NEEDED)


@pytest.mark.parametrize(
    ("given", "topics"),
    [
        ({"subscribePattern": "click.*"}, Topics(pattern="click.*")),
        (
            {"assign": '{"b": [1, 0], "a": [2]}'},
            Topics(
                ("b", "a"),
                None,
                (TopicPartition("a", 2), TopicPartition("b", 0), TopicPartition("b", 1)),
            ),
        ),
    ],
)
def test_logs_may_be_chosen_in_three_ways(given: dict[str, str], topics: Topics) -> None:
    """By names, by a pattern for names, or partition by partition."""
    assert Options.parse({"url": NEEDED["url"], **given}).topics == topics


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"subscribePattern": "("}, "option subscribePattern: '(' is not a regular expression"),
        ({"assign": "t"}, 'option assign must be JSON such as {"topic": [0, 1]}, not'),
        ({"assign": '{"t": []}'}, "option assign must be JSON"),
        ({"assign": '{"t": [0], "u": ["1"]}'}, "option assign must be JSON"),
        ({"assign": '{"t": [-1]}'}, "option assign must be JSON"),
        ({"assign": '{"../t": [1]}'}, "option assign: '../t' cannot be the name of a topic"),
    ],
)
def test_a_wrong_choice_is_one_sentence(given: dict[str, str], sentence: str) -> None:
    """Neither a pattern nor an assignment is guessed at."""
    with pytest.raises(OptionError) as refused:
        Options.parse({"url": NEEDED["url"], **given})
    assert sentence in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_pattern_has_to_match_the_whole_name() -> None:
    """As a consumer of Kafka matches it: `click` alone is not `clicks`."""
    topics = Topics(pattern="click.?")
    assert [topics.matches(name) for name in ("click", "clicks", "my-click", "clickers")] == [
        True,
        True,
        False,
        False,
    ]


def test_a_moment_goes_before_moments_and_these_before_offsets() -> None:
    """Where an end is given in several ways, Kafka's order decides which of them counts."""
    given = {"startingOffsets": "latest", "endingOffsets": "latest"}
    times = '{"t": {"0": 7}}'
    given |= {"startingOffsetsByTimestamp": times, "endingOffsetsByTimestamp": times}
    given |= {"startingOffsetsByTimestampStrategy": "latest"}
    options = Options.parse({**NEEDED, **given})
    at_seven = ((TopicPartition("t", 0), 7),)
    assert options.starting == TimeSpec("startingOffsetsByTimestamp", None, at_seven, True)
    assert options.ending == TimeSpec("endingOffsetsByTimestamp", None, at_seven, True)
    options = Options.parse({**NEEDED, **given, "startingTimestamp": "5", "endingTimestamp": "6"})
    assert options.starting == TimeSpec("startingTimestamp", 5, (), True)
    assert options.ending == TimeSpec("endingTimestamp", 6, (), True)
    with pytest.raises(OptionError, match="endingTimestamp is for batch queries"):
        options.for_stream()
