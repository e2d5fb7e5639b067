"""Checks that the result of a work is the state of the log at some moment of it.

Before or after, nothing in between. Moments are those at which the work's thread ran: it cannot
have seen what others did and undid between two of them.
"""

from __future__ import annotations

from itertools import pairwise
from typing import cast

from engine.background.scrubber import ScrubReport
from engine.errors import (
    LogReplaced,
    OffsetBelowLogStart,
    OffsetBeyondLogEnd,
    ProducerError,
    Recovering,
    SegmentNotFound,
)
from engine.log.read.extent import Split
from engine.log.read.segment_files import SegmentFile
from engine.log.results import Fetched, Listing
from engine.state.watermarks import Watermarks
from engine.types import INT64_MAX, FetchIsolation, TimestampAndOffset
from tests.interleavings.history import History
from tests.interleavings.outcome import Outcome
from tests.support.compacted_model import newest_of_keys
from tests.support.log_model import Content, Stored, delivered
from tests.support.logs import batches_in


def succeeded(history: History, outcome: Outcome) -> None:
    """Nothing was raised."""
    if outcome.error is not None:
        raise outcome.error


def accepted_unless_cut(history: History, outcome: Outcome) -> None:
    """A producer is refused only if a truncation took its last batches."""
    if not (isinstance(outcome.error, ProducerError) and history.is_cut):
        succeeded(history, outcome)


def possible_unless_cut(history: History, outcome: Outcome) -> None:
    """Records can be deleted below an offset that was committed, unless it was cut off."""
    if not (isinstance(outcome.error, OffsetBeyondLogEnd) and history.is_cut):
        succeeded(history, outcome)


def moved_unless_cut(history: History, outcome: Outcome) -> None:
    """A move is given up only for a truncation."""
    if not (isinstance(outcome.error, Recovering) and history.is_cut):
        succeeded(history, outcome)


def committed(history: History, outcome: Outcome) -> None:
    """All that had been appended when the commit began is shown, unless it was cut off."""
    succeeded(history, outcome)
    began = outcome.moments[0]
    if not history.is_cut:
        assert cast("int", outcome.result) >= began.marks.log_end_offset


def was_scrubbed(history: History, outcome: Outcome) -> None:
    """The scrubber finds nothing wrong."""
    succeeded(history, outcome)
    report = cast("ScrubReport | None", outcome.result)
    assert report is None or report.damage == ()


# -- reads ---------------------------------------------------------------------------------------


def was_read(
    history: History, outcome: Outcome, *, offset: int, max_bytes: int, isolation: FetchIsolation
) -> None:
    """The very batches of one moment, below the bound of that moment."""
    if _was_outside(outcome, offset):
        return
    succeeded(history, outcome)
    if outcome.result is None:
        return  # it was requested only if cached
    fetched = cast("Fetched", outcome.result)
    marks = fetched.watermarks
    _ensure_of_a_moment(history, outcome, marks)
    assert offset >= marks.log_start_offset
    bound = marks.bound(isolation).offset
    model = history.model_of(fetched.leader_epoch)
    due = model.due(offset, bound)
    if history.scene.is_compacted:
        _ensure_compacted(history, fetched, due, offset=offset)
        return
    count, size = 0, 0
    while count < len(due) and (count == 0 or size + len(due[count].data) <= max_bytes):
        size += len(due[count].data)
        count += 1
    expected = b"".join(batch.data for batch in delivered(due[:count], isolation))
    assert bytes(fetched.data) == expected, _difference(fetched, due[:count])
    lowest = due[count - 1].next_offset if count else offset
    following = due[count].base_offset if count < len(due) else bound
    assert lowest <= fetched.next_offset <= max(lowest, following)


def _ensure_of_a_moment(history: History, outcome: Outcome, marks: Watermarks) -> None:
    """A work that began before the log was moved continues in its old files, up to their end."""
    is_of_one = any(moment.marks == marks for moment in outcome.moments)
    assert is_of_one or history.moved, "offsets of no moment"


def _difference(fetched: Fetched, due: list[Stored]) -> str:
    found = [
        (batch.header.base_offset, batch.header.leader_epoch) for batch in batches_in(fetched.data)
    ]
    expected = [(batch.base_offset, batch.header.leader_epoch) for batch in due]
    return f"epoch {fetched.leader_epoch}: read {found}, due {expected}"


def _ensure_compacted(
    history: History, fetched: Fetched, due: list[Stored], *, offset: int
) -> None:
    """Only records that were appended, and each that nothing later replaced at any time."""
    model = history.model_of(fetched.leader_epoch)
    known = {record[0]: record for batch in model.batches for record in batch.records}
    found: set[int] = set()
    for batch in batches_in(fetched.data):
        batch.ensure_intact()
        for record in batch.records():
            content = (record.offset, record.timestamp, record.key, record.value)
            assert known.get(record.offset) == content, "a record that nobody appended"
            found.add(record.offset)
    models = history.models.values()
    newest = newest_of_keys(models, 0, INT64_MAX)
    aborted = {one.base_offset for model in models for one in model.batches if one.is_aborted}
    for stored in due:
        if stored.header.is_control or stored.is_aborted or stored.base_offset in aborted:
            continue
        for at, _, key, value in stored.records:
            if offset <= at < fetched.next_offset and newest[key] == at and value is not None:
                assert at in found, f"the newest of {key!r} is missing"


def _was_outside(outcome: Outcome, offset: int) -> bool:
    """Whether a reader was correctly refused because its offset was out of range."""
    if isinstance(outcome.error, OffsetBelowLogStart):
        return any(moment.marks.log_start_offset > offset for moment in outcome.moments)
    if isinstance(outcome.error, OffsetBeyondLogEnd):
        return any(moment.marks.high_watermark < offset for moment in outcome.moments)
    return False


# -- look-ups ------------------------------------------------------------------------------------


def was_first_at(history: History, outcome: Outcome, timestamp_ms: int) -> None:
    """The first record of at least that time, at one of the moments."""
    succeeded(history, outcome)
    found = cast("TimestampAndOffset | None", outcome.result)
    if history.scene.is_compacted:
        _ensure_real(history, outcome, found)
        assert found is None or found.timestamp >= timestamp_ms
        return
    answers = [one for moment in outcome.moments for one in history.first_at(moment, timestamp_ms)]
    _ensure_one_of(found, answers)


def was_newest(history: History, outcome: Outcome) -> None:
    """The first record with the largest time, at one of the moments."""
    succeeded(history, outcome)
    found = cast("TimestampAndOffset | None", outcome.result)
    if history.scene.is_compacted:
        _ensure_real(history, outcome, found)
        return
    answers = [one for moment in outcome.moments for one in history.newest_at(moment)]
    _ensure_one_of(found, answers)


def _ensure_one_of(found: TimestampAndOffset | None, expected: list[Content | None]) -> None:
    right = {None if one is None else one[:2] for one in expected}
    assert (None if found is None else (found.offset, found.timestamp)) in right, (found, right)


def _ensure_real(history: History, outcome: Outcome, found: TimestampAndOffset | None) -> None:
    """It was appended, and committed at the end of the look-up."""
    if found is None:
        return
    records = [
        record[:2]
        for model in history.models.values()
        for batch in model.batches
        for record in batch.records
    ]
    assert (found.offset, found.timestamp) in records
    assert found.offset < max(moment.marks.high_watermark for moment in outcome.moments)


def was_listed(history: History, outcome: Outcome) -> None:
    """Segments that tile the log, each with the largest time of its records."""
    succeeded(history, outcome)
    infos = cast("Listing", outcome.result).segments
    assert [one.next_offset for one in infos[:-1]] == [one.base_offset for one in infos[1:]]
    ends = {moment.marks.log_end_offset for moment in outcome.moments}
    if history.moved:  # in the files that the log has left it is as it was at any time before
        ends |= {batch.next_offset for model in history.models.values() for batch in model.batches}
    assert infos[-1].next_offset in ends | {infos[-1].base_offset}
    assert [one.is_active for one in infos] == [False] * (len(infos) - 1) + [True]
    for earlier, later in pairwise(infos):
        assert earlier.base_offset < later.base_offset


def was_split(history: History, outcome: Outcome, *, start: int, end: int) -> None:
    """The whole range, without gap or overlap."""
    if _was_outside(outcome, start) or _was_outside(outcome, end):
        return
    succeeded(history, outcome)
    parts = cast("list[Split]", outcome.result)
    starts = [part.start_offset for part in parts]
    ends = [part.end_offset for part in parts]
    if start < end:
        assert (starts[0], ends[-1]) == (start, end)
        assert starts[1:] == ends[:-1]


def was_downloaded(history: History, outcome: Outcome) -> None:
    """The batches of one segment up to the high watermark of one moment."""
    if isinstance(outcome.error, SegmentNotFound):
        return
    if isinstance(outcome.error, LogReplaced) and history.is_cut:
        return
    succeeded(history, outcome)
    file, data = cast("tuple[SegmentFile, bytes]", outcome.result)
    _ensure_of_a_moment(history, outcome, file.marks)
    assert len(data) == file.size_bytes
    if history.scene.is_compacted:
        list(batches_in(data))
        return
    base_offset = file.segment.base_offset
    expected = [
        b"".join(
            batch.data
            for batch in model.batches
            if base_offset <= batch.base_offset < file.next_offset
        )
        for model in history.models.values()
    ]
    assert data in expected
