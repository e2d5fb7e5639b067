"""Reading a segment for compaction: in whole batches, and damage is never passed over."""

import pytest

from engine.cleaner.reading import read_chunks
from engine.errors import StoredDataCorrupt
from tests.support.segments import Shelf, filled


@pytest.mark.parametrize("rest_bytes", [5, 40])
def test_bytes_that_are_no_whole_batch_are_damage(rest_bytes: int) -> None:
    """The file ends inside a batch, or even inside its length field."""
    segment = Shelf().segment()
    *_, last = filled(segment, range(3))
    segment.records.truncate(last + rest_bytes)
    paced: list[int] = []
    chunks = read_chunks(segment, 0, end_offset=3, chunk_bytes=1 << 20, pace=paced.append)
    batches = next(chunks)
    assert [batch.header.base_offset for batch in batches] == [0, 1]
    with pytest.raises(StoredDataCorrupt, match=f"{rest_bytes} bytes that are not a whole batch"):
        next(chunks)
    assert paced == [last]
