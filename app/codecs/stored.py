"""Stored batches to the records that a reader wants, some at a time; JSON and Arrow use this.

Several readers of a log read the same batches, each from its own place. A batch never changes: the
log's id and the whole header, with the checksum that is verified at every read, identify its bytes
for good. So its text is made once, whatever page it is a part of, and kept in memory for a while.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from threading import Lock
from typing import Final, NamedTuple, TypeAlias

from app.codecs.filter import Filter
from app.errors import RecordTooLarge
from engine.errors import CorruptBatch, InvalidRecord, StoredDataCorrupt, TooLarge, WouldBlock
from engine.records.batch import BatchView
from engine.records.budget import DECODER_COPIES, DecodeBudget
from engine.records.compiled import CompiledRecord
from engine.records.header import CODEC_MASK, HEADER_BYTES, MAGIC_2, BatchHeader
from engine.records.parts import (
    PART_BYTES,
    Records,
    in_chunks,
    part_chunks,
    parts_of,
    payload_chunks,
)
from engine.records.record import Record
from engine.records.scan import iter_headers
from engine.types import INT64_MAX, Buffer

ENTRY_BYTES: Final = 512
"""Upper bound for the memory of an entry besides its text."""

MOST_SHARE: Final = 8
"""A text larger than this part of the memory is not kept."""

BatchKey: TypeAlias = tuple[str, bytes, str | None, bool, bool]
"""The log's id, the batch's header, and the options of the view."""


class RenderedBatches:
    """Texts of batches, within `max_bytes`; the least recently used go first. Thread-safe.

    A text is kept when it is made for the second time among texts that could be kept together: one
    reader of a long log leaves nothing here, even if it begins again and again.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self.size_bytes = 0
        self._texts: OrderedDict[BatchKey, bytes] = OrderedDict()
        self._seen: set[int] = set()
        """Batches whose text was made lately."""
        self._seen_before: set[int] = set()
        """Those whose text was made before these."""
        self._seen_bytes = 0
        self._lock = Lock()

    def get(self, key: BatchKey) -> bytes | None:
        """Return the text of a batch."""
        with self._lock:
            text = self._texts.get(key)
            if text is not None:
                self._texts.move_to_end(key)
            return text

    def is_wanted(self, key: BatchKey, size_bytes: int) -> bool:
        """Whether to put this text, which was not found and has been made."""
        size_bytes += ENTRY_BYTES
        if MOST_SHARE * size_bytes > self._max_bytes:
            return False
        known = hash(key)
        with self._lock:
            if known in self._seen or known in self._seen_before:
                return True
            self._seen_bytes += size_bytes
            if self._seen_bytes > self._max_bytes // 2:
                self._seen_before, self._seen, self._seen_bytes = self._seen, set(), size_bytes
            self._seen.add(known)
            return False

    def put(self, key: BatchKey, text: bytes) -> None:
        """Keep a text that is wanted."""
        with self._lock:
            if key in self._texts:  # another reader was faster
                return
            self._texts[key] = text
            self.size_bytes += len(text) + ENTRY_BYTES
            while self.size_bytes > self._max_bytes:
                _, oldest = self._texts.popitem(last=False)
                self.size_bytes -= len(oldest) + ENTRY_BYTES


class LogTexts(NamedTuple):
    """The texts of one log's batches."""

    rendered: RenderedBatches
    log_id: str

    def key_of(
        self, batch: BatchView, encoding: str | None, *, as_text: bool, is_ndjson: bool
    ) -> BatchKey:
        """Return what identifies the text of a batch that was verified."""
        header = bytes(batch.buffer[:HEADER_BYTES])
        return (self.log_id, header, encoding, as_text, is_ndjson)


RECORD_BYTES: Final = 256
"""Upper bound for the bytes of a record besides its fields and headers."""

RECORD_HEADER_BYTES: Final = 48
"""Upper bound for the bytes of a header besides its name, value and stored minimum."""

SHORTEST_HEADER_BYTES: Final = 2

MOST_GROWTH: Final = RECORD_HEADER_BYTES // SHORTEST_HEADER_BYTES
"""The largest factor from stored bytes to an answer."""

MEASURED_BYTES: Final = 1024 * 1024
"""Compressed batches are examined up to this size to learn their content: a microsecond for every
three bytes."""


class InlineBound(NamedTuple):
    """Limits of decompression on the event loop, for all batches of a read."""

    stored_bytes: int
    content_bytes: int
    records: int

    def without(self, stored_bytes: int, content_bytes: int, records: int) -> InlineBound:
        """Return the remaining limits."""
        return InlineBound(
            self.stored_bytes - stored_bytes,
            self.content_bytes - content_bytes,
            self.records - records,
        )


INLINE_FILTERED_BYTES: Final = 4 * 1024
"""Stored bytes that are filtered on the event loop: some microseconds for each record and test."""

INLINE: Final = InlineBound(stored_bytes=2 * 1024, content_bytes=16 * 1024, records=256)
"""Well below a millisecond for ordinary records, and two for the worst: thousands of empty headers,
or a payload of empty frames. A worker would usually cost more."""


@dataclass(frozen=True, slots=True)
class View:
    """The records to show, and how. Ends are exclusive."""

    start: int
    end: int = INT64_MAX
    max_records: int = INT64_MAX
    max_answer_bytes: int = INT64_MAX
    """The answer ends before the record that would exceed this."""
    max_record_bytes: int = INT64_MAX
    """A single record never exceeds this."""
    frame_bytes: int = 0
    """Bytes around the records of an answer."""
    minimum_one: bool = True
    """Whether the first record is shown even beyond `max_answer_bytes` or the budget, so that a
    reader advances."""
    limit_bytes: int = INT64_MAX
    """Limit of one decompressed batch."""
    budget: DecodeBudget | None = None
    """The decoding budget: the answer ends when it is spent."""
    nonblocking: bool = False
    """Whether compressed batches raise WouldBlock beyond `INLINE`, for the event loop."""
    encoding: str | None = None
    offsets_as_text: bool = False
    is_ndjson: bool = False
    is_verified: bool = False
    """Whether the read that brought the batches has verified their checksums."""
    texts: LogTexts | None = None
    """Where texts of the log's batches are kept, for JSON and NDJSON; None with `wanted`."""
    wanted: Filter | None = None
    """The records to show; None for all. What it passes over counts for no bound but the bytes that
    were read and the budget."""


class StoredRecords:
    """The records of whole batches that a view wants, in order, with their batch's header.

    Control batches are left out. A batch is decoded only as far as it is iterated. Iterating ends
    before records that cannot be decoded. It raises StoredDataCorrupt if there are none before
    them, and for a batch with a wrong checksum: the read that brought it has verified it.
    """

    def __init__(self, data: Buffer, view: View) -> None:
        self._data = data
        self._view = view
        self._inline = INLINE
        self._position = 0
        """That of the last batch in the data."""
        self.count = 0
        self.part_bytes = INT64_MAX
        """Upper bound for the fields of the records that were yielded last."""
        self.stopped_at: int | None = None
        """The next offset, if a bound of the view ended it; None otherwise."""
        self.stopped_by = ""
        """That bound."""

    def __iter__(self) -> Iterator[tuple[BatchHeader, Records]]:
        for batch in self.batches():
            for records in self.records_of(batch):
                yield batch.header, records

    def batches(self) -> Iterator[BatchView]:
        """Yield the batches that may have wanted records, each verified.

        The caller iterates over `records_of` each, or calls `take_all`.
        """
        view, budget = self._view, self._view.budget
        if view.wanted and view.nonblocking and len(self._data) > INLINE_FILTERED_BYTES:
            raise WouldBlock
        for position, header in iter_headers(self._data):
            if header.is_control or header.next_offset <= view.start:
                continue
            if budget is not None and self._is_spent(budget, header.base_offset):
                return
            self._position = position
            try:
                batch = BatchView(self._data, position, header)
                if not view.is_verified:
                    batch.ensure_intact()
            except CorruptBatch as error:
                raise self._damage(header, error) from error
            yield batch
            if self.stopped_at is not None:
                return

    def records_of(self, batch: BatchView) -> Iterator[Records]:
        """Yield the wanted records of a batch that `batches` has just yielded."""
        budget = self._view.budget
        shown_to = max(self._view.start, batch.header.base_offset)
        try:
            for chunk in self._chunks(batch):
                if wanted := self._bounded(chunk):
                    self.count += len(wanted)
                    yield wanted
                shown_to = chunk[-1].offset + 1
                if self.stopped_at is not None:
                    return
                if budget is not None and self._is_spent(budget, shown_to):
                    return
        except (CorruptBatch, InvalidRecord) as error:
            if not self.count:
                raise self._damage(batch.header, error) from error
            self._stop(shown_to, "damage")  # what is before it is intact

    def wants_all_of(self, header: BatchHeader) -> bool:
        """Whether the view wants every record of a batch; only bytes can still be too many."""
        view = self._view
        return (
            header.magic == MAGIC_2
            and header.base_offset >= view.start
            and header.next_offset <= view.end
            and 0 < header.records_count <= view.max_records - self.count
        )

    def take_all(self, header: BatchHeader) -> None:
        """Count the records of a batch that are shown without being decoded."""
        self.count += header.records_count

    def _damage(self, header: BatchHeader, error: Exception) -> StoredDataCorrupt:
        return StoredDataCorrupt(
            f"the batch at offset {header.base_offset} cannot be read: {error}",
            file="",
            position=self._position,
            offset=header.base_offset,
        )

    def has_room(
        self, record: CompiledRecord | Record, size_bytes: int, answer_bytes: int, untaken: int
    ) -> bool:
        """Return whether to show a record of this size; if not, end before it.

        The answer has `answer_bytes` without it and without its frame. The record is the first of
        the last `untaken` that were yielded. Raises RecordTooLarge for the first record of an
        answer if none can show it.
        """
        size_bytes += answer_bytes + self._view.frame_bytes
        if size_bytes <= self._view.max_answer_bytes:
            return True
        if self.count == untaken:
            limit_bytes = self._view.max_record_bytes
            if size_bytes > limit_bytes:
                limit = ("max_answer_bytes", limit_bytes)
                raise RecordTooLarge(record.offset, size_bytes=size_bytes, limit=limit)
            if self._view.minimum_one:
                return True
        self._stop(record.offset, "max_answer_bytes")
        self.count -= untaken
        return False

    def _stop(self, offset: int, bound: str) -> None:
        self.stopped_at, self.stopped_by = offset, bound

    def _is_spent(self, budget: DecodeBudget, offset: int) -> bool:
        """Whether the budget ends the answer before this offset; never before its first record."""
        view = self._view
        if not budget.is_spent or (view.minimum_one and offset <= view.start):
            return False
        is_time = budget.is_out_of_time
        bound = "max_decode_cpu_ms" if is_time else "max_decoded_bytes"
        self._stop(max(offset, view.start), bound)
        return True

    def _bounded(self, records: Records) -> Records:
        view = self._view
        if records[0].offset < view.start:
            records = [record for record in records if record.offset >= view.start]
        if records and records[-1].offset >= view.end:
            self._stop(view.end, "end_offset")
            records = [record for record in records if record.offset < view.end]
        if view.wanted is not None:
            wants = view.wanted.wants
            records = [record for record in records if wants(record)]
        room = view.max_records - self.count
        if len(records) > room:
            self._stop(records[room].offset, "max_records")
            records = records[:room]
        return records

    def _chunks(self, batch: BatchView) -> Iterator[Records]:
        """Return a batch's records, never all at once: a few KB can contain millions."""
        header = batch.header
        is_small = header.size_bytes <= PART_BYTES
        if is_small and header.magic == MAGIC_2 and not header.attributes & CODEC_MASK:
            if self._passes_over(header, batch.payload):
                return iter(())
            self.part_bytes = header.size_bytes
            return payload_chunks(batch, batch.payload, header.records_count)
        if self._view.nonblocking and header.attributes & CODEC_MASK:
            return self._decoded_inline(batch)
        return self._decoded(batch)

    def _passes_over(self, header: BatchHeader, payload: Buffer) -> bool:
        """Whether no record of a part is wanted, which its bytes tell, and no bound ends in it."""
        view = self._view
        return (
            view.wanted is not None
            and header.next_offset <= view.end
            and not view.wanted.may_want(payload)
        )

    def _decoded_inline(self, batch: BatchView) -> Iterator[Records]:
        """Yield the records of a batch that is cheap to decode; otherwise raise WouldBlock."""
        header, bound = batch.header, self._inline
        is_small = header.size_bytes <= bound.stored_bytes and header.magic == MAGIC_2
        if not is_small or not 0 < header.records_count <= bound.records:
            raise WouldBlock
        try:
            limit_bytes = min(bound.content_bytes, self._view.limit_bytes)
            content = batch.uncompressed(limit_bytes=limit_bytes)
        except TooLarge:
            raise WouldBlock from None
        self.part_bytes = len(content)
        self._inline = bound.without(header.size_bytes, len(content), header.records_count)
        return payload_chunks(batch, content, header.records_count)

    def _decoded(self, batch: BatchView) -> Iterator[Records]:
        """Yield the records of a batch that is compressed, large, or in an old format."""
        view, budget, header = self._view, self._view.budget, batch.header
        if header.magic != MAGIC_2:
            self.part_bytes = INT64_MAX
            yield from in_chunks(batch.records(limit_bytes=view.limit_bytes))
            return
        if header.records_count == 0:
            return
        # Without gaps the position follows from the offset: earlier parts are not decoded.
        has_gaps = header.records_count != header.last_offset_delta + 1
        offset = header.base_offset
        for part in parts_of(batch, limit_bytes=view.limit_bytes, budget=budget):
            if budget is not None:
                budget.spend(0)
            offset += part.records_count
            if offset <= view.start and not has_gaps:
                continue
            if self._passes_over(header, part.payload):
                continue
            self.part_bytes = len(part.payload)
            yield from part_chunks(batch, part)


def render_bytes(
    reads: Sequence[Buffer], *, max_answer_bytes: int, limit_bytes: int, copies: int = 1
) -> int:
    """Return an upper bound for the memory of rendering this read, within a MiB or two.

    The answer takes a multiple of its size while it is rendered, and the largest batch three times
    its content: a single record may be all of it, in the decoder's window, in a buffer, and alone.
    """
    count = content_bytes = largest_bytes = 0
    for data in reads:
        for position, header in iter_headers(data):
            size_bytes = limit_bytes  # only the first bytes of a distant batch are known
            if not header.attributes & CODEC_MASK or position + header.size_bytes <= MEASURED_BYTES:
                size_bytes = BatchView(data, position).content_bound(limit_bytes)
            count += max(0, header.records_count)
            content_bytes += size_bytes
            largest_bytes = max(largest_bytes, size_bytes)
    answer_bytes = count * RECORD_BYTES + content_bytes * MOST_GROWTH
    return copies * min(max_answer_bytes, answer_bytes) + DECODER_COPIES * largest_bytes
