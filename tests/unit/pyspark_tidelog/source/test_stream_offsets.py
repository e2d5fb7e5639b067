"""The offset in the checkpoint, and the ranges that follow from two of them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from pyspark_tidelog.errors import JobError
from pyspark_tidelog.partitions import TopicPartition
from pyspark_tidelog.source.stream_offsets import StreamOffset, ranges_between
from pyspark_tidelog.source.tasks import OffsetRange

FIRST, SECOND = TopicPartition("t", 0), TopicPartition("t", 1)
IDS = {"t": "id"}


def test_an_offset_comes_back_from_json_as_it_was() -> None:
    """What Spark stores as text is read back as the same value, and equal values as equal text."""
    offset = StreamOffset({SECOND: 7, FIRST: 5}, {FIRST: 1, SECOND: 2}, IDS)
    text = json.dumps(offset.to_json())
    assert StreamOffset.from_json(json.loads(text)) == offset
    same = StreamOffset({FIRST: 5, SECOND: 7}, {SECOND: 2, FIRST: 1}, IDS)
    assert json.dumps(same.to_json()) == text


@pytest.mark.parametrize(
    ("document", "sentence"),
    [
        ({"version": 2}, "offsets of version 2, this source writes version 1"),
        ({"t": {"0": 5}}, "was written by another source: choose a new checkpoint folder"),
        ({"version": 1, "offsets": [], "initial": {}, "topic_ids": {}}, "by another source"),
        ({"version": 1, "offsets": {"t": {"x": 1}}, "initial": {}}, "by another source"),
    ],
)
def test_a_checkpoint_of_something_else_is_refused(document: dict[str, Any], sentence: str) -> None:
    """Offsets of Kafka's source, or of a later version, are not guessed at."""
    with pytest.raises(JobError, match=sentence):
        StreamOffset.from_json(document)


def test_a_micro_batch_reads_from_its_start_to_its_end() -> None:
    """Once a stream is under way, the end of one micro-batch is the start of the next."""
    begin = {FIRST: 0, SECOND: 0}
    start = StreamOffset({FIRST: 5, SECOND: 7}, begin, IDS)
    end = StreamOffset({FIRST: 9, SECOND: 7}, begin, IDS)
    assert ranges_between(start, end) == [OffsetRange("t", 0, 5, 9, "id")]


def test_the_first_micro_batch_begins_where_its_end_says() -> None:
    """A start that was recomputed after a crash is not used: its end is in the write-ahead log."""
    planned = StreamOffset({FIRST: 9}, {FIRST: 2}, IDS)
    moved_meanwhile = StreamOffset.beginning_at({FIRST: 7}, IDS)
    assert ranges_between(moved_meanwhile, planned) == [OffsetRange("t", 0, 2, 9, "id")]


def test_a_new_partition_begins_where_the_end_says() -> None:
    """A partition that the start does not know is read from the place that was planned for it."""
    start = StreamOffset({FIRST: 5}, {FIRST: 0}, IDS)
    end = StreamOffset({FIRST: 5, SECOND: 8}, {FIRST: 0, SECOND: 3}, IDS)
    assert ranges_between(start, end) == [OffsetRange("t", 1, 3, 8, "id")]


def test_a_topic_made_again_begins_where_the_end_says() -> None:
    """Offsets of the topic that is gone say nothing about the new one."""
    start = StreamOffset({FIRST: 500}, {FIRST: 0}, {"t": "old"})
    end = StreamOffset({FIRST: 8}, {FIRST: 0}, {"t": "new"})
    assert ranges_between(start, end) == [OffsetRange("t", 0, 0, 8, "new")]
