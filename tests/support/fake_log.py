"""A log of a broker in memory."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field

from engine.records.header import parse_header


@dataclass
class FakeLog:
    """One partition; batches are stamped as a broker does."""

    leader: int
    epoch: int = 0
    start_offset: int = 0
    high_watermark: int | None = None
    """None: everything is committed."""
    last_stable_offset: int | None = None
    """None: no transaction is open."""
    reported_high: int | None = None
    """The high watermark of a Fetch response whose records were read later."""
    batches: list[bytes] = field(default_factory=list)
    segment_ends: set[int] = field(default_factory=set)
    """Offsets at which a response ends."""
    aborted: list[tuple[int, int]] = field(default_factory=list)
    """Producer id and first offset of each aborted transaction."""
    producers: list[dict[str, int]] = field(default_factory=list)

    @property
    def end_offset(self) -> int:
        return parse_header(self.batches[-1], 0).next_offset if self.batches else self.start_offset

    @property
    def high(self) -> int:
        return self.end_offset if self.high_watermark is None else self.high_watermark

    @property
    def stable(self) -> int:
        return self.high if self.last_stable_offset is None else self.last_stable_offset

    def append(self, batch: bytes | bytearray | memoryview, base_offset: int | None = None) -> int:
        """Add one batch; return its base offset."""
        base = self.end_offset if base_offset is None else base_offset
        stamped = bytearray(batch)
        struct.pack_into(">q", stamped, 0, base)
        struct.pack_into(">i", stamped, 12, self.epoch)
        self.batches.append(bytes(stamped))
        return base

    def records(self, offset: int, bound: int, max_bytes: int) -> bytes:
        """What a broker sends: at least one batch, cut anywhere."""
        data = b""
        for batch in self.batches:
            header = parse_header(batch, 0)
            if header.next_offset <= offset:
                continue
            if header.base_offset >= bound or len(data) >= max_bytes:
                break
            if data and header.base_offset in self.segment_ends:
                return data
            data += batch
        first = parse_header(data, 0).size_bytes if data else 0
        return data[: max(first, max_bytes)]
