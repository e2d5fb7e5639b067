"""Reads large ranges from segment files (`downloadSegment`), on an executor.

A download costs the service less than an ordinary read of the same bytes, because it answers with
pieces of a file. Only closed segments are read like this, each at one version of its file
(`If-Match`). Wherever that is not possible, the caller reads ordinarily, from the same offset: a
segment that was compacted or removed meanwhile, transactions under `read_committed` (the service
knows which were aborted, and verifies it), a service or proxy that offers no segments.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from pyspark_tidelog.client import ServiceClient
from pyspark_tidelog.documents import Segment, SegmentFiles, Segments
from pyspark_tidelog.records.batches import CONTROL_MASK, TRANSACTIONAL_MASK, BatchFrame
from pyspark_tidelog.records.decode import Decoder
from pyspark_tidelog.source.options import Options
from pyspark_tidelog.source.service import LARGEST_BATCH_BYTES, is_of_another_topic
from pyspark_tidelog.source.tasks import OffsetRange

MIN_ANSWERS: Final = 8
"""Segments are read if what a task has left would take more ordinary answers than this."""

# Forbidden, gone, replaced, beyond its end, or not offered by this store: read ordinarily.
_REFUSED: Final = frozenset({403, 404, 409, 412, 416, 501})
_PARTIAL: Final = 206
_ANSWERED: Final = _REFUSED | {_PARTIAL}
_CONTENT_RANGE: Final = re.compile("bytes 0-0/([0-9]{1,12})")
_INDEX_ENTRY: Final = np.dtype([("offset", ">i4"), ("position", ">i4")])


@dataclass(frozen=True, slots=True)
class Piece:
    """Whole batches of a segment: all that the range holds between an offset and `next_offset`."""

    data: bytearray
    frames: Sequence[BatchFrame]
    next_offset: int


@dataclass(slots=True)
class _OpenSegment:
    """A segment that is being read."""

    path: str
    etag: str
    next_offset: int
    """The first offset that was not read."""
    position: int
    """A batch begins here, at or before that offset."""
    end_position: int
    """All batches of the range end at or before it."""
    end_offset: int
    """The end of the segment or of the range, whichever is less."""
    unread_bytes: int = 0
    """Of the body of the answer that is being read."""
    rest: bytearray = field(default_factory=bytearray)
    """Bytes that were read already, from `position` on: less than a batch."""


class SegmentReader:
    """Reads what closed segments hold of the range of one task."""

    def __init__(
        self, client: ServiceClient, decoder: Decoder, wanted: OffsetRange, options: Options
    ) -> None:
        self._client = client
        self._decoder = decoder
        self._wanted = wanted
        self._max_bytes = options.fetch_bytes
        self._is_worth_it = False
        self._is_committed = options.isolation == "read_committed"
        self._closed: Sequence[Segment] | None = None
        """The closed segments that are left to read; None before the service is asked."""
        self._open: _OpenSegment | None = None

    def consider(self, offset: int, answer_offsets: int, answer_bytes: int) -> None:
        """Judge by an ordinary answer that ended at `offset` whether segments are worth it."""
        left_bytes = (self._wanted.end_offset - offset) * answer_bytes / max(answer_offsets, 1)
        self._is_worth_it = left_bytes > MIN_ANSWERS * self._max_bytes

    def read(self, offset: int) -> Piece | None:
        """Return batches from `offset` on, or None if they have to be read ordinarily."""
        if not self._is_worth_it:
            return None
        if self._open is None or self._open.next_offset != offset:
            self._open = self._find(offset)
        if self._open is None:
            return None
        piece = self._next_piece(self._open, offset)
        if piece is None and self._open is not None:
            self._forget(offset)
        return piece

    def _find(self, offset: int) -> _OpenSegment | None:
        """Open the closed segment that holds the offset."""
        if self._closed is None:
            self._closed = self._list()
        for found in self._closed:
            if found.base_offset <= offset < found.next_offset:
                opened = self._opened(found, offset)
                if opened is None:
                    self._forget(offset)
                return opened
        return None

    def _forget(self, offset: int) -> None:
        """Read the rest of the segment that holds the offset ordinarily."""
        self._open = None
        self._closed = [found for found in self._closed or () if found.base_offset > offset]

    def _list(self) -> list[Segment]:
        answer = self._client.get(f"{self._wanted.log.path}/segments", expected=_REFUSED)
        if answer.status != 200:
            return []
        found = answer.to(Segments).segments
        return [each for each in found if not each.is_active and self._files(each) is not None]

    def _files(self, found: Segment) -> SegmentFiles | None:
        """Return the paths of a segment's files, if they are below the partition's own."""
        files, below = found.files, f"{self._wanted.log.path}/segments/"
        is_own = files is not None and all(
            path.startswith(below) and ".." not in path for path in (files.log, files.index)
        )
        return files if is_own else None

    def _opened(self, found: Segment, offset: int) -> _OpenSegment | None:
        """Fix the version of the file, and look up in its index where the range lies."""
        files = self._files(found)
        assert files is not None, "only such segments are listed"
        path, base_offset = files.log, found.base_offset
        first = self._client.get(path, headers={"Range": "bytes=0-0"}, expected=_ANSWERED)
        self._client.read_body(memoryview(bytearray(1)))
        if first.status != _PARTIAL or is_of_another_topic(first, self._wanted.topic_id):
            return None
        size = _CONTENT_RANGE.fullmatch(first.headers.get("content-range", ""))
        etag = first.headers.get("etag")
        index = self._client.get(files.index, expected=_REFUSED)
        if index.status != 200 or size is None or etag is None:
            return None
        end_offset = min(found.next_offset, self._wanted.end_offset)
        # An entry is the last offset of an append, and the position at which the append begins.
        entries = np.frombuffer(
            index.body, _INDEX_ENTRY, count=len(index.body) // _INDEX_ENTRY.itemsize
        )
        positions = [0, *entries["position"].tolist()]
        before = int(np.searchsorted(entries["offset"], offset - base_offset, side="right"))
        after = int(np.searchsorted(entries["offset"], end_offset - base_offset)) + 2
        size_bytes = int(size[1])
        position = positions[before]
        end_position = positions[after] if after < len(positions) else size_bytes
        if not 0 <= position < end_position <= size_bytes:  # another version of the index
            return None
        return _OpenSegment(path, etag, offset, position, end_position, end_offset)

    def _next_piece(self, segment: _OpenSegment, offset: int) -> Piece | None:
        """Return the next batches, and remember where they end."""
        frames: Sequence[BatchFrame] = []
        data = bytearray()
        while not frames and segment.position < segment.end_position:
            answer = self._whole_batches(segment, offset)
            if answer is None:
                return None
            data, frames = answer
            frames = [frame for frame in frames if frame.next_offset > offset]
        if segment.position >= segment.end_position:
            self._open = None
            next_offset = segment.end_offset
        else:
            next_offset = segment.next_offset = frames[-1].next_offset
        if self._is_committed:
            for number, frame in enumerate(frames):
                if frame.attributes & (TRANSACTIONAL_MASK | CONTROL_MASK):
                    self._closed = []  # more transactions will follow
                    before = Piece(data, frames[:number], frame.base_offset)
                    return before if frame.base_offset > offset else None
        return Piece(data, frames, next_offset)

    def _whole_batches(
        self, segment: _OpenSegment, offset: int
    ) -> tuple[bytearray, Sequence[BatchFrame]] | None:
        """Return the batches from `position` on, at least one; None if they cannot be read."""
        if not segment.unread_bytes and not self._request(segment):
            return None
        data = segment.rest
        while True:
            start = len(data)
            data = data.ljust(start + min(self._max_bytes, segment.unread_bytes))
            end = start + self._client.read_body(memoryview(data)[start:])
            segment.unread_bytes -= end - start
            is_broken = end < len(data)
            if is_broken:
                del data[end:]
                segment.unread_bytes = 0
            frames = self._decoder.frames(data, offset)
            if frames:
                used_bytes = frames[-1].end_position
                segment.position += used_bytes
                segment.rest = data[used_bytes:]
                return data, frames
            if len(data) > LARGEST_BATCH_BYTES + self._max_bytes:
                self._open = None
                return None
            if not segment.unread_bytes:
                if is_broken:
                    self._open = None  # after an ordinary answer the segment is opened again
                return None

    def _request(self, segment: _OpenSegment) -> bool:
        """Ask for the rest of the segment in one answer, whose body is read in pieces."""
        part = f"bytes={segment.position}-{segment.end_position - 1}"
        headers = {"Range": part, "If-Match": segment.etag}
        answer = self._client.get(segment.path, headers=headers, expected=_ANSWERED)
        segment.unread_bytes = segment.end_position - segment.position
        segment.rest = bytearray()
        return answer.status == _PARTIAL
