"""Indexes of a segment with descending times: for the newest batch they only have its offset."""

import pytest

from engine.errors import CorruptIndex
from engine.segment.index_checks import ensure_sane
from engine.segment.segment import Segment
from engine.types import TimestampOffset
from tests.support.segments import Shelf, append, batch_at, reindex
from tests.support.time import START_MS


def descending(shelf: Shelf) -> Segment:
    """Fifty batches, each a second older than the one before."""
    segment = shelf.segment()
    append(segment, *(batch_at(at, timestamp=START_MS - 1000 * at) for at in range(50)))
    return segment


def test_a_rebuilt_index_has_the_first_time_as_the_largest() -> None:
    """Later batches with older times change neither the maximum nor its offset."""
    segment = descending(Shelf())
    reindex(segment, is_active=False)
    assert segment.maximum == TimestampOffset(START_MS, 0)
    assert list(segment.indexes.time.entries()) == [TimestampOffset(START_MS, 0)]
    assert segment.indexes.offset.count > 3
    assert ensure_sane(segment, has_transactions=False) == 50


def test_an_offset_index_that_leads_to_the_end_of_the_file_is_wrong() -> None:
    """The file ends at a batch boundary, but without the batch that the last entry names."""
    shelf = Shelf()
    segment = descending(shelf)
    last = segment.indexes.offset.last_entry.offset
    position = segment.indexes.offset.lookup(last).position
    segment.close()
    with shelf.disk.open(segment.records.path) as file:
        file.truncate(position)
    with pytest.raises(CorruptIndex, match=f"points past offset {last}, to the end"):
        ensure_sane(shelf.segment(is_new=False), has_transactions=False)
