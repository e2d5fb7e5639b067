"""Allocates producer ids, each at most once: `tidelog-producer-ids.json`.

Kafka's `ProducerIdManager` without the controller: ids are reserved in blocks before they are
allocated, so a crash loses the rest of a block and never repeats an id.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from engine.checkpoint.json_file import read_json, write_json
from engine.checkpoint.lines import corrupt
from engine.fs.filesystem import FileSystem
from engine.fs.names import PRODUCER_ID_FILE
from engine.types import INT64_MAX

VERSION: Final = 1
BLOCK_SIZE: Final = 1000

_FIELD: Final = "next_producer_id"


class ProducerIds:
    """The producer ids of one data directory. Not thread-safe.

    The file is read by the first call, and written by one call in a thousand.
    """

    def __init__(self, fs: FileSystem, directory: Path, *, block_size: int = BLOCK_SIZE) -> None:
        self.path = directory / PRODUCER_ID_FILE
        self._fs = fs
        self._block_size = block_size
        self._next_id = 0
        self._end_id: int | None = None  # None until the file was read

    def ensure_readable(self) -> None:
        """Raise CorruptCheckpoint if the file is damaged."""
        self._load()

    def allocate(self) -> int:
        """Return an unused id. CorruptCheckpoint if the file is damaged."""
        if self._next_id >= self._load():
            self._reserve(self._next_id)
        allocated = self._next_id
        self._next_id += 1
        return allocated

    def raise_above(self, highest_seen: int) -> None:
        """Make all further ids exceed `highest_seen`, which was found in a log."""
        self._load()
        self._next_id = max(self._next_id, highest_seen + 1)

    @property
    def reserved_end(self) -> int:
        """The exclusive end of the ids that are reserved on disk; reads the file if necessary."""
        return self._load()

    def reserve_through(self, end_id: int) -> None:
        """Reserve the ids below `end_id` on disk: another directory allocates them.

        This directory's own ids continue after them.
        """
        if self._load() < end_id:
            self._reserve(end_id - self._block_size)
            self._next_id = end_id

    def _load(self) -> int:
        """Return the exclusive end of the ids that are reserved on disk."""
        if self._end_id is None:
            content = read_json(self._fs, self.path, VERSION, (_FIELD,)) or {_FIELD: 0}
            end_id = content.get(_FIELD)
            if not isinstance(end_id, int) or not 0 <= end_id <= INT64_MAX:
                raise corrupt(self.path, f"{end_id!r} is not a producer id")
            # Ids that the last process reserved and may not have used are skipped.
            self._next_id = self._end_id = end_id
        return self._end_id

    def _reserve(self, first_id: int) -> None:
        end_id = first_id + self._block_size
        write_json(self._fs, self.path, VERSION, {_FIELD: end_id})
        self._end_id = end_id  # after the write: an id counts as reserved once it is durable
