"""A listing of segments during the first append after a roll changes nothing.

The first reader set the largest record time of a segment. A reader that was suspended between its
read of the time index and its assignment wrote "no time yet" over the time of an append.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from engine.log.log import Log
from engine.segment.indexes import SegmentIndexes
from engine.types import TimestampOffset
from tests.support.builders import World
from tests.support.logs import append_values, with_config
from tests.support.time import START_MS

HOUR_MS = 3_600_000


def list_segments_with(
    monkeypatch: pytest.MonkeyPatch, log: Log, meanwhile: Callable[[], object]
) -> None:
    """List the segments; `meanwhile` runs when the listing has looked at a time index.

    A listing that looks at none is followed by it.
    """
    pending = [meanwhile]
    look: Callable[[SegmentIndexes], object] = vars(SegmentIndexes)["time"].fget

    def look_and_be_suspended(indexes: SegmentIndexes) -> object:
        index = look(indexes)
        while pending:
            pending.pop()()
        return index

    with monkeypatch.context() as patched:
        patched.setattr(SegmentIndexes, "time", property(look_and_be_suspended))
        log.reader.listing()
    while pending:
        pending.pop()()


def test_a_time_noted_while_segments_are_listed_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """By a look-up, in the time index, and after a restart."""
    world = World()
    log = world.open_log(with_config(index_interval_bytes=1))
    append_values(log, b"before")
    log.roll()
    late_ms = START_MS + 5_000
    list_segments_with(monkeypatch, log, lambda: append_values(log, b"late", timestamp=late_ms))
    for number in range(3):
        append_values(log, b"early", timestamp=START_MS + number)
    log.durability.commit()
    assert log.reader.segments[-1].maximum == TimestampOffset(late_ms, 1)
    assert [*log.reader.segments[-1].indexes.time.entries()] == [TimestampOffset(late_ms, 1)]
    found = log.reader.offset_for_time(late_ms)
    assert found is not None
    assert found.offset == 1
    log.close()
    again = world.open_log(with_config(index_interval_bytes=1), was_clean=True)
    assert again.reader.offset_for_time(late_ms) == found


def test_retention_keeps_a_record_that_was_appended_while_segments_were_listed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Old records follow it into its segment, which is as young as its youngest record."""
    world = World()
    log = world.open_log(with_config(retention_ms=HOUR_MS))
    now_ms = world.clock.now_ms()
    append_values(log, b"old", timestamp=now_ms - 2 * HOUR_MS)
    log.roll()
    list_segments_with(monkeypatch, log, lambda: append_values(log, b"new", timestamp=now_ms))
    append_values(log, b"old", timestamp=now_ms - 2 * HOUR_MS)
    log.roll()
    append_values(log, b"newer", timestamp=now_ms)
    log.durability.commit()
    assert [removed.base_offset for removed in log.maintenance.run_retention()] == [0]
