"""Shares of what stays: nobody makes all of it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.limits.shares import EVERYBODY, Makers
from engine.errors import PolicyViolation


def fill(makers: Makers[int], maker: str, *, total: int, limit: int) -> int:
    """Make as many as a principal may; return how many there are then."""
    while total < limit:
        try:
            makers.ensure_share(maker, total)
        except PolicyViolation:
            break
        makers.add(maker, total)
        total += 1
    return total


@given(st.integers(4, 300), st.lists(st.sampled_from("abc"), max_size=12), st.integers(1, 60))
def test_something_is_always_left(limit: int, greedy: list[str], percent: int) -> None:
    """However many greedy principals come one after the other, and again after a restart."""
    total = 0
    makers = Makers[int]("max_groups", limit, percent)
    for number, maker in enumerate(greedy):
        if number % 5 == 4:
            makers = Makers("max_groups", limit, percent)
        before = limit - total
        total = fill(makers, maker, total=total, limit=limit)
        assert limit - total >= min(before - 1, before * (100 - percent) // 100)
    if total < limit:
        Makers[int]("max_groups", limit, percent).ensure_share("an honest one", total)


def test_what_is_gone_counts_no_more() -> None:
    """Deleted by anybody; and without credentials there are no shares."""
    makers = Makers[int]("max_groups", 10, 50)
    assert fill(makers, "greedy", total=0, limit=10) == 5
    with pytest.raises(PolicyViolation, match="greedy made 5 of max_groups") as refused:
        makers.ensure_share("greedy", 5)
    assert refused.value.facts() == {"limit": "max_share_percent", "limit_value": 50}
    makers.remove(3)
    makers.remove(99)
    makers.ensure_share("greedy", 4)
    assert fill(makers, EVERYBODY, total=4, limit=10) == 10
    assert fill(Makers[int]("max_groups", 10, 100), "greedy", total=0, limit=10) == 10
