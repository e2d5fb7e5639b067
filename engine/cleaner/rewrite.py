"""Rewrites a group of segments into one: copies the survivors, seals, syncs, swaps it in.

Index entries are written batch by batch, as current brokers do. Kafka's `Cleaner.cleanSegments` and
`cleanInto`.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from engine.cleaner.filter import BatchFilter
from engine.cleaner.reading import Pace, read_chunks
from engine.cleaner.selection import segments_from
from engine.errors import SegmentOverflow, StorageError
from engine.log.maintenance.compaction import CleaningAborted, Compaction
from engine.log.read.aborted import aborted_in
from engine.records.batch import BatchView
from engine.records.header import BatchHeader, parse_header
from engine.segment.segment import Segment
from engine.types import INT32_MAX, Buffer, OffsetPosition


def rewrite_group(
    compaction: Compaction,
    group: Sequence[Segment],
    batch_filter: BatchFilter,
    *,
    chunk_bytes: int,
    pace: Pace,
) -> Segment:
    """Replace the group by one segment; return that segment.

    The log is untouched until the swap. If anything raises, only files that the next start removes
    are left. Raises StoredDataCorrupt, InvalidRecord, TooLarge, SegmentOverflow, CleaningAborted,
    StorageError.
    """
    output = compaction.create_output(group[0].base_offset)
    try:
        writer = _Writer(compaction, output)
        for segment in group:
            rest = segments_from(compaction.segments, segment.base_offset)
            end_offset = rest[1].base_offset  # never missing: the active segment is not cleaned
            aborted = aborted_in(rest, segment.base_offset, end_offset)
            batch_filter.transactions.expect(aborted)
            for batches in read_chunks(
                segment, 0, end_offset=end_offset, chunk_bytes=chunk_bytes, pace=pace
            ):
                pace(writer.write(_kept(batch_filter, batches)))
        writer.write_aborted(batch_filter)
        compaction.finish(output, group[-1].modified_ms)
    except BaseException:
        _discard(compaction, output)
        raise
    try:
        compaction.replace(output, group)
    except CleaningAborted:
        _discard(compaction, output)
        raise
    return output


def _kept(batch_filter: BatchFilter, batches: Sequence[BatchView]) -> list[Buffer]:
    kept = (batch_filter.keep(batch) for batch in batches)
    return [batch for batch in kept if batch is not None]


def _discard(compaction: Compaction, output: Segment) -> None:
    with suppress(CleaningAborted, StorageError):  # the next start removes what is left
        compaction.discard(output)


class _Writer:
    """Appends to a segment that is not yet part of the log."""

    def __init__(self, compaction: Compaction, output: Segment) -> None:
        self._compaction = compaction
        self._output = output
        self._indexed_position = 0

    def write(self, batches: Sequence[Buffer]) -> int:
        """Append the batches in one write and index them; return their size in bytes."""
        if not batches:
            return 0
        headers = [parse_header(batch) for batch in batches]
        self._ensure_expressible(headers[-1])
        with self._compaction.writing():
            position = self._output.records.append_many(batches)
            for header in headers:
                self._index(header, position)
                position += header.size_bytes
        return sum(map(len, batches))

    def write_aborted(self, batch_filter: BatchFilter) -> None:
        """Index the aborted transactions whose marker and some data the group held."""
        still_aborted = batch_filter.transactions.still_aborted
        with self._compaction.writing():
            for aborted in still_aborted:
                self._output.indexes.transaction.append(aborted)
        still_aborted.clear()

    def _index(self, header: BatchHeader, position: int) -> None:
        output = self._output
        output.observe_maximum(header.max_timestamp, header.last_offset)
        if position - self._indexed_position > output.index_interval_bytes:
            output.index_position(OffsetPosition(header.last_offset, position))
            self._indexed_position = position

    def _ensure_expressible(self, header: BatchHeader) -> None:
        if header.last_offset - self._output.base_offset > INT32_MAX:
            raise SegmentOverflow(
                f"offset {header.last_offset} is too far from {self._output.base_offset}",
                segment=str(self._output.records.path),
                offset=header.last_offset,
            )
