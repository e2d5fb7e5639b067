"""How much the next micro-batch takes, decided with plain numbers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_tidelog.errors import DataLossError
from pyspark_tidelog.partitions import LogSnapshot, PartitionMarks, TopicPartition
from pyspark_tidelog.source.stream_offsets import StreamOffset, ranges_between
from pyspark_tidelog.source.stream_reader import (
    fraction_for,
    next_offset,
    waiting_bytes,
    waiting_offsets,
)

FIRST, SECOND = TopicPartition("t", 0), TopicPartition("t", 1)
IDS = {"t": "id"}


def target(*marks: tuple[int, int], topic_id: str = "id") -> LogSnapshot:
    return LogSnapshot(
        {"t": topic_id},
        {TopicPartition("t", n): PartitionMarks(*pair) for n, pair in enumerate(marks)},
    )


def at(*offsets: int, topic_id: str = "id") -> StreamOffset:
    places = {TopicPartition("t", number): offset for number, offset in enumerate(offsets)}
    return StreamOffset.beginning_at(places, {"t": topic_id})


def test_without_a_limit_everything_is_taken() -> None:
    """The micro-batch ends at the high watermarks."""
    assert next_offset(at(0, 5), target((0, 10), (0, 20))).offsets == {FIRST: 10, SECOND: 20}


def test_with_nothing_new_the_offset_stays_as_it_is() -> None:
    """Spark starts a micro-batch for any other text, so the same must come back."""
    start = at(10, 20)
    assert next_offset(start, target((0, 10), (0, 20))).to_json() == start.to_json()


@given(st.lists(st.integers(0, 10_000), min_size=2, max_size=2), st.integers(1, 20_000))
def test_a_limit_is_shared_and_starves_nobody(waiting: list[int], max_rows: int) -> None:
    """About the limit is taken, at least one offset of each log that has any, none too many."""
    ends = target((0, waiting[0]), (0, waiting[1]))
    start = at(0, 0)
    fraction = fraction_for(max_rows, sum(waiting_offsets(start, ends).values()))
    taken = next_offset(start, ends, fraction=fraction).offsets
    assert sum(taken.values()) <= max(max_rows, 2)
    for number, count in enumerate(waiting):
        assert min(count, 1) <= taken[TopicPartition("t", number)] <= count


def test_a_limit_in_bytes_counts_by_the_mean_size_of_a_record() -> None:
    """Half of the bytes is half of the offsets where records are alike."""
    ends = target((0, 100))
    waiting = waiting_offsets(at(0), ends)
    size_bytes = waiting_bytes(waiting, ends, {FIRST: 10_000})
    assert fraction_for(5_000, size_bytes) == 0.5
    assert fraction_for(10_000, size_bytes) == 1.0
    assert fraction_for(None, size_bytes) == 1.0
    assert fraction_for(1, waiting_bytes(waiting, ends, {})) == 1.0


def test_a_new_partition_is_read_from_its_start() -> None:
    """The place where it begins is noted with the end, so that a repeated run begins there too."""
    end = next_offset(at(5), target((0, 5), (3, 9)))
    assert end.offsets == {FIRST: 5, SECOND: 9}
    assert end.initial == {FIRST: 5, SECOND: 3}
    assert waiting_offsets(at(5), target((0, 5), (3, 9))) == {FIRST: 0, SECOND: 6}


def test_records_deleted_before_they_were_read_stop_the_query() -> None:
    """The error of a reader that retention has overtaken has the lost offsets."""
    with pytest.raises(DataLossError, match="offsets 5 to 7 of topic t, partition 0 were deleted"):
        next_offset(at(5), target((8, 10)))
    end = next_offset(at(5), target((8, 10)), fail_on_data_loss=False)
    assert end.offsets == {FIRST: 10}


def test_a_truncated_log_stops_the_query() -> None:
    """A log that ends before what was read already has lost what came after."""
    with pytest.raises(DataLossError, match="ends at offset 3, before offset 5"):
        next_offset(at(5), target((0, 3)))


def test_a_truncated_log_goes_on_from_its_new_end_if_allowed() -> None:
    """The offset goes down with the log, and what is appended afterwards is read."""
    down = next_offset(at(5), target((0, 3)), fail_on_data_loss=False)
    assert down.offsets == {FIRST: 3}
    assert ranges_between(at(5), down) == []
    up = next_offset(down, target((0, 6)), fail_on_data_loss=False)
    assert [(r.start_offset, r.end_offset) for r in ranges_between(down, up)] == [(3, 6)]


def test_a_topic_made_again_stops_the_query() -> None:
    """A topic of the same name and another id is another log, whatever its offsets."""
    with pytest.raises(DataLossError, match="topic t was deleted and created again"):
        next_offset(at(5), target((0, 30), topic_id="new"))


def test_a_topic_made_again_is_read_from_its_start_if_allowed() -> None:
    """All of the new log is read, whatever place the old one had reached."""
    start, ends = at(5), target((1, 30), topic_id="new")
    assert waiting_offsets(start, ends) == {FIRST: 29}
    end = next_offset(start, ends, fail_on_data_loss=False)
    assert [(r.start_offset, r.end_offset) for r in ranges_between(start, end)] == [(1, 30)]


def test_a_log_that_is_not_there_any_more_stops_the_query() -> None:
    """A topic that was deleted, or is no longer subscribed to, is not passed over silently."""
    told = "topic t, partition 1 of the checkpoint was deleted or is no longer subscribed to"
    with pytest.raises(DataLossError, match=told):
        next_offset(at(5, 7), target((0, 10)))
    end = next_offset(at(5, 7), target((0, 10)), fail_on_data_loss=False)
    assert end.offsets == {FIRST: 10, SECOND: 7}
    assert [r.partition for r in ranges_between(at(5, 7), end)] == [0]


def test_a_reader_of_what_is_committed_stays_behind_open_transactions() -> None:
    """The last stable offset ends it; a checkpoint beyond that is not a sign of truncation."""
    marks = LogSnapshot(IDS, {FIRST: PartitionMarks(0, 30, last_stable_offset=20)})
    assert next_offset(at(5), marks).offsets == {FIRST: 20}
    assert waiting_offsets(at(5), marks) == {FIRST: 15}
    assert next_offset(at(25), marks).offsets == {FIRST: 25}
