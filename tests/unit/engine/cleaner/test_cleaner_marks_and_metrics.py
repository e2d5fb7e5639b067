"""Rows about compaction that no test of a single module asserts."""

from typing import Any

import pytest

from engine.cleaner.selection import first_dirty_offset, grouped
from engine.errors import SequenceGap
from engine.records.control import ControlType
from engine.types import AppendOrigin, FetchIsolation
from tests.support.compaction import Compacted, keyed
from tests.support.kafka import kafka
from tests.support.logs import segment_bases, with_config


def of_transaction(sequence: int) -> dict[str, Any]:
    return {
        "producer_id": 7,
        "producer_epoch": 0,
        "base_sequence": sequence,
        "is_transactional": True,
    }


@kafka("LogCleanerTest.testCommittedTransactionSpanningSegments")
def test_a_commit_keeps_what_lies_in_another_segment() -> None:
    """The marker is cleaned in a segment without any of its data, and the data stay readable."""
    compacted = Compacted(overrides={"segment.bytes": 200, "delete.retention.ms": 0})
    compacted.put(("a", "1"), **of_transaction(0))
    compacted.log.roll()
    compacted.put(("b", "1"), **of_transaction(1))
    compacted.log.roll()
    marker = compacted.end_transaction(ControlType.COMMIT, 7)
    for value in "xyz":
        compacted.put(("other", value))
        compacted.clean()
        compacted.world.clock.advance(1)
        committed = compacted.pairs(isolation=FetchIsolation.TXN_COMMITTED)
        assert committed == [("a", "1"), ("b", "1"), ("other", value)]
        assert marker in [base for base, _, _ in compacted.batches()]


@kafka("LogCleanerTest.testLogCleanerRetainsLastSequenceEvenIfTransactionAborted")
def test_an_aborted_batch_still_tells_its_producers_sequence() -> None:
    """Its records are gone; a start takes the sequence from its header, and refuses another."""
    compacted = Compacted()
    compacted.put(("a", "1"), **of_transaction(0))
    compacted.put(("b", "1"), ("c", "1"), **of_transaction(1))
    compacted.end_transaction(ControlType.ABORT, 7)
    compacted.put(("other", "1"))
    compacted.clean()
    assert compacted.batches() == [(1, 2, 0), (3, 3, 1), (4, 4, 1)]
    for name in compacted.files():
        if name.endswith(".snapshot"):
            compacted.world.fs.remove(compacted.log.directory / name)
    compacted.crash(power_cut=False)
    with pytest.raises(SequenceGap):
        compacted.put(("d", "1"), **of_transaction(4))
    assert compacted.log.append(keyed(("b", "1"), ("c", "1"), **of_transaction(1))).is_duplicate
    assert compacted.put(("d", "1"), **of_transaction(3)) == 5


@kafka(
    "LogCleanerTest.testSegmentGroupingWithSparseOffsets",
    "LogCleanerTest.testSegmentGroupingFollowingLoadOfZeroIndex",
)
def test_segments_with_empty_indexes_are_grouped_by_their_offsets() -> None:
    """An empty index does not say how far its segment reaches."""
    compacted = Compacted()
    far = 2**31 - 1
    for offset in (0, 1, far, far + 1):
        batch = keyed((f"k{offset}", "value"), base_offset=offset)
        compacted.log.append(batch, origin=AppendOrigin.REPLICATION)
        compacted.log.roll()
    sealed = compacted.log.reader.segments[:-1]
    for one in sealed:
        one.indexes.offset.truncate(one.indexes.offset.kept_below(0))
        one.indexes.time.truncate(one.indexes.time.kept_below(0))
    groups = grouped(sealed, with_config(segment_index_bytes=1200), far + 2)
    bases = [[one.base_offset for one in group] for group in groups]
    assert bases == [[0, 1, 2], [far + 1]]  # the third one begins at 2, and ends with `far`


@kafka("LogCleanerManagerTest.testLogStartOffsetLargerThanActiveSegmentBaseOffset")
def test_a_start_within_the_active_segment_leaves_nothing_to_clean() -> None:
    """The log is dirty from its start on, and that is not sealed."""
    compacted = Compacted()
    for value in "ab":
        compacted.put(("key", value))
    compacted.seal()
    for value in "cdef":
        compacted.put(("key", value))
    compacted.log.durability.commit()
    compacted.log.delete_records(4)
    assert segment_bases(compacted.log)[-1] == 2
    assert first_dirty_offset(compacted.log, 1) == 4
    assert compacted.dirty(4).cleanable_bytes == 0
    assert compacted.cleaner.run_pass() is None
    assert compacted.pairs() == [("key", "e"), ("key", "f")]
