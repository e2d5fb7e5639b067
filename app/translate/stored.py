"""Stored batches to the records a reader wants, some at a time: JSON and Arrow are made of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from typing import Final, TypeAlias

from engine.errors import CorruptBatch, InvalidRecord, StoredDataCorrupt
from engine.records.batch import BatchView
from engine.records.compiled import DECODING_ERRORS, CompiledRecord
from engine.records.header import MAGIC_2, BatchHeader
from engine.records.record import Record
from engine.records.scan import iter_headers
from engine.types import INT64_MAX, Buffer

Records: TypeAlias = Sequence[CompiledRecord | Record]

CHUNK_RECORDS: Final = 128
"""Enough to share what a call costs, few enough to stay in the processor's cache."""


@dataclass(frozen=True, slots=True)
class View:
    """What of the stored batches is to be shown, and how. Ends are exclusive."""

    start: int
    end: int = INT64_MAX
    max_records: int = INT64_MAX
    max_answer_bytes: int = INT64_MAX
    limit_bytes: int = INT64_MAX
    """Ceiling for one decompressed batch."""
    encoding: str | None = None
    offsets_as_text: bool = False
    is_ndjson: bool = False


class StoredRecords:
    """The records of whole batches that a view wants, in order, with the header of their batch.

    Control batches are left out. Iterating raises StoredDataCorrupt if a batch is not what its
    header says: it was checked on the way in, so that is damage.
    """

    def __init__(self, data: Buffer, view: View) -> None:
        self._data = data
        self._view = view
        self.count = 0
        self.stopped_at: int | None = None
        """Where to go on, if a bound of the view ended it; None if everything was there."""
        self.stopped_by = ""
        """Which bound that was."""

    def __iter__(self) -> Iterator[tuple[BatchHeader, Records]]:
        for position, header in iter_headers(self._data):
            if header.is_control or header.next_offset <= self._view.start:
                continue
            try:
                batch = BatchView(self._data, position)
                batch.ensure_intact()
                for chunk in _chunks(batch, self._view.limit_bytes):
                    if wanted := self._bounded(chunk):
                        self.count += len(wanted)
                        yield header, wanted
                    if self.stopped_at is not None:
                        return
                if header.next_offset > self._view.end:
                    self._stop(self._view.end, "end_offset")  # its last records are compacted away
                    return
            except (CorruptBatch, InvalidRecord) as error:
                raise StoredDataCorrupt(
                    f"the batch at offset {header.base_offset} cannot be read: {error}",
                    file="",
                    position=position,
                    offset=header.base_offset,
                ) from error

    def stop_at(self, record_offset: int, untaken: int) -> None:
        """End before this record: the last `untaken` records that were given out do not count."""
        self._stop(record_offset, "max_answer_bytes")
        self.count -= untaken

    def _stop(self, offset: int, bound: str) -> None:
        self.stopped_at, self.stopped_by = offset, bound

    def _bounded(self, records: Records) -> Records:
        view = self._view
        if records[0].offset < view.start:
            records = [record for record in records if record.offset >= view.start]
        if records and records[-1].offset >= view.end:
            self._stop(view.end, "end_offset")
            records = [record for record in records if record.offset < view.end]
        room = view.max_records - self.count
        if len(records) > room:
            self._stop(records[room].offset, "max_records")
            records = records[:room]
        return records


def _chunks(batch: BatchView, limit_bytes: int) -> Iterator[Records]:
    """Yield a batch's records as the compiled codec makes them, or as the referee reads them.

    Never all of them at once: a few KB can hold millions.
    """
    given = 0
    if batch.header.magic == MAGIC_2:
        try:
            quick = chain(batch.compiled_records(limit_bytes=limit_bytes))
            while chunk := list(islice(quick, CHUNK_RECORDS)):
                yield chunk
                given += len(chunk)
        except DECODING_ERRORS:
            pass  # the referee goes on from here, or says what is wrong
        else:
            return
    judged = islice(batch.records(limit_bytes=limit_bytes), given, None)
    while records := list(islice(judged, CHUNK_RECORDS)):
        yield records
