"""Token buckets on a clock that is moved by hand."""

import pytest

from app.errors import QuotaExceeded
from app.security.principal import MAX_METERS, Meter, Meters, Quota
from app.security.rules import ADMIN, APPEND, READ
from tests.support.time import ManualClock


def refused_for(meter: Meter, rule: object = APPEND) -> str | None:
    """What Retry-After says, None if the request is let in."""
    try:
        meter.admit(rule)  # type: ignore[arg-type]  # a rule
    except QuotaExceeded as error:
        return error.headers["retry-after"]
    return None


def test_requests_are_let_in_at_their_rate() -> None:
    """A second's worth at once, then one whenever its time has passed."""
    clock = ManualClock()
    meter = Meter(Quota(requests=4), clock)
    assert [refused_for(meter) for _ in range(5)] == [None, None, None, None, "1"]
    clock.advance(250)
    assert [refused_for(meter), refused_for(meter)] == [None, "1"]
    clock.advance(60_000)  # no more than one second's worth is saved up
    assert [refused_for(meter) for _ in range(5)] == [None, None, None, None, "1"]


def test_a_large_body_is_let_in_and_paid_for_afterwards() -> None:
    """Bytes go into debt, and Retry-After tells when it will be paid."""
    clock = ManualClock()
    meter = Meter(Quota(bytes_in=1_000), clock)
    assert refused_for(meter) is None
    meter.received(11_000)
    assert refused_for(meter) == "10"
    clock.advance(9_999)
    assert refused_for(meter) == "1"
    clock.advance(2)
    assert refused_for(meter) is None


def test_whoever_has_sent_too_much_may_still_read() -> None:
    """Each direction has its own bucket, and administration neither."""
    meter = Meter(Quota(bytes_in=10, bytes_out=10), ManualClock())
    meter.received(1_000)
    assert refused_for(meter, READ) is None
    assert refused_for(meter, APPEND) is not None
    meter.sent(1_000)
    assert refused_for(meter, READ) is not None
    assert refused_for(meter, ADMIN) is None


def test_the_refusal_names_the_limit() -> None:
    """A program learns which of the limits it met, by its name in /v1/limits."""
    meter = Meter(Quota(requests=1), ManualClock())
    meter.admit(READ)
    with pytest.raises(QuotaExceeded, match="quota of 1 requests a second") as caught:
        meter.admit(READ)
    facts = {"limit": "quota_requests_per_second", "limit_value": 1}
    assert dict(caught.value.facts()) == facts


def test_a_refused_request_costs_nothing() -> None:
    """Repeated refused requests do not extend the wait."""
    clock = ManualClock()
    meter = Meter(Quota(requests=1), clock)
    assert refused_for(meter) is None
    assert {refused_for(meter) for _ in range(50)} == {"1"}
    clock.advance(1_000)
    assert refused_for(meter) is None


def test_a_principal_keeps_its_meter() -> None:
    """The use is kept under the name, and a changed rate resets it."""
    meters = Meters(Quota(requests=5), ManualClock())
    first = meters.of("key:a")
    assert first is not None
    assert meters.of("key:a") is first
    assert meters.of("key:b") is not first
    other = meters.of("key:a", {"requests": 7, "bytes_in": 9})
    assert other is not None
    assert other.quota == Quota(requests=7, bytes_in=9)
    assert meters.of("key:a", {"requests": 0}) is None  # no limit for this one


def test_nobody_is_metered_where_nothing_is_limited() -> None:
    """Without a quota there is no meter, so it costs nothing."""
    assert Meters(Quota(), ManualClock()).of("key:a") is None


def test_the_memory_for_meters_is_bounded() -> None:
    """Beyond the limit the principal that was not seen for longest is reset."""
    meters = Meters(Quota(requests=1), ManualClock())
    first, second = meters.of("0"), meters.of("1")
    for number in range(2, MAX_METERS):
        meters.of(str(number))
    assert meters.of("0") is first  # seen again, and so no longer the oldest
    meters.of("one more")
    assert meters.of("0") is first
    assert meters.of("1") is not second
