"""Pools in shares: what one holder gets, and what it leaves for the next."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.limits.admission import Admission, Phase
from app.limits.shares import Pool, network_of
from app.settings import Settings
from engine.errors import Overloaded

LIMIT = 1_000


def taken_by(pool: Pool, holder: str, step: int) -> int:
    """Take as much as the pool gives to a holder, in such steps."""
    taken = 0
    try:
        while True:
            pool.take(holder, step)
            taken += step
    except Overloaded:
        return taken


@pytest.mark.parametrize("percent", [1, 50, 75, 100])
def test_one_holder_alone_gets_its_share(percent: int) -> None:
    """Not one more: the refusal names the share, or the limit where the share is all of it."""
    pool = Pool("max_tails", LIMIT, percent)
    assert taken_by(pool, "greedy", 1) == LIMIT * percent // 100
    with pytest.raises(Overloaded) as refused:
        pool.take("greedy", 1)
    limit = ("max_tails", LIMIT) if percent == 100 else ("max_share_percent", percent)
    assert (refused.value.facts()["limit"], refused.value.facts()["limit_value"]) == limit


def test_many_that_take_all_they_get_leave_room_for_another() -> None:
    """However many holders are greedy, something is left for the first request of the next."""
    pool = Pool("max_tails", LIMIT, 50)
    taken = [taken_by(pool, f"greedy {number}", 1) for number in range(6)]
    assert taken == [500, 250, 125, 62, 31, 16]
    pool.take("another", 16)  # all of what is left: it is the holder's first request


@given(
    steps=st.lists(st.tuples(st.sampled_from("abcd"), st.integers(1, 400), st.booleans())),
    percent=st.integers(1, 100),
)
def test_what_is_held_is_the_sum_of_what_holders_have(
    steps: list[tuple[str, int, bool]], percent: int
) -> None:
    """A refusal counts nothing, and no client exceeds its share except with its first request."""
    pool = Pool("max_tails", LIMIT, percent)
    held = dict.fromkeys("abcd", 0)
    for holder, amount, gives_back in steps:
        if gives_back and held[holder]:
            pool.add(holder, -held[holder])
            held[holder] = 0
            continue
        is_first = not held[holder]
        try:
            pool.take(holder, amount)
        except Overloaded:
            continue
        held[holder] += amount
        assert is_first or held[holder] <= LIMIT * percent / 100
    assert pool.held == sum(held.values()) <= LIMIT


@pytest.mark.parametrize(
    ("host", "network"),
    [
        ("192.0.2.7", "192.0.2.7"),
        ("::ffff:192.0.2.7", "192.0.2.7"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("testclient", "testclient"),
    ],
)
def test_an_address_stands_for_one_host(host: str, network: str) -> None:
    """A host with all addresses of an IPv6 network has one share, not 2^64."""
    assert network_of(host) == network


def test_a_request_that_ends_while_it_waits_holds_nothing(tmp_path: Path) -> None:
    """A stop cancels waiting readers."""
    admission = Admission(Settings(data_directory=tmp_path))
    admission.phase = Phase.READY
    ticket = admission.admit("somebody")
    ticket.park()
    assert (admission.waiting_readers, admission.requests) == (1, 0)
    ticket.close()
    assert (admission.waiting_readers, admission.requests) == (0, 0)
