"""The offsets of one partition, as brokers last gave them: published whole, never going back."""

from __future__ import annotations

from collections.abc import Callable, Hashable

from engine.state.watermarks import Watermarks
from engine.types import OffsetMetadata


class Marks:
    """What is known of one log of the cluster. Belongs to the event loop."""

    def __init__(self, identity: Hashable, on_moved: Callable[[Hashable], None]) -> None:
        """`on_moved` gets the identity whenever the high watermark has moved."""
        self._identity = identity
        self._on_moved = on_moved
        self.watermarks = watermarks_of(0, 0, 0, 0)
        self.leader_epoch = 0

    def saw(
        self,
        *,
        log_start_offset: int = 0,
        high_watermark: int = 0,
        last_stable_offset: int | None = None,
        log_end_offset: int = 0,
        leader_epoch: int = 0,
    ) -> None:
        """Publish what a response says; committed offsets never go back, as a new leader's may.

        Without a last stable offset, no transaction is believed to be open unless one was.
        """
        before = self.watermarks
        start = max(before.log_start_offset, log_start_offset)
        high = max(before.high_watermark, high_watermark, start)
        # A new leader may not have what an append with `acks=1` wrote to the one before it.
        known_end = 0 if leader_epoch > self.leader_epoch else before.log_end_offset
        end = max(known_end, log_end_offset, high)
        self.leader_epoch = max(self.leader_epoch, leader_epoch)
        if last_stable_offset is not None:
            stable = max(before.last_stable_offset, last_stable_offset, start)
        elif before.last_stable_offset < before.high_watermark:
            stable = max(before.last_stable_offset, start)
        else:
            stable = high
        after = watermarks_of(start, min(stable, high), high, end).in_epoch(self.leader_epoch)
        if after != before:
            self.watermarks = after
            if (high, stable) != (before.high_watermark, before.last_stable_offset):
                self._on_moved(self._identity)


def watermarks_of(start: int, stable: int, high: int, end: int) -> Watermarks:
    """Return four offsets of the cluster, where positions in files are unknown."""
    unstable = OffsetMetadata(stable, 0, 0) if stable < high else None
    return Watermarks(start, OffsetMetadata(high, 0, 0), OffsetMetadata(end, 0, 0), unstable)
