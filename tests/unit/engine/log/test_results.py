"""The results of an append of several batches, or of several clients' records."""

import pytest

from engine.log.log import Log
from tests.support.builders import World, new_batch
from tests.support.logs import with_config
from tests.support.time import START_MS


def opened(timestamp_type: str) -> Log:
    return World().open_log(with_config(message_timestamp_type=timestamp_type))


@pytest.mark.parametrize("timestamp_type", ["CreateTime", "LogAppendTime"])
def test_batches_of_our_own_are_told_one_by_one(timestamp_type: str) -> None:
    """Each of several has the offsets, the time and the tag that it would have had alone."""
    together, alone = opened(timestamp_type), opened(timestamp_type)
    batches = [
        new_batch(count, timestamp=START_MS + later) for count, later in ((2, 5), (1, 9), (3, 7))
    ]
    appended = together.append(bytearray().join(batches), checked=True)
    told = list(appended.one_by_one())
    for batch, one in zip(batches, told, strict=True):
        expected = alone.append(batch, checked=True)
        assert one[:5] == expected[:5]
        assert one.tag == expected.tag
    assert (appended.base_offset, appended.last_offset, appended.records_count) == (0, 5, 6)
    assert appended.timestamp == max(one.timestamp for one in told)
    assert together.reader.tag == alone.reader.tag


@pytest.mark.parametrize("timestamp_type", ["CreateTime", "LogAppendTime"])
def test_a_batch_is_shared_out_to_those_whose_records_it_has(timestamp_type: str) -> None:
    """Each gets its own offsets and time, unless the topic has log-append time."""
    log = opened(timestamp_type)
    log.append(new_batch(4), checked=True)
    appended = log.append(new_batch(6), checked=True)
    shares = ((2, START_MS - 5), (1, START_MS), (3, START_MS - 8))
    told = list(appended.shared_out(shares))
    assert [(one.base_offset, one.last_offset, one.records_count) for one in told] == [
        (4, 5, 2),
        (6, 6, 1),
        (7, 9, 3),
    ]
    is_stamped = timestamp_type == "LogAppendTime"
    expected = [appended.timestamp if is_stamped else time for _, time in shares]
    assert [one.timestamp for one in told] == expected
    assert {one.watermarks for one in told} == {appended.watermarks}
    assert told[-1].tag == log.reader.tag
    assert [one.tag.log_end_offset for one in told] == [6, 7, 10]
    assert not any(one.is_duplicate for one in told)
