"""Many numbers read at once are those that are read one by one."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_tidelog.records.varints import RecordError, read_varints

INT64 = st.integers(-(1 << 63), (1 << 63) - 1)
# As records have them: alone of one octet, of two, of both, and now and then of more.
NUMBERS = st.one_of(
    st.lists(st.integers(-64, 63)),
    st.lists(st.integers(64, 8191)),
    st.lists(st.integers(-8192, 8191)),
    st.lists(INT64 | st.integers(-200, 200)),
)


def encoded(number: int) -> bytes:
    """Return a number as protocol buffers write it, zigzag and seven bits an octet."""
    rest, octets = (number << 1) ^ (number >> 63), bytearray()
    while rest > 127:
        octets.append(rest & 127 | 128)
        rest >>= 7
    octets.append(rest)
    return bytes(octets)


def read(data: bytes, positions: list[int]) -> tuple[list[int], list[int]]:
    numbers, after = read_varints(np.frombuffer(data, np.uint8), np.array(positions, np.int64))
    return numbers.tolist(), after.tolist()


@given(NUMBERS)
def test_numbers_of_all_lengths_are_read_side_by_side(numbers: list[int]) -> None:
    """Each is what was written, and ends where it was written to, the last at the very end."""
    parts = [encoded(number) for number in numbers]
    ends = np.cumsum([len(part) for part in parts]).astype(int).tolist()
    assert read(b"".join(parts), [0, *ends[:-1]] if parts else []) == (numbers, ends)


@pytest.mark.parametrize("cut", [b"\x80", b"\xff\xff", b"\x01\x80\x80"], ids=bytes.hex)
def test_a_number_that_is_cut_is_an_error(cut: bytes) -> None:
    """After its first octet as after any other, whatever stands beside it."""
    with pytest.raises(IndexError):
        read(b"\x02" + cut, [0, 1 if cut[0] > 127 else 2])


def test_a_number_without_an_end_is_refused() -> None:
    """Ten octets hold every number of 64 bits."""
    with pytest.raises(RecordError, match="more than ten bytes"):
        read(b"\xff" * 12, [0])
