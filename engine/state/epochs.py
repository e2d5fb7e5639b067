"""The leader epochs of one log, and the first offset of each.

Epochs and start offsets strictly ascend; an assignment removes entries that would violate that.
Readers take the immutable tuple of entries and need no lock; changes need the log lock. An
assignment is on disk before it takes effect. A truncation changes memory at once, and the file with
the next `flush`: after a crash the file has too many entries, never too few, and loading trims
them. Mirrors Kafka's `LeaderEpochFileCache`.
"""

from __future__ import annotations

import logging
import threading
from bisect import bisect_left, bisect_right
from operator import attrgetter
from pathlib import Path
from typing import Final

from engine.checkpoint.kafka_files import read_epochs, write_epochs
from engine.errors import InvalidRequestValue
from engine.fs.names import LEADER_EPOCH_CHECKPOINT
from engine.fs.port import FileSystem
from engine.types import EpochOffset

_logger = logging.getLogger(__name__)

_start_offset = attrgetter("start_offset")


class LeaderEpochCache:
    """The entries of `leader-epoch-checkpoint` in one partition directory.

    The constructor reads the file and raises CorruptCheckpoint if it is damaged; a missing file
    counts as empty.
    """

    def __init__(self, fs: FileSystem, directory: Path) -> None:
        self._fs = fs
        self._path = directory / LEADER_EPOCH_CHECKPOINT
        self._file_lock = threading.Lock()  # an assignment and a flush may run at the same time
        self._entries: tuple[EpochOffset, ...] = tuple(read_epochs(fs, self._path))
        self._written = self._entries
        self.highest_epoch_as_read: Final = self._entries[-1].epoch if self._entries else 0
        """The latest epoch at loading. Loading trims entries, but never lowers this epoch."""

    def assign(self, epoch: int, start_offset: int) -> bool:
        """Record that `epoch` begins at `start_offset`, unless it is the latest and began before.

        Returns whether the entries changed; a change is on disk. If the write fails, nothing
        changes. Raises InvalidRequestValue for a negative epoch or offset.
        """
        if self._entries:
            latest = self._entries[-1]
            if epoch == latest.epoch and start_offset >= latest.start_offset:
                return False  # every append but the first of an epoch
        if epoch < 0 or start_offset < 0:
            raise InvalidRequestValue(
                f"epoch {epoch} cannot begin at offset {start_offset}",
                epoch=epoch,
                start_offset=start_offset,
            )
        self._replace(self._with(EpochOffset(epoch, start_offset)))
        return True

    def move_start(self, start_offset: int) -> None:
        """Make the latest epoch begin at `start_offset`, after a truncation to that offset.

        Entries at or after it are removed. `flush` writes the file. Until then a start still finds
        the epoch in it, and takes its start offset from the batches.
        """
        latest = self._entries[-1]
        self._entries = self._with(EpochOffset(latest.epoch, start_offset))

    def _with(self, assigned: EpochOffset) -> tuple[EpochOffset, ...]:
        """Return the entries with this one added, without those that it replaces."""
        epoch, start_offset = assigned
        kept = self._entries
        while kept and (kept[-1].epoch >= epoch or kept[-1].start_offset >= start_offset):
            kept = kept[:-1]
        if len(kept) < len(self._entries):
            replaced = self._entries[len(kept) :]
            _logger.warning("%s: %s replaces %s", self._path, assigned, replaced)
        return (*kept, assigned)

    def truncate_from_end(self, end_offset: int) -> bool:
        """Remove the epochs that begin at or after `end_offset`; `flush` writes the file."""
        count = bisect_left(self._entries, end_offset, key=_start_offset)
        if end_offset < 0 or count == len(self._entries):
            return False
        self._entries = self._entries[:count]
        return True

    def truncate_from_start(self, start_offset: int) -> bool:
        """Remove entries before `start_offset`; the epoch of that offset now begins there.

        `flush` writes the file.
        """
        count = bisect_right(self._entries, start_offset, key=_start_offset)
        if count == 0 or self._entries[0].start_offset == start_offset:
            return False
        in_force = EpochOffset(self._entries[count - 1].epoch, start_offset)
        self._entries = (in_force, *self._entries[count:])
        return True

    def clear_and_flush(self) -> None:
        """Remove all entries, in memory and on disk."""
        self._replace(())

    def flush(self) -> None:
        """Write the entries to the file. The log lock is not needed."""
        with self._file_lock:
            entries = self._entries
            if self._written is not entries:
                try:
                    write_epochs(self._fs, self._path, entries)
                except FileNotFoundError:
                    return  # the directory was renamed or removed meanwhile
                self._written = entries

    def move_to(self, directory: Path) -> None:
        """Use the file in the renamed partition directory."""
        with self._file_lock:
            self._path = directory / LEADER_EPOCH_CHECKPOINT

    @property
    def entries(self) -> tuple[EpochOffset, ...]:
        """All entries, oldest first."""
        return self._entries

    @property
    def latest(self) -> EpochOffset | None:
        entries = self._entries
        return entries[-1] if entries else None

    def check_invariants(self) -> None:
        """Fail unless epochs and start offsets strictly ascend."""
        for earlier, later in zip(self._entries, self._entries[1:], strict=False):
            assert earlier.epoch < later.epoch, (earlier, later)
            assert earlier.start_offset < later.start_offset, (earlier, later)

    def _replace(self, entries: tuple[EpochOffset, ...]) -> None:
        """Write `entries` to disk, then use them."""
        with self._file_lock:
            write_epochs(self._fs, self._path, entries)
            self._entries = entries
            self._written = entries
