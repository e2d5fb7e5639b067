"""Limits how many sealed segments have open files.

A sealed segment without readers needs no open files. It rests, with its files closed, from its
flush or the start until a reader uses it. When too many are open, the one that was opened first
rests again. The active segment never rests, because appends use its files under the log lock alone.
"""

from __future__ import annotations

import threading
import weakref
from collections import deque
from typing import Final

from engine.segment.file_records import FileRecords
from engine.segment.indexes import SegmentIndexes


class SealedFiles:
    """The sealed segments with open files. Thread-safe; no other lock is taken under its lock."""

    def __init__(self, limit: int) -> None:
        self.limit: Final = limit
        self._lock = threading.Lock()
        self._opened: deque[weakref.ref[Resting]] = deque()

    def opened(self, segment: Resting) -> None:
        """Add an open segment; close the oldest ones beyond the limit."""
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
        reference = weakref.ref(self)  # weak, so that a deleted log's files are closed at once

        def on_wake() -> None:
            resting = reference()
            if resting is not None:
                resting.woken()

        records.on_wake = indexes.on_wake = on_wake

    def allow(self, files: SealedFiles) -> None:
        """Let the files rest now and whenever too many are open; the segment is sealed and synced.

        The log lock is held, or no other thread can use the segment.
        """
        with self._lock:
            self._files = files
        self.rest()

    def forbid(self) -> None:
        """Keep the files open from now on: the segment is about to be changed."""
        with self._lock:  # wait for a `rest` of another thread
            self._files = None

    def woken(self) -> None:
        """Count as an open sealed segment; called without the file's lock."""
        files = self._files
        if files is not None:
            files.opened(self)

    def rest(self) -> None:
        """Close the files, if allowed; running reads end normally."""
        with self._lock:
            if self._files is not None:
                self._records.rest()
                self._indexes.rest()
