"""Appends that must not wait: one write into the page cache, or nothing at all."""

import threading

import pytest

from engine.errors import WouldBlock
from engine.log.log import Log
from tests.support.builders import World, new_batch
from tests.support.logs import fill, with_config

BATCH = new_batch(1, value=b"x" * 100)


def ready(world: World) -> Log:
    """A log with one batch: its indexes are open and its epoch is noted."""
    log = world.open_log(with_config(segment_bytes=10_000, segment_ms=1_000))
    fill(log, batches=1)
    return log


def is_done_at_once(log: Log, batch: bytearray = BATCH) -> bool:
    """Try it: if it would wait, nothing has changed, and a waiting call does it."""
    before = (log.watermarks.log_end_offset, log.reader.segments_count, log.reader.size_bytes)
    try:
        log.append(bytearray(batch), nonblocking=True)
    except WouldBlock:
        assert (
            log.watermarks.log_end_offset,
            log.reader.segments_count,
            log.reader.size_bytes,
        ) == before
        log.append(bytearray(batch))
        return False
    return True


def test_the_first_append_is_more_than_a_write() -> None:
    """It notes on disk where the epoch begins; the second does not."""
    log = World().open_log()
    assert [is_done_at_once(log), is_done_at_once(log)] == [False, True]


def test_what_has_no_room_rolls() -> None:
    """The bytes that fit go into the active segment, one more does not."""
    log = ready(World())
    room_bytes = 10_000 - log.reader.size_bytes
    batches = (new_batch(1, value=b"x" * size) for size in range(room_bytes - 100, room_bytes))
    fitting = next(batch for batch in batches if len(batch) == room_bytes)
    assert [is_done_at_once(log, fitting), is_done_at_once(log)] == [True, False]


def test_a_new_segment_opens_its_indexes_first() -> None:
    """After a roll the first append opens files."""
    log = ready(World())
    log.roll()
    assert [is_done_at_once(log), is_done_at_once(log)] == [False, True]


def test_a_record_of_the_far_future_rolls() -> None:
    """A segment's age follows record times, so a client's clock can make an append roll."""
    world = World()
    log = ready(world)
    future = new_batch(1, timestamp=world.clock.now_ms() + 10_000)
    assert [is_done_at_once(log, future), log.reader.segments_count] == [False, 2]


def test_a_segment_that_was_found_is_looked_at_first() -> None:
    """When its first record came is read from the file, once."""
    world = World()
    ready(world).close()
    log = world.open_log(with_config(segment_bytes=10_000, segment_ms=1_000))
    assert [is_done_at_once(log), is_done_at_once(log)] == [False, True]


def test_a_lock_that_others_hold_is_not_waited_for() -> None:
    """The holder of a log's lock may sync under it: a truncation does."""
    log = ready(World())
    entered, over = threading.Event(), threading.Event()

    def hold() -> None:
        with log._core.lock:  # noqa: SLF001 - as a truncation holds it
            entered.set()
            assert over.wait(60)

    holding = threading.Thread(target=hold)
    holding.start()
    assert entered.wait(60)
    with pytest.raises(WouldBlock):
        log.append(bytearray(BATCH), nonblocking=True)
    over.set()
    holding.join()
    assert is_done_at_once(log)


def test_a_read_that_must_not_wait_opens_no_index() -> None:
    """The segment that an append has rolled to has no open index, until a call that may wait."""
    log = ready(World())
    log.append(new_batch(1, value=b"x" * 9_900))
    log.durability.commit()
    assert log.reader.segments_count == 2
    assert log.reader.read(1, max_bytes=1, cached_only=True) is None
    assert log.reader.read(1, max_bytes=1) is not None
    assert log.reader.read(1, max_bytes=1, cached_only=True) is not None
