"""The four offsets of a log: one frozen value, its order, its legal moves."""

import pytest

from engine.state.watermarks import Watermarks
from engine.types import FetchIsolation, OffsetMetadata
from tests.support.kafka import kafka

START = OffsetMetadata(5, 0, 300)
MIDDLE = OffsetMetadata(8, 0, 500)
END = OffsetMetadata(10, 0, 700)


def test_a_new_log_has_all_offsets_in_one_place() -> None:
    """Start, stable, committed and end are one offset at the first byte of its segment."""
    marks = Watermarks.empty_at(7, 7)
    assert marks.log_start_offset == marks.last_stable_offset == 7
    assert marks.high == marks.end == OffsetMetadata(7, 7, 0)


@pytest.mark.parametrize(
    ("log_start", "high", "end"),
    [(6, START, END), (0, END, MIDDLE), (-1, MIDDLE, END), (0, MIDDLE, OffsetMetadata(10))],
    ids=["start above high", "high above end", "negative start", "end without its place"],
)
def test_what_is_out_of_order_cannot_be_made(
    log_start: int, high: OffsetMetadata, end: OffsetMetadata
) -> None:
    """The order of the offsets holds for every value there is."""
    with pytest.raises(AssertionError):
        Watermarks(log_start, high, end)


def test_each_isolation_has_its_bound() -> None:
    """Log end, high watermark, and the earlier of it and the first undecided transaction."""
    marks = Watermarks(0, MIDDLE, END, first_unstable=START)
    assert marks.bound(FetchIsolation.LOG_END) is END
    assert marks.bound(FetchIsolation.HIGH_WATERMARK) is MIDDLE
    assert marks.bound(FetchIsolation.TXN_COMMITTED) is START
    assert marks.last_stable_offset == 5


@pytest.mark.parametrize("unstable", [None, MIDDLE, END], ids=["none", "at it", "above it"])
def test_only_what_is_committed_can_be_unstable(unstable: OffsetMetadata | None) -> None:
    """A transaction that begins at or above the high watermark does not lower the stable end."""
    assert Watermarks(0, MIDDLE, END, first_unstable=unstable).last_stable is MIDDLE


@kafka("UnifiedLogTest.testHighWatermarkMaintenance")
def test_the_end_moves_forward_alone() -> None:
    """An append does not move the high watermark."""
    further = OffsetMetadata(12, 0, 900)
    marks = Watermarks(0, MIDDLE, END, first_unstable=START).with_end(further)
    assert (marks.high, marks.end, marks.first_unstable) == (MIDDLE, further, START)
    with pytest.raises(AssertionError, match="truncate to move"):
        marks.with_end(END)


def test_a_committed_end_follows_a_roll() -> None:
    """A fully committed log stays so when the end moves to a new segment."""
    rolled = OffsetMetadata(10, 10, 0)
    assert Watermarks(0, END, END).with_end(rolled).high is rolled
    assert Watermarks(0, MIDDLE, END).with_end(rolled).high is MIDDLE


def test_the_high_watermark_only_rises() -> None:
    """A lower or equal one changes nothing; the value itself comes back."""
    marks = Watermarks(0, MIDDLE, END)
    assert marks.with_high(START) is marks
    assert marks.with_high(OffsetMetadata(8, 0, 500)) is marks
    assert marks.with_high(OffsetMetadata(9, 0, 600)).high_watermark == 9


def test_the_high_watermark_at_the_end_has_the_ends_place() -> None:
    """After a roll the place of the same offset is the newer segment's."""
    rolled = OffsetMetadata(10, 10, 0)
    assert Watermarks(0, MIDDLE, rolled).with_high(END).high is rolled
    old_place = Watermarks(0, END, rolled)
    assert old_place.with_high(rolled).high is rolled


def test_the_start_only_rises_and_not_above_the_high_watermark() -> None:
    """The lower one is ignored; above the high watermark is a mistake of the caller."""
    marks = Watermarks(3, MIDDLE, END)
    assert marks.with_log_start(5).log_start_offset == 5
    assert marks.with_log_start(2).log_start_offset == 3
    with pytest.raises(AssertionError):
        marks.with_log_start(9)


def test_truncation_takes_everything_above_with_it() -> None:
    """High watermark and start move back with the end; open transactions below it stay unstable."""
    marks = Watermarks(6, MIDDLE, END, first_unstable=MIDDLE)
    cut = marks.truncated(START)
    assert (cut.log_start_offset, cut.high, cut.end) == (5, START, START)
    assert cut.first_unstable is None
    above = marks.truncated(OffsetMetadata(9, 0, 600))
    assert (above.log_start_offset, above.high, above.first_unstable) == (6, MIDDLE, MIDDLE)
    with pytest.raises(AssertionError, match="append to move"):
        cut.truncated(END)


def test_the_same_first_unstable_is_the_same_value() -> None:
    """No new value is built on an append if no transaction began or ended."""
    marks = Watermarks(0, MIDDLE, END, first_unstable=START)
    assert marks.with_first_unstable(OffsetMetadata(5, 0, 300)) is marks
    assert marks.with_first_unstable(None).last_stable is MIDDLE
