"""Options are read once, and a wrong one is one clear sentence."""

from __future__ import annotations

import pytest

from pyspark_tidelog.errors import OptionError
from pyspark_tidelog.options import DEFAULT_FETCH_BYTES, Endpoint, Options
from pyspark_tidelog.positions import EARLIEST, LATEST, OffsetSpec, TopicPartition

NEEDED = {"url": "http://127.0.0.1:8080/", "subscribe": "b, a,b"}


def test_two_options_are_enough() -> None:
    """An address and a topic suffice; the rest has defaults, and topics keep their order."""
    options = Options.parse(NEEDED)
    assert options == Options(Endpoint("http://127.0.0.1:8080"), ("b", "a"))
    assert options.fetch_bytes == DEFAULT_FETCH_BYTES


def test_every_option_is_read_whatever_its_case() -> None:
    """Spark hands over lower-case names; people write them as the documentation does."""
    given = {
        "startingOffsets": "earliest",
        "ENDINGOFFSETS": "latest",
        "maxOffsetsPerTrigger": "5",
        "maxbytespertrigger": "6",
        "minPartitions": "7",
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
        topics=("b", "a"),
        starting=EARLIEST,
        ending=LATEST,
        max_offsets_per_trigger=5,
        max_bytes_per_trigger=6,
        min_partitions=7,
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
        ({"zzz": "x"}, "unknown option zzz: known are url, subscribe"),
        ({"url": ""}, "option url is required, for example http://127.0.0.1:8080"),
        ({"url": "ftp://x"}, "option url must be http://host:port or https://host:port"),
        ({"url": "http://x:y"}, "option url must be http://host:port"),
        ({"url": "http://me:pass@x"}, "credentials go into the option token"),
        ({"subscribe": " , "}, "option subscribe is required"),
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
