"""The packed table of deliveries against a list."""

import random
import tracemalloc
from collections.abc import Sequence

import pytest

from app.operations.deliveries import table
from app.operations.deliveries.table import DeliveryTable, Entry, seconds_of


def entry(number: int, digest: bytes | None = None, partition: int = 0) -> Entry:
    digest = random.Random(number).randbytes(16) if digest is None else digest
    return Entry(digest, bytes(8), number, 1_795_219_400_000, 1, number, partition, 0)


def filled(entries: Sequence[Entry]) -> DeliveryTable:
    made = DeliveryTable()
    for one in entries:
        made.add(one.pack())
    return made


def found(made: DeliveryTable, digest: bytes) -> list[Entry]:
    return sorted(made.find(digest), key=lambda one: one.base_offset)


def test_every_entry_is_found_with_all_its_fields() -> None:
    """What comes out is what went in, after every shard has grown several times."""
    entries = [entry(number) for number in range(20_000)]
    made = filled(entries)
    assert len(made) == 20_000
    assert all(made.find(one.digest) == [one] for one in entries)
    assert made.find(bytes(16)) == []
    assert [seconds_of(one.pack()) for one in entries[:3]] == [0, 1, 2]


def test_a_delivery_has_an_entry_for_each_partition() -> None:
    """Entries with one digest are found together, in any order."""
    digest = bytes(range(16))
    parts = [entry(number, digest, number) for number in range(300)]
    made = filled([entry(1_000), *parts])
    assert found(made, digest) == parts


@pytest.mark.parametrize("seed", range(20))
def test_it_equals_a_list_whatever_is_added_and_removed(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Oldest first out; numbers that have wrapped around; digests that fall into one slot."""
    monkeypatch.setattr(table, "_NUMBERS", 4_096 - 1)
    chance = random.Random(seed)
    digests = [bytes(8) + chance.randbytes(8) for _ in range(8)]
    digests += [chance.randbytes(16) for _ in range(200)]
    made = DeliveryTable()
    model: list[Entry] = []
    for number in range(6_000):
        added = entry(number, chance.choice(digests))
        made.add(added.pack())
        model.append(added)
        while model and chance.random() < (0.6 if len(model) > 100 else 0.2):
            assert made.oldest_seconds() == model[0].seconds
            made.remove_oldest()
            del model[0]
        assert len(made) == len(model)
        looked_for = chance.choice(digests)
        assert found(made, looked_for) == [one for one in model if one.digest == looked_for]
    while model:
        made.remove_oldest()
        del model[0]
        for digest in digests[:10]:
            assert found(made, digest) == [one for one in model if one.digest == digest]


def test_an_empty_table_holds_little() -> None:
    """Thousands of topics may have one; what is removed is released."""
    made = filled([entry(number) for number in range(5_000)])
    assert made.size_bytes > 300_000
    while len(made):
        made.remove_oldest()
    assert made.size_bytes < 24 * 1024
    assert DeliveryTable().size_bytes < 16 * 1024


@pytest.mark.parametrize("count", [50_000, pytest.param(1_000_000, marks=pytest.mark.long)])
def test_a_million_ids_need_less_than_64_mib(count: int) -> None:
    """As Python counts its memory; what the table says of itself agrees."""
    chance = random.Random(1)
    tracemalloc.start()
    try:
        made = DeliveryTable()
        for number in range(count):
            made.add(entry(number, chance.randbytes(16)).pack())
        traced_bytes, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert traced_bytes / count < 64 * 2**20 / 1_000_000
    assert abs(made.size_bytes - traced_bytes) < traced_bytes / 20
