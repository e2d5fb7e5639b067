"""The report of a cleaning that took several rounds."""

from dataclasses import replace

from engine.cleaner.cleaner import CleaningReport
from tests.support.builders import EVENTS

FIRST = CleaningReport(
    EVENTS,
    first_dirty_offset=10,
    end_offset=40,
    segments_before=5,
    segments_after=2,
    bytes_before=5_000,
    bytes_after=2_000,
    records_read=500,
    records_kept=200,
    records_without_key=3,
    keys_count=70,
    duration_ms=11,
)


def test_rounds_add_up_to_one_report() -> None:
    """Reads add up; segments that are rewritten twice count once, with first and last size."""
    later = replace(FIRST, first_dirty_offset=40, end_offset=90, records_kept=150)
    larger = replace(
        later, segments_before=7, segments_after=3, bytes_before=9_000, bytes_after=2_500
    )
    both = replace(
        FIRST,
        end_offset=90,
        records_read=1_000,
        records_kept=150,
        records_without_key=6,
        keys_count=140,
        duration_ms=22,
    )
    assert FIRST.followed_by(later) == both
    assert FIRST.followed_by(larger) == replace(
        both, segments_before=7, segments_after=3, bytes_before=9_000, bytes_after=2_500
    )
