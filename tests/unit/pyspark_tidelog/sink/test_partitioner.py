"""Keys go to the partitions that a Kafka producer would choose."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from app.client.partitioner import murmur2, partition_of
from pyspark_tidelog.sink.attempt import partitions_of


@given(st.lists(st.binary(max_size=40), max_size=30), st.integers(1, 100))
def test_keys_go_where_a_kafka_producer_puts_them(keys: list[bytes], count: int) -> None:
    """The column's partitions are those of the hash of one key after the other."""
    column = pa.array([b"skipped", *keys], pa.binary()).slice(1)
    assert partitions_of(column, count).tolist() == [partition_of(key, count) for key in keys]


def test_the_hash_is_that_of_kafkas_own_tests() -> None:
    """`UtilsTest.testMurmur2`; the modulus is a prime that shows every bit but the sign."""
    known = {b"21": -973932308, b"foobar": -790332482, b"a-little-bit-long-string": -985981536}
    for key, expected in known.items():
        assert murmur2(key) == expected % (1 << 32)
        assert partitions_of(pa.array([key], pa.binary()), (1 << 31) - 1)[0] == (
            expected & 0x7FFFFFFF
        ) % ((1 << 31) - 1)
