"""The four offsets of a log and its leader epoch as one immutable value, and its legal changes.

    log start  ≤  last stable  ≤  high watermark  ≤  log end

Readers take the reference once and need no lock, because the four always match. The order is
asserted in one place. Kafka has separate volatile fields in `UnifiedLog`.
"""

from __future__ import annotations

from typing import NamedTuple, Self

from engine.types import FetchIsolation, OffsetMetadata


class _Offsets(NamedTuple):
    log_start_offset: int
    high: OffsetMetadata
    end: OffsetMetadata
    first_unstable: OffsetMetadata | None
    """The start of the earliest undecided transaction, if any."""
    high_watermark: int
    """The exclusive end of what is committed: synced to disk and visible."""
    log_end_offset: int
    """The offset that the next record gets."""
    last_stable: OffsetMetadata
    """The exclusive end of what a `read_committed` reader may see."""
    last_stable_offset: int
    leader_epoch: int
    """The epoch of the log that these offsets are of: a truncation begins another one."""


class Watermarks(_Offsets):
    """Consistent offsets of a log; every offset but the start has its position.

    A tuple, because every append makes two, and a frozen dataclass takes three times as long. The
    methods below change it; `_replace` would not derive the offsets.
    """

    __slots__ = ()

    def __new__(
        cls,
        log_start_offset: int,
        high: OffsetMetadata,
        end: OffsetMetadata,
        first_unstable: OffsetMetadata | None = None,
        leader_epoch: int = 0,
    ) -> Self:
        high_watermark, log_end_offset = high.offset, end.offset
        assert 0 <= log_start_offset <= high_watermark <= log_end_offset, (
            log_start_offset,
            high,
            end,
        )
        assert end.position >= 0, "the log end always has a position"
        stable = high
        if first_unstable is not None and first_unstable.offset < high_watermark:
            stable = first_unstable
        return tuple.__new__(
            cls,
            (
                log_start_offset,
                high,
                end,
                first_unstable,
                high_watermark,
                log_end_offset,
                stable,
                stable.offset,
                leader_epoch,
            ),
        )

    def beginning_at(self, log_start_offset: int) -> Watermarks:
        """Lower the log start: the archive has the records between."""
        _, high, end, first_unstable, *_, epoch = self
        return Watermarks(log_start_offset, high, end, first_unstable, epoch)

    @classmethod
    def empty_at(cls, offset: int, segment_base_offset: int, leader_epoch: int = 0) -> Self:
        """Return the watermarks of a log without records that starts at `offset`."""
        place = OffsetMetadata(offset, segment_base_offset, 0)
        return cls(offset, place, place, None, leader_epoch)

    def bound(self, isolation: FetchIsolation) -> OffsetMetadata:
        """Return the exclusive end for readers of this isolation."""
        if isolation is FetchIsolation.HIGH_WATERMARK:
            return self.high
        if isolation is FetchIsolation.TXN_COMMITTED:
            return self.last_stable
        return self.end

    def with_end(self, end: OffsetMetadata) -> Watermarks:
        """Move the log end forward, or to the same offset in a newer segment after a roll.

        After a roll, a high watermark at the log end moves too, so that it points into the segment
        to read next.
        """
        assert end.offset >= self.end.offset, "truncate to move the log end back"
        high = end if self.high.offset == end.offset else self.high
        return Watermarks(self.log_start_offset, high, end, self.first_unstable, self.leader_epoch)

    def with_high(self, high: OffsetMetadata) -> Watermarks:
        """Raise the high watermark; a lower or equal one changes nothing."""
        if high.offset < self.high.offset or (
            high.offset == self.high.offset and not self.high.is_on_older_segment_than(high)
        ):
            return self
        if high.offset == self.end.offset:
            high = self.end
        return Watermarks(
            self.log_start_offset, high, self.end, self.first_unstable, self.leader_epoch
        )

    def with_log_start(self, log_start_offset: int) -> Watermarks:
        """Raise the log start, at most to the high watermark."""
        start = max(log_start_offset, self.log_start_offset)
        return Watermarks(start, self.high, self.end, self.first_unstable, self.leader_epoch)

    def truncated(self, end: OffsetMetadata) -> Watermarks:
        """Lower the log end, and every offset above it; an open transaction stays unstable."""
        assert end.offset <= self.end.offset, "append to move the log end forward"
        high = end if self.high.offset >= end.offset else self.high
        unstable = self.first_unstable
        stays = unstable is not None and unstable.offset < end.offset
        start = min(self.log_start_offset, end.offset)
        return Watermarks(start, high, end, unstable if stays else None, self.leader_epoch)

    def with_first_unstable(self, first_unstable: OffsetMetadata | None) -> Watermarks:
        """Set the start of the earliest undecided transaction."""
        if first_unstable == self.first_unstable:
            return self
        return Watermarks(
            self.log_start_offset, self.high, self.end, first_unstable, self.leader_epoch
        )

    def in_epoch(self, leader_epoch: int) -> Watermarks:
        """Set the leader epoch."""
        if leader_epoch == self.leader_epoch:
            return self
        return Watermarks(
            self.log_start_offset, self.high, self.end, self.first_unstable, leader_epoch
        )
