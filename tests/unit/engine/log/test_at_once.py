"""Whether an append would be one write and nothing else: for who must not wait."""

from engine.log.log import Log
from tests.support.builders import World, new_batch
from tests.support.logs import fill, with_config

ROOM = 100


def ready(world: World) -> Log:
    """A log with one batch: its indexes are open and its epoch is noted."""
    log = world.open_log(with_config(segment_bytes=10_000, segment_ms=1_000))
    fill(log, batches=1)
    return log


def test_the_first_append_is_more_than_a_write() -> None:
    """It notes on disk where the epoch begins; the second does not."""
    log = World().open_log()
    assert not log.takes_at_once(ROOM)
    fill(log, batches=1)
    assert log.takes_at_once(ROOM)


def test_what_has_no_room_rolls() -> None:
    """The bytes that fit go into the active segment, one more does not."""
    log = ready(World())
    room = 10_000 - log.size_bytes
    assert [log.takes_at_once(room), log.takes_at_once(room + 1)] == [True, False]


def test_a_new_segment_opens_its_indexes_first() -> None:
    """After a roll the first append opens files."""
    log = ready(World())
    log.roll()
    assert not log.takes_at_once(ROOM)
    fill(log, batches=1)
    assert log.takes_at_once(ROOM)


def test_a_segment_that_is_old_enough_rolls() -> None:
    """By the clock: what has the present time would be too late for the segment."""
    world = World()
    log = ready(world)
    world.clock.advance(10_000)
    assert not log.takes_at_once(ROOM)


def test_a_segment_that_was_found_is_looked_at_first() -> None:
    """When its first record came is read from the file, once."""
    world = World()
    ready(world).close()
    log = world.open_log(with_config(segment_bytes=10_000, segment_ms=1_000))
    assert not log.takes_at_once(ROOM)
    fill(log, batches=1)
    assert log.takes_at_once(ROOM)


def test_a_read_that_must_not_wait_opens_no_index() -> None:
    """The segment that an append has rolled to has none open, until somebody may wait for that."""
    log = ready(World())
    log.append(new_batch(1, value=b"x" * 9_900))
    log.commit()
    assert log.segments_count == 2
    assert log.read(1, max_bytes=1, cached_only=True) is None
    assert log.read(1, max_bytes=1) is not None
    assert log.read(1, max_bytes=1, cached_only=True) is not None
