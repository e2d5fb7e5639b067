"""Who listens to a log is told where its high watermark is, and whenever it moves."""

from engine.log.loader import LoadRequest
from engine.log.log import Log
from engine.types import FetchIsolation
from tests.support.builders import EVENTS, TOPIC_ID, World
from tests.support.logs import CONFIG, DIRECTORY, append_values, fill


def test_a_listener_is_told_every_move() -> None:
    """At the start, at each commit that shows something, and when the log is cut.

    (UL.testLogOffsetsListener)
    """
    log = World().open_log(CONFIG)
    heard: list[int] = []
    log.listen(heard.append)
    assert heard == [], "where it is was known before"
    fill(log, batches=3)
    assert heard == []
    log.commit()
    log.commit()
    log.roll()
    log.commit()
    assert heard == [3]
    append_values(log, b"more")
    log.flush()
    log.delete_records(2)
    log.truncate_to(3)
    log.truncate_to(1)
    assert heard == [3, 4, 3, 1]
    log.truncate_fully(9)
    assert heard == [3, 4, 3, 1, 9]


def test_a_listener_of_the_opening_is_told_where_the_log_is() -> None:
    """What a clean stop left is visible at once, and that is told."""
    world = World()
    log = world.open_log(CONFIG)
    fill(log, batches=2)
    log.flush()
    log.close()
    heard: list[int] = []
    request = LoadRequest(DIRECTORY, CONFIG, 2, 0, was_clean=True)
    Log.open(world.context(), EVENTS, TOPIC_ID, request, on_high_watermark=heard.append)
    assert heard == [2]


def test_a_listener_gives_way_to_the_next() -> None:
    """One is told from its own time on, the other no longer (UL.testUpdateLogOffsetsListener)."""
    log = World().open_log(CONFIG)
    earlier: list[int] = []
    later: list[int] = []
    log.listen(earlier.append)
    append_values(log, b"a")
    log.commit()
    log.listen(later.append)
    append_values(log, b"b")
    log.commit()
    assert (earlier, later) == ([1], [2])


def test_what_a_listener_was_told_can_be_read() -> None:
    """Readers see the offset before the listener does."""
    log = World().open_log(CONFIG)
    seen: list[tuple[int, int, int]] = []

    def look(high_watermark: int) -> None:
        fetched = log.read(0, max_bytes=1000, isolation=FetchIsolation.TXN_COMMITTED)
        assert fetched is not None
        seen.append((high_watermark, fetched.watermarks.high_watermark, fetched.next_offset))

    log.listen(look)
    append_values(log, b"a", b"b")
    log.commit()
    assert seen == [(2, 2, 2)]


def test_a_cut_is_told_before_it_is_made() -> None:
    """Nobody is sent to read where bytes are about to go."""
    log = World().open_log(CONFIG)
    fill(log, batches=3)
    log.commit()
    size_bytes = log.size_bytes
    heard: list[tuple[int, int]] = []
    log.listen(lambda high_watermark: heard.append((high_watermark, log.size_bytes)))
    log.truncate_to(1)
    assert heard == [(1, size_bytes)]
    assert log.size_bytes < size_bytes
