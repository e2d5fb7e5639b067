"""Which logs are flushed in which round: plain numbers, no thread."""

from engine.background.committer import (
    OVERDUE_PER_ROUND,
    URGENT_PER_ROUND,
    FlushQueue,
    flush_deadline_ms,
)
from engine.config import LogConfig
from tests.support.kafka import kafka


def test_the_commit_interval_bounds_the_wait_whatever_the_topic_says() -> None:
    """A topic without flush settings is flushed after the commit interval."""
    assert flush_deadline_ms(LogConfig(), commit_interval_ms=50, now_ms=1_000) == 1_050


@kafka("LogManagerTest.testTimeBasedFlush")
def test_flush_ms_only_makes_it_sooner() -> None:
    """A short flush.ms moves the deadline forward, a long one does not move it back."""
    soon, late = LogConfig(flush_ms=10), LogConfig(flush_ms=10_000)
    assert flush_deadline_ms(soon, commit_interval_ms=50, now_ms=1_000) == 1_010
    assert flush_deadline_ms(late, commit_interval_ms=50, now_ms=1_000) == 1_050


def test_an_urgent_log_is_due_at_once() -> None:
    """A log with a waiter is taken in the next round, and once."""
    queue: FlushQueue[str] = FlushQueue()
    queue.add_urgent("a")
    queue.add_urgent("a")
    assert queue.wait_ms(0) == 0
    assert queue.take_round(0) == ["a"]
    assert queue.take_round(0) == []


def test_a_log_without_waiters_is_due_at_its_deadline() -> None:
    """Nothing is taken before the deadline, everything at it."""
    queue: FlushQueue[str] = FlushQueue()
    queue.add("a", 50)
    assert queue.wait_ms(20) == 30
    assert queue.take_round(49) == []
    assert queue.take_round(50) == ["a"]


def test_an_earlier_deadline_stays() -> None:
    """The oldest unflushed byte decides; a nearer deadline replaces a farther one."""
    queue: FlushQueue[str] = FlushQueue()
    queue.add("a", 50)
    queue.add("a", 90)
    assert queue.wait_ms(0) == 50
    queue.add("a", 20)
    assert queue.wait_ms(0) == 20


def test_a_waiter_makes_a_waiting_log_urgent() -> None:
    """A log is in the queue once: urgent replaces a deadline and no deadline replaces urgent."""
    queue: FlushQueue[str] = FlushQueue()
    queue.add("a", 50)
    queue.add_urgent("a")
    queue.add("a", 70)
    assert (list(queue.urgent), queue.deadlines) == (["a"], {})
    assert queue.take_round(0) == ["a"]


def test_a_deadline_in_the_past_is_no_negative_wait() -> None:
    """A deadline that has passed gives no wait."""
    queue: FlushQueue[str] = FlushQueue()
    queue.add("a", 50)
    assert queue.wait_ms(80) == 0


def test_an_empty_queue_waits_for_ever() -> None:
    """Without a log there is nothing to wake up for."""
    queue: FlushQueue[str] = FlushQueue()
    assert queue.wait_ms(0) is None
    assert not queue.is_waiting("a")


def test_the_first_waiters_come_first_and_the_rest_next() -> None:
    """A round is bounded, so that the first waiter is not held up by the hundredth."""
    queue: FlushQueue[int] = FlushQueue()
    for number in range(URGENT_PER_ROUND + 1):
        queue.add_urgent(number)
    assert queue.take_round(0) == list(range(URGENT_PER_ROUND))
    assert queue.take_round(0) == [URGENT_PER_ROUND]


def test_overdue_logs_get_their_share_of_a_busy_round() -> None:
    """Logs past their deadline join urgent ones, the most overdue first, a few per round."""
    queue: FlushQueue[int] = FlushQueue()
    for number in range(URGENT_PER_ROUND):
        queue.add_urgent(number)
    for number in range(OVERDUE_PER_ROUND + 1):
        queue.add(1_000 + number, 50 - number)
    taken = queue.take_round(50)
    assert taken[:URGENT_PER_ROUND] == list(range(URGENT_PER_ROUND))
    assert taken[URGENT_PER_ROUND:] == [
        1_000 + OVERDUE_PER_ROUND - n for n in range(OVERDUE_PER_ROUND)
    ]
    assert queue.take_round(50) == [1_000]


def test_taking_everything_leaves_nothing() -> None:
    """A stop takes the urgent logs and those whose time has not come."""
    queue: FlushQueue[str] = FlushQueue()
    queue.add("later", 1_000)
    queue.add_urgent("now")
    assert queue.is_waiting("later")
    assert queue.is_waiting("now")
    assert queue.take_all() == ["now", "later"]
    assert not queue.urgent
    assert not queue.deadlines
