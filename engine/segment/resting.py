"""Which sealed segments have their files open, and how many at the most.

A sealed segment without readers needs no open file. It rests from its flush, or from the start,
until a reader looks into it; then it is one of so many that may be open, of which the one that was
opened first rests again. The active segment, and one that is about to be it, never rests: appends
use its files under the log's lock alone.
"""

from __future__ import annotations

import threading
import weakref
from collections import deque
from typing import Final

from engine.segment.file_records import FileRecords
from engine.segment.indexes import SegmentIndexes


class SealedFiles:
    """The sealed segments whose files were opened again. Thread-safe; a leaf among the locks."""

    def __init__(self, limit: int) -> None:
        self.limit: Final = limit
        self._lock = threading.Lock()
        self._opened: deque[weakref.ref[Resting]] = deque()

    def opened(self, segment: Resting) -> None:
        """Note that a segment is open; have those that are too many rest."""
        with self._lock:
            self._opened.append(weakref.ref(segment))
            excess = len(self._opened) - self.limit
            oldest = [self._opened.popleft() for _ in range(excess)]
        for reference in oldest:
            opened = reference()
            if opened is not None:
                opened.rest()


class Resting:
    """Whether the files of one segment may rest. Thread-safe."""

    __slots__ = ("__weakref__", "_files", "_indexes", "_lock", "_records")

    def __init__(self, records: FileRecords, indexes: SegmentIndexes) -> None:
        self._records = records
        self._indexes = indexes
        self._files: SealedFiles | None = None
        self._lock = threading.Lock()
        reference = weakref.ref(self)  # or the files of a forgotten log stay open for a while

        def on_wake() -> None:
            resting = reference()
            if resting is not None:
                resting.woken()

        records.on_wake = indexes.on_wake = on_wake

    def allow(self, files: SealedFiles) -> None:
        """Let the files rest now, and whenever too many are open: the segment is sealed and synced.

        The log lock is held, or no other thread knows the segment.
        """
        with self._lock:
            self._files = files
        self.rest()

    def forbid(self) -> None:
        """Keep open what is open or opened from now on: the segment is about to be changed."""
        with self._lock:  # not while another thread has it rest
            self._files = None

    def woken(self) -> None:
        """Count among the sealed segments that are open; called without a lock of the file."""
        files = self._files
        if files is not None:
            files.opened(self)

    def rest(self) -> None:
        """Let go of the files, if that is allowed; reads that are under way end normally."""
        with self._lock:
            if self._files is not None:
                self._records.rest()
                self._indexes.rest()
