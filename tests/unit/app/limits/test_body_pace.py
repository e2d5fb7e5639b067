"""How long a request body is waited for."""

from app.limits.admission import Pace
from app.settings import Settings

SETTINGS = Settings(
    body_timeout_ms=30_000, body_stall_timeout_ms=5_000, min_body_bytes_per_second=1_000
)


def test_a_body_that_trickles_is_given_up() -> None:
    """A byte now and then puts nothing off: 4,999 bytes in 5 s are less than the rate."""
    pace = Pace(SETTINGS, 100.0)
    for tenth in range(49):
        pace.came(100, 100.0 + tenth / 10)
    pace.came(99, 104.9)
    assert pace.deadline == 105.0
    assert "min_body_bytes_per_second (1000)" in pace.complaint


def test_a_body_that_keeps_the_rate_has_until_its_timeout() -> None:
    """Whatever comes, all of it has to be there in time."""
    pace = Pace(SETTINGS, 100.0)
    deadlines = []
    for second in range(4, 30, 4):
        assert pace.deadline >= 100 + second
        pace.came(5_000, 100.0 + second)
        deadlines.append(pace.deadline)
    assert deadlines == [109, 113, 117, 121, 125, 129, 130]
    assert "30000 ms" in pace.complaint
