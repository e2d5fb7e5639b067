"""One offset for each partition: recovery points, log starts, high watermarks, cleaner points.

Kafka's `OffsetCheckpointFile`; the four files differ in name only.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from engine.checkpoint.lines import corrupt, parse_number, read_lines, write_lines
from engine.fs.filesystem import FileSystem
from engine.types import INT32_MAX, INT64_MAX, TopicPartition


class OffsetCheckpoint:
    """One offset checkpoint file. One thread writes at a time; readers see the old or new file."""

    def __init__(self, fs: FileSystem, path: Path) -> None:
        self.path = path
        self._fs = fs

    def read(self) -> dict[TopicPartition, int]:
        """Return the offsets; empty if the file is missing. CorruptCheckpoint if it is damaged."""
        offsets = {}
        for topic, partition, offset in read_lines(self._fs, self.path, 3):
            log = TopicPartition(topic, self._bounded(partition, INT32_MAX))
            offsets[log] = self._bounded(offset, INT64_MAX)
        return offsets

    def write(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Replace the whole content, durably."""
        rows = [(log.topic, log.partition, offset) for log, offset in offsets.items()]
        write_lines(self._fs, self.path, rows)

    def _bounded(self, text: str, highest: int) -> int:
        number = parse_number(text, self.path)
        if not 0 <= number <= highest:
            raise corrupt(self.path, f"{number} is out of range")
        return number
