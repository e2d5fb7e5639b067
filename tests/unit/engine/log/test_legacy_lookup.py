"""Where segments begin by the times of their files, as clients asked before records had times."""

import pytest

from engine.log.log import Log
from engine.log.lookup import EARLIEST, LATEST
from tests.support.builders import World
from tests.support.logs import CONFIG, append_values, fill_segments
from tests.support.time import START_MS

MINUTE_MS = 60_000


@pytest.fixture
def world() -> World:
    return World()


def three_segments(world: World) -> Log:
    """Segments 0, 2 and 4, last written in successive minutes; the log ends at 5."""
    log = world.open_log(CONFIG)
    fill_segments(log, 2, 2, 1)
    log.commit()
    for minute, segment in enumerate(log.segments):
        segment.set_modified_ms(START_MS + minute * MINUTE_MS)
    world.clock.advance(3 * MINUTE_MS)
    return log


def test_segments_are_found_by_the_times_of_their_files(world: World) -> None:
    """From the last one that was written by then, backwards; nothing before the first."""
    log = three_segments(world)
    at_second = START_MS + MINUTE_MS
    assert log.offsets_before(at_second, 10) == [2, 0]
    assert log.offsets_before(at_second - 1, 10) == [0]
    assert log.offsets_before(START_MS - 1, 10) == []
    assert log.offsets_before(START_MS + 2 * MINUTE_MS, 2) == [4, 2]
    assert log.offsets_before(START_MS + 3 * MINUTE_MS, 1) == [5], "now, the log end counts too"


def test_the_two_ends_have_times_of_their_own(world: World) -> None:
    """-1 begins at the log end and goes back, -2 is the log start alone."""
    log = three_segments(world)
    assert log.offsets_before(LATEST, 1) == [5]
    assert log.offsets_before(LATEST, 10) == [5, 4, 2, 0]
    assert log.offsets_before(EARLIEST, 10) == [0]
    assert log.offsets_before(LATEST, 0) == []


def test_a_segment_counts_from_the_log_start(world: World) -> None:
    """What lies below the log start is offered to nobody."""
    log = three_segments(world)
    log.delete_records(3)
    assert log.offsets_before(LATEST, 10) == [5, 4, 3, 3]
    assert log.offsets_before(EARLIEST, 1) == [3]


def test_an_empty_last_segment_has_no_end_of_its_own(world: World) -> None:
    """It begins at the log end, which is not told twice."""
    log = three_segments(world)
    log.roll()
    assert log.offsets_before(LATEST, 2) == [5, 4]


def test_what_is_not_committed_is_told_as_the_high_watermark(world: World) -> None:
    """Once, however many places lie above it."""
    log = three_segments(world)
    append_values(log, b"later")
    log.roll()
    append_values(log, b"latest")
    assert log.offsets_before(LATEST, 10) == [5, 4, 2, 0]
    log.commit()
    assert log.offsets_before(LATEST, 10) == [7, 6, 4, 2, 0]
