"""The checker of histories finds faults."""

import pytest

from tests.support.histories import Appended, Observed, contradiction

# Two appends, one after the other.
APPENDS = [Appended(0, 1, 2), Appended(1, 3, 4)]


@pytest.mark.parametrize(
    ("appends", "observations"),
    [
        ([], []),
        ([], [Observed(0, 1, 2)]),
        (APPENDS, [Observed(0, 0, 1), Observed(1, 2, 3), Observed(2, 4, 5)]),
        (APPENDS, [Observed(0, 1.5, 9), Observed(2, 3, 3.5)]),  # while calls are running
        (APPENDS, [Observed(1, 1.5, 9), Observed(1, 1.5, 1.8), Observed(2, 1.5, 3.5)]),
        ([Appended(0, 5, 9), Appended(1, 1, 6)], []),  # at once: either may come first
        ([Appended(0, 1, float("inf"))], [Observed(1, 8, 9), Observed(0, 6, 7)]),  # no answer came
    ],
)
def test_what_a_log_can_have_answered_is_no_contradiction(
    appends: list[Appended], observations: list[Observed]
) -> None:
    """Calls that overlap may have taken effect in any order that their answers allow."""
    assert contradiction(appends, observations) is None


@pytest.mark.parametrize(
    ("appends", "observations"),
    [
        ([Appended(0, 3, 4), Appended(1, 1, 2)], []),  # the later one got the lower offset
        ([Appended(0, 1, 2), Appended(2, 3, 4)], []),  # a gap
        ([Appended(0, 1, 2), Appended(0, 3, 4)], []),  # an offset given out twice
        (APPENDS, [Observed(1, 4.5, 5)]),  # forgets acknowledged values
        (APPENDS, [Observed(2, 1, 2.5)]),  # has values that were never sent
        (APPENDS, [Observed(3, 4, 5)]),  # longer than it ever was
        (APPENDS, [Observed(2, 3, 3.2), Observed(1, 3.4, 3.6)]),  # goes back
        ([Appended(0, 1, float("inf"))], [Observed(1, 2, 3), Observed(0, 4, 5)]),
    ],
)
def test_what_no_log_can_have_answered_is_found(
    appends: list[Appended], observations: list[Observed]
) -> None:
    """Lost, reordered, repeated and foreseen records contradict a log."""
    assert contradiction(appends, observations) is not None
