"""The partitioner agrees with Kafka's."""

import aiokafka.partitioner
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from app.client.partitioner import murmur2, partition_of


@pytest.mark.parametrize(
    ("key", "signed"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_known_hashes_are_those_of_kafkas_own_test(key: bytes, signed: int) -> None:
    """The vectors of Kafka's `UtilsTest.testMurmur2` come out, read as unsigned."""
    assert murmur2(key) == signed & 0xFFFFFFFF


@given(st.binary(max_size=64))
def test_any_key_hashes_as_another_client_hashes_it(key: bytes) -> None:
    """Whatever the bytes and the length, aiokafka's partitioner gets the same hash."""
    assert murmur2(key) == aiokafka.partitioner.murmur2(key) & 0xFFFFFFFF


@given(st.binary(max_size=64), st.integers(1, 100))
@example(b"longer than what is kept" * 10, 7)
def test_a_key_always_lands_in_the_same_existing_partition(key: bytes, partitions: int) -> None:
    """The partition is the positive hash modulo the count, as `BuiltInPartitioner` takes it."""
    for _ in range(2):
        assert partition_of(key, partitions) == (murmur2(key) & 0x7FFFFFFF) % partitions
