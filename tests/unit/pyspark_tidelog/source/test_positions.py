"""Words and numbers for places in the log become offsets."""

from __future__ import annotations

import pytest

from pyspark_tidelog.errors import OptionError
from pyspark_tidelog.partitions import LogSnapshot, PartitionMarks, TopicPartition
from pyspark_tidelog.source.positions import EARLIEST, LATEST, parse_offset_spec

FIRST, SECOND = TopicPartition("t", 0), TopicPartition("t", 1)
SNAPSHOT = LogSnapshot({"t": "id"}, {FIRST: PartitionMarks(5, 20), SECOND: PartitionMarks(0, 0)})


def test_words_mean_the_two_ends_of_every_log() -> None:
    """Earliest is the log start, latest the high watermark, which is on disk."""
    assert EARLIEST.resolve("o", SNAPSHOT) == {FIRST: 5, SECOND: 0}
    assert LATEST.resolve("o", SNAPSHOT) == {FIRST: 20, SECOND: 0}


def test_numbers_may_be_mixed_with_words() -> None:
    """In JSON -2 and -1 stand for the words, partition by partition."""
    spec = parse_offset_spec("o", '{"t": {"0": 7, "1": -2}}')
    assert spec.resolve("o", SNAPSHOT) == {FIRST: 7, SECOND: 0}
    assert parse_offset_spec("o", '{"t": {"0": -1, "1": -1}}').resolve("o", SNAPSHOT)[FIRST] == 20


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ('{"t": {"0": 7}}', "option o must name every partition: t-1 is missing"),
        ('{"t": {"0": 7, "1": 0, "2": 0}}', "option o names t-2, which is not among those read"),
        ('{"t": {"0": 21, "1": 0}}', "option o: t-0 ends at offset 20, before 21"),
    ],
)
def test_offsets_that_do_not_fit_the_log_are_refused(text: str, sentence: str) -> None:
    """A partition too few or too many, or an offset not yet written, is named."""
    with pytest.raises(OptionError, match=sentence):
        parse_offset_spec("o", text).resolve("o", SNAPSHOT)
