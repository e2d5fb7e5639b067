"""The records of a batch, decoded on demand, within a budget."""

import pytest

from engine.errors import DecodeBudgetSpent
from engine.records.batch import BatchView
from engine.records.budget import DecodeBudget, DecodeLimits
from engine.records.builder import build_batch, encode_batch
from engine.records.header import Codec, parse_header
from engine.records.parts import PART_BYTES, records_of
from engine.types import INT64_MAX
from tests.support.legacy import legacy_wrapper

LIMIT = 16 * PART_BYTES


def budget_of(max_bytes: int) -> DecodeBudget:
    return DecodeBudget(DecodeLimits(max_bytes, INT64_MAX))


@pytest.mark.parametrize("codec", Codec)
@pytest.mark.parametrize("size_bytes", [1, PART_BYTES // 3, 2 * PART_BYTES])
def test_they_are_the_records_of_the_batch(codec: Codec, size_bytes: int) -> None:
    """Small ones, some to a part, and one that is larger than a part."""
    records = [(n, b"k", bytes([n]) * size_bytes, (("h", b"v"),)) for n in range(5)]
    batch = BatchView(build_batch(records, codec=codec))
    for budget in (None, budget_of(LIMIT)):
        given = [
            (one.offset, one.timestamp, one.key, one.value, tuple(one.headers))
            for one in records_of(batch, limit_bytes=LIMIT, budget=budget)
        ]
        assert given == [(n, *record) for n, record in enumerate(records)]


def test_an_old_batch_and_one_without_records() -> None:
    """An old wrapper is decoded as a whole; a compacted batch may have nothing left."""
    wrapper = BatchView(legacy_wrapper(0, [b"1", b"2"], codec=Codec.GZIP))
    read = records_of(wrapper, limit_bytes=LIMIT, budget=budget_of(LIMIT))
    assert [one.value for one in read] == [b"1", b"2"]
    with pytest.raises(DecodeBudgetSpent):
        next(iter(records_of(wrapper, limit_bytes=LIMIT, budget=budget_of(10))))
    empty = encode_batch(parse_header(build_batch([(1, None, b"x", ())])), ())
    assert list(records_of(BatchView(empty), limit_bytes=LIMIT)) == []


def test_decoding_ends_with_the_part_that_the_budget_does_not_have() -> None:
    """The records within the budget are returned."""
    values = [bytes(PART_BYTES // 2)] * 12
    batch = BatchView(build_batch([(1, None, one, ()) for one in values], codec=Codec.ZSTD))
    with pytest.raises(DecodeBudgetSpent):
        list(records_of(batch, limit_bytes=LIMIT, budget=budget_of(3 * PART_BYTES)))
    budget = budget_of(3 * PART_BYTES)
    for record in records_of(batch, limit_bytes=LIMIT, budget=budget):
        assert record.offset == 0
        break
    assert budget.left_bytes >= PART_BYTES
