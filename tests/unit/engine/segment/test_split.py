"""A segment with offsets its indexes cannot express, split without losing a byte."""

import pytest

from engine.errors import InvalidRequestValue
from engine.records.scan import iter_headers
from engine.segment.recovery import COPY_BYTES, append_from, has_overflow, split_overflowed
from engine.segment.segment import Segment
from engine.types import INT32_MAX, Buffer
from tests.support.kafka import kafka
from tests.support.segments import Shelf, append, batch_at, filled, offsets_of

FAR = INT32_MAX + 10


def overflowed(shelf: Shelf) -> Segment:
    """A segment as brokers of long ago could write one."""
    segment = shelf.segment()
    filled(segment, [0, 1])
    for offset in (FAR, FAR + 1, 3 * FAR):
        segment.records.file.append(batch_at(offset))
    return segment


def parts_of(shelf: Shelf, segment: Segment) -> list[Segment]:
    return split_overflowed(segment, lambda base: shelf.segment(base, suffix=".cleaned"))


@kafka("UnifiedLogTest.testSplitOnOffsetOverflow")
def test_each_part_begins_where_its_first_batch_does() -> None:
    """Records are unchanged, bases are the first offsets."""
    shelf = Shelf()
    segment = overflowed(shelf)
    content = bytes(segment.read(0, segment.size_bytes)[0])
    parts = parts_of(shelf, segment)
    assert [part.base_offset for part in parts] == [0, FAR, 3 * FAR]
    assert [offsets_of(part) for part in parts] == [[0, 1], [FAR, FAR + 1], [3 * FAR]]
    assert b"".join(bytes(part.read(0, part.size_bytes)[0]) for part in parts) == content


def test_the_parts_are_as_old_as_the_whole() -> None:
    """The time of modification goes with the records, for retention's sake."""
    shelf = Shelf()
    segment = overflowed(shelf)
    shelf.disk.set_modified_ms(segment.records.path, 123_456)
    assert [part.modified_ms for part in parts_of(shelf, segment)] == [123_456] * 3


@kafka("UnifiedLogTest.testSplitOnOffsetOverflow")
def test_a_segment_without_overflow_is_not_split() -> None:
    """A second split of a part is refused."""
    shelf = Shelf()
    segment = overflowed(shelf)
    assert has_overflow(segment)
    part = parts_of(shelf, segment)[0]
    assert not has_overflow(part)
    assert not has_overflow(shelf.segment(7))
    with pytest.raises(InvalidRequestValue, match="needs no split"):
        parts_of(shelf, part)


@kafka("LogSegmentTest.testAppendFromFile")
def test_copying_stops_at_what_the_target_cannot_express() -> None:
    """What fits is copied, a megabyte at a time; larger batches too."""
    shelf = Shelf()
    source = shelf.segment()
    append(source, batch_at(0, b"x" * (COPY_BYTES + 1)), batch_at(1), batch_at(2, b"y" * 600_000))
    append(source, batch_at(3, b"z" * 600_000))
    expressible = source.size_bytes
    source.records.file.append(batch_at(FAR))
    target = shelf.segment(suffix=".cleaned")
    assert append_from(target, source, 0) == expressible == target.size_bytes
    assert append_from(target, source, expressible) == 0
    rest = shelf.segment(FAR, suffix=".cleaned")
    assert append_from(rest, source, expressible) == source.size_bytes - expressible


def test_a_copy_takes_no_more_memory_than_it_may(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a segment of gigabytes a megabyte at a time is in memory, however small its batches."""
    shelf = Shelf()
    source = shelf.segment()
    size_bytes = [400_000, 400_000, 400_000, 10, 900_000]
    append(source, *(batch_at(offset, b"x" * size) for offset, size in enumerate(size_bytes)))
    target = shelf.segment(suffix=".cleaned")
    copied: list[list[int]] = []
    append_bytes = Segment.append

    def noted(segment: Segment, data: Buffer, *about: int) -> int:
        copied.append([header.base_offset for _, header in iter_headers(data)])
        return append_bytes(segment, data, *about)

    monkeypatch.setattr(Segment, "append", noted)
    append_from(target, source, 0)
    assert copied == [[0, 1], [2, 3], [4]]
