"""The map from keys to their newest offsets, in 24 bytes a key."""

import pytest

from engine.cleaner.offset_map import SLOT_BYTES, OffsetMap
from tests.support.kafka import kafka


def key(number: int) -> bytes:
    return b"key-%d" % number


def filled(slots: int, count: int) -> OffsetMap:
    offset_map = OffsetMap(slots * SLOT_BYTES)
    for number in range(count):
        offset_map.put(key(number), number)
    return offset_map


@kafka("OffsetMapTest.testBasicValidation")
@pytest.mark.parametrize("count", [1, 10, 90])
def test_every_key_has_the_offset_it_was_put_with(count: int) -> None:
    """A stored offset is returned, -1 for unknown keys."""
    offset_map = filled(100, count)
    assert [offset_map.get(key(number)) for number in range(count)] == list(range(count))
    assert offset_map.get(b"another") == -1
    assert len(offset_map) == count


def test_a_later_offset_replaces_an_earlier_one() -> None:
    """One key takes one slot however often it comes; offset 0 is an offset like any other."""
    offset_map = OffsetMap(10 * SLOT_BYTES)
    offset_map.put(b"key", 0)
    assert offset_map.get(b"key") == 0
    offset_map.put(b"key", 7)
    assert (offset_map.get(b"key"), len(offset_map)) == (7, 1)


@kafka("OffsetMapTest.testGetWhenFull")
def test_a_full_map_answers_and_takes_no_more() -> None:
    """Every slot can be used; a search in a full map ends."""
    offset_map = filled(30, 30)
    assert [offset_map.get(key(number)) for number in range(30)] == list(range(30))
    assert offset_map.get(b"another") == -1
    with pytest.raises(OverflowError):
        offset_map.put(key(0), 1)


@kafka("OffsetMapTest.testLatestOffset")
def test_the_latest_offset_follows_puts_and_can_be_moved() -> None:
    """It is the last stored one, until the caller advances it."""
    offset_map = OffsetMap(10 * SLOT_BYTES)
    assert offset_map.latest_offset == -1
    offset_map.put(b"key", 5)
    assert offset_map.latest_offset == 5
    offset_map.latest_offset = 9
    assert (offset_map.latest_offset, offset_map.get(b"key")) == (9, 5)


@kafka("OffsetMapTest.testClear")
def test_a_cleared_map_knows_nothing() -> None:
    """After clearing it is as new."""
    offset_map = filled(20, 10)
    offset_map.clear()
    assert [offset_map.get(key(number)) for number in range(10)] == [-1] * 10
    assert (len(offset_map), offset_map.latest_offset) == (0, -1)
    offset_map.put(b"key", 3)
    assert offset_map.get(b"key") == 3


def test_memory_is_used_in_whole_slots() -> None:
    """Bytes that make no slot are left over; less than one slot is refused."""
    assert OffsetMap(5 * SLOT_BYTES + 23).slots_count == 5
    with pytest.raises(ValueError, match="too few"):
        OffsetMap(SLOT_BYTES - 1)


def test_keys_that_collide_are_told_apart() -> None:
    """Two keys whose first probe is the same slot keep their own offsets."""
    slots = 16
    first = key(0)

    def slot_of(content: bytes) -> int:
        return hash(content) % slots

    second = next(key(n) for n in range(1, 1000) if slot_of(key(n)) == slot_of(first))
    third = next(key(n) for n in range(1000, 9000) if slot_of(key(n)) == slot_of(first))
    offset_map = OffsetMap(slots * SLOT_BYTES)
    offset_map.put(first, 1)
    offset_map.put(second, 2)
    assert [offset_map.get(one) for one in (first, second, third)] == [1, 2, -1]
