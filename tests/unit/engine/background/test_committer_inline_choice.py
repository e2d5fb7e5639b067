"""When the thread that asks for a round runs it itself."""

import pytest

from engine.background.committer import (
    LASTING,
    LOOK_AFTER,
    LOOK_AFTER_AT_MOST,
    InlineChoice,
)

QUICK, LONG = 0.0009, 0.0011


@pytest.fixture
def choice() -> InlineChoice:
    return InlineChoice(limit_ms=1)


def let_the_flusher_work(choice: InlineChoice, seconds: float, rounds: int) -> None:
    for _ in range(rounds):
        choice.note(seconds, was_inline=False)


def flusher_rounds_until_inline(choice: InlineChoice) -> int:
    rounds = 0
    while not choice.is_inline:
        choice.note(QUICK, was_inline=False)
        rounds += 1
    return rounds


def test_rounds_are_inline_once_the_flusher_has_shown_that_they_are_quick(
    choice: InlineChoice,
) -> None:
    """One quick round of some is enough: others may have waited for a processor."""
    let_the_flusher_work(choice, LONG, LOOK_AFTER - 1)
    assert flusher_rounds_until_inline(choice) == 1
    choice.note(QUICK, was_inline=True)
    assert choice.is_inline


def test_the_first_slow_round_is_the_last_inline_one(choice: InlineChoice) -> None:
    """A disk that has become slow holds its caller up once."""
    let_the_flusher_work(choice, QUICK, LOOK_AFTER)
    choice.note(LONG, was_inline=True)
    assert not choice.is_inline


def test_a_slow_disk_is_not_tried_again(choice: InlineChoice) -> None:
    """While each of the flusher's rounds is slow, no caller waits for one."""
    let_the_flusher_work(choice, LONG, 10 * LOOK_AFTER_AT_MOST)
    assert not choice.is_inline


def test_attempts_that_fail_become_seldom(choice: InlineChoice) -> None:
    """A disk that is quick now and then, but not for long."""
    intervals = []
    for _ in range(12):
        intervals.append(flusher_rounds_until_inline(choice))
        choice.note(LONG, was_inline=True)
    assert intervals[:3] == [LOOK_AFTER, 2 * LOOK_AFTER, 4 * LOOK_AFTER]
    assert intervals[-1] == LOOK_AFTER_AT_MOST


def test_one_slow_round_among_many_quick_ones_is_soon_forgotten(choice: InlineChoice) -> None:
    """The interval is short again after inline rounds that lasted."""
    for _ in range(3):
        flusher_rounds_until_inline(choice)
        choice.note(LONG, was_inline=True)
    flusher_rounds_until_inline(choice)
    for _ in range(LASTING):
        choice.note(QUICK, was_inline=True)
    choice.note(LONG, was_inline=True)
    assert flusher_rounds_until_inline(choice) == LOOK_AFTER


def test_without_a_limit_no_round_is_inline() -> None:
    """A limit of 0 leaves all rounds to the flusher."""
    choice = InlineChoice(limit_ms=0)
    let_the_flusher_work(choice, QUICK, 10 * LOOK_AFTER)
    assert not choice.is_inline
