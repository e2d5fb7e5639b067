"""Where a log starts, is stable, is committed and ends: one frozen value and its legal moves.

    log start  ≤  last stable  ≤  high watermark  ≤  log end

Readers take the reference once and need no lock: all four belong together. The order is asserted
in one place. Kafka scatters these over volatile fields of `UnifiedLog`.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Final, Self

from engine.types import FetchIsolation, OffsetMetadata

_set: Final = object.__setattr__
"""Sets a field of a frozen value while it is made."""


@dataclass(frozen=True, slots=True)
class Watermarks:
    """One consistent answer to "where is the log"; every offset but the start carries its place."""

    log_start_offset: int
    high: OffsetMetadata
    end: OffsetMetadata
    first_unstable: OffsetMetadata | None = None
    """Where the earliest undecided transaction begins, if there is one."""
    high_watermark: int = field(init=False, repr=False, compare=False)
    """The end of what is committed: flushed to disk, visible, exclusive."""
    log_end_offset: int = field(init=False, repr=False, compare=False)
    """The offset that the next record gets."""
    last_stable: OffsetMetadata = field(init=False, repr=False, compare=False)
    """The end of what a `read_committed` reader may see, exclusive."""
    last_stable_offset: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        high, end = self.high.offset, self.end.offset
        assert 0 <= self.log_start_offset <= high <= end, self
        assert self.end.position >= 0, "the log end is always known with its place"
        _set(self, "high_watermark", high)
        _set(self, "log_end_offset", end)
        unstable, stable = self.first_unstable, self.high
        if unstable is not None and unstable.offset < high:
            stable = unstable
        _set(self, "last_stable", stable)
        _set(self, "last_stable_offset", stable.offset)

    @classmethod
    def empty_at(cls, offset: int, segment_base_offset: int) -> Self:
        """Return the watermarks of a log without records that starts at `offset`."""
        place = OffsetMetadata(offset, segment_base_offset, 0)
        return cls(offset, place, place)

    def bound(self, isolation: FetchIsolation) -> OffsetMetadata:
        """Return how far a reader of this isolation may look, exclusive."""
        if isolation is FetchIsolation.HIGH_WATERMARK:
            return self.high
        if isolation is FetchIsolation.TXN_COMMITTED:
            return self.last_stable
        return self.end

    def with_end(self, end: OffsetMetadata) -> Watermarks:
        """Move the log end forward, or to the same offset in a newer segment after a roll.

        A high watermark at the log end follows a roll, so that it always points into the segment
        that is read next.
        """
        assert end.offset >= self.end.offset, "truncate to move the log end back"
        high = end if self.high.offset == end.offset else self.high
        return Watermarks(self.log_start_offset, high, end, self.first_unstable)

    def with_high(self, high: OffsetMetadata) -> Watermarks:
        """Raise the high watermark; one that is not above the present one changes nothing."""
        if high.offset < self.high.offset or (
            high.offset == self.high.offset and not self.high.is_on_older_segment_than(high)
        ):
            return self
        if high.offset == self.end.offset:
            high = self.end
        return Watermarks(self.log_start_offset, high, self.end, self.first_unstable)

    def with_log_start(self, log_start_offset: int) -> Watermarks:
        """Raise the log start; it never passes the high watermark."""
        return replace(self, log_start_offset=max(log_start_offset, self.log_start_offset))

    def truncated(self, end: OffsetMetadata) -> Watermarks:
        """Move the log end back, and whatever lies above it; an open transaction stays unstable."""
        assert end.offset <= self.end.offset, "append to move the log end forward"
        high = end if self.high.offset >= end.offset else self.high
        unstable = self.first_unstable
        stays = unstable is not None and unstable.offset < end.offset
        start = min(self.log_start_offset, end.offset)
        return Watermarks(start, high, end, unstable if stays else None)

    def with_first_unstable(self, first_unstable: OffsetMetadata | None) -> Watermarks:
        """Note where the earliest undecided transaction begins."""
        if first_unstable == self.first_unstable:
            return self
        return replace(self, first_unstable=first_unstable)
