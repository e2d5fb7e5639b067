"""How much memory the buffer of a request body takes."""

from hypothesis import given
from hypothesis import strategies as st

from app.wire.body_receiver import FIRST_BYTES, GROWTH, buffer_bytes


@given(size=st.integers(1, 1 << 24), received=st.integers(0, 1 << 24))
def test_a_buffer_is_in_proportion_to_what_came(size: int, received: int) -> None:
    """It has room for something, and never for much more than has come."""
    received = min(received, size - 1)
    room = buffer_bytes(size, received)
    assert received < room <= size
    assert room <= max(FIRST_BYTES, GROWTH * received)
