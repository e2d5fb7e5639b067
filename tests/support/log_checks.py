"""Everything that can be asked of a log, asked, and compared with the model of it."""

from __future__ import annotations

import pytest

from engine.errors import OffsetBelowLogStart, OffsetBeyondLogEnd
from engine.log.log import Log
from engine.types import FetchIsolation
from tests.support.log_model import LogModel, delivered
from tests.support.logs import ALL_BYTES, read_pieces


def check_marks(log: Log, model: LogModel) -> None:
    """Where the log starts, is stable, is committed and ends."""
    log.maintenance.check_invariants()
    marks = log.watermarks
    assert marks.log_start_offset == model.log_start
    assert marks.last_stable_offset in model.last_stable_offsets
    assert marks.high_watermark == model.high_watermark
    assert marks.log_end_offset == model.end
    assert log.reader.leader_epoch == model.leader_epoch
    ends = [segment.next_offset for segment in log.reader.listing().segments]
    assert [segment.base_offset for segment in log.reader.listing().segments][1:] == ends[:-1]
    assert ends[-1] == model.end


def bound_of(log: Log, isolation: FetchIsolation) -> int:
    return log.watermarks.bound(isolation).offset


def check_whole(log: Log, model: LogModel) -> None:
    """All bytes that each kind of reader gets, from the log start to its end."""
    for isolation in FetchIsolation:
        due = model.due(model.log_start, bound_of(log, isolation))
        expected = b"".join(batch.data for batch in delivered(due, isolation))
        assert b"".join(read_pieces(log, isolation=isolation)) == expected


def check_read(
    log: Log,
    model: LogModel,
    offset: int,
    *,
    max_bytes: int = 1,
    isolation: FetchIsolation = FetchIsolation.HIGH_WATERMARK,
    end_offset: int | None = None,
) -> None:
    """One read: whole batches within the budget, at least one, and where to read on."""
    bound = bound_of(log, isolation)
    due = model.due(offset, bound, end_offset)
    count, size = 0, 0
    while count < len(due) and (count == 0 or size + len(due[count].data) <= max_bytes):
        size += len(due[count].data)
        count += 1
    fetched = log.reader.read(
        offset, max_bytes=max_bytes, isolation=isolation, end_offset=end_offset
    )
    assert fetched is not None
    expected = delivered(due[:count], isolation)
    assert bytes(fetched.data) == b"".join(batch.data for batch in expected)
    behind = model.due(offset, bound)[count:]
    lowest = due[count - 1].next_offset if count else offset
    highest = max(lowest, behind[0].base_offset if behind else bound)
    assert lowest <= fetched.next_offset <= highest
    if not behind and not count and end_offset is None:
        assert fetched.next_offset == max(offset, bound), "a reader stands still before a gap"


def check_outside(log: Log, model: LogModel) -> None:
    """Below the start and beyond the end nothing is read."""
    with pytest.raises(OffsetBeyondLogEnd):
        log.reader.read(model.end + 1, max_bytes=ALL_BYTES)
    if model.log_start:
        with pytest.raises(OffsetBelowLogStart):
            log.reader.read(model.log_start - 1, max_bytes=ALL_BYTES)


def check_time(log: Log, model: LogModel, timestamp_ms: int) -> None:
    """The first record of at least that time, if it is committed.

    Nothing may be found if a batch claims the time whose record was compacted away, or a segment of
    which nothing is left.
    """
    expected = model.first_record(lambda record: record[1] >= timestamp_ms)
    found = log.reader.offset_for_time(timestamp_ms)
    if expected is None or expected[0] >= model.high_watermark:
        assert found is None
    elif found is None:
        assert log.config.is_compacted
        assert model.has_emptied_batch(timestamp_ms, end_offset=expected[0]) or any(
            segment.size_bytes == 0 and segment.base_offset < expected[0]
            for segment in log.reader.listing().segments
        )
    else:
        assert found is not None
        assert (found.offset, found.timestamp) == expected[:2]


def check_newest(log: Log, model: LogModel) -> None:
    """The first record with the largest time of all, if it is committed."""
    largest = max((record[1] for record in model.present_records()), default=None)
    expected = model.first_record(lambda record: record[1] == largest)
    found = log.reader.max_timestamp()
    if expected is None or expected[0] >= model.high_watermark:
        assert found is None
    else:
        assert found is not None
        assert (found.offset, found.timestamp) == expected[:2]


def check_look_ups(log: Log, model: LogModel, *, step: int, first: int = 0) -> None:
    """Every `step`th offset, and every `step`th time that a record has and the one after it."""
    for offset in range(model.log_start + first, model.end + 1, step):
        for isolation in FetchIsolation:
            check_read(log, model, offset, isolation=isolation)
    times = sorted({record[1] for record in model.present_records()})
    for timestamp in times[first::step]:
        check_time(log, model, timestamp)
        check_time(log, model, timestamp + 1)
    check_time(log, model, 0)
    check_newest(log, model)
