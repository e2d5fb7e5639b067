"""One round of cleaning on a log that stays in use.

A round takes a snapshot of the sealed segments, writes replacements next to them, and swaps each in
for its sources. Only truncation, retention and the renaming of the directory wait for a swap. If
one of those came first, the round ends with `CleaningAborted` and changes nothing.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from engine.fs import names
from engine.log.context import LogContext
from engine.log.state import LogState
from engine.segment.segment import Segment


class CleaningAborted(Exception):
    """The log changed during the round, or the cleaner is stopping; nothing was replaced."""


class Compaction:
    """One round, for one thread. It uses the log's locks.

    `reshaping` is taken before `naming`, and `naming` before `lock`. Only the first two are held
    while the round waits for the disk.
    """

    def __init__(
        self,
        context: LogContext,
        state: LogState,
        *,
        lock: threading.Lock,
        naming: threading.Lock,
        reshaping: threading.Lock,
    ) -> None:
        self.context = context
        self._state = state
        self._lock = lock
        self._naming = naming
        self._reshaping = reshaping
        with lock:
            self._truncations = state.truncations
            self._directory = state.local.directory
            self.segments = state.local.segments.snapshot.segments
            """All segments when the round began, the active one last."""

    @property
    def is_stale(self) -> bool:
        """Whether the round can no longer be finished.

        True once the log was truncated, its directory renamed, or compaction switched off.
        """
        with self._naming:  # or a rename could be on disk and not yet in memory
            return (
                self._state.truncations != self._truncations
                or self._state.local.directory != self._directory
                or not self._state.local.config.is_compacted
            )

    def ensure_current(self) -> None:
        """Raise CleaningAborted if the round is stale."""
        if self.is_stale:
            raise CleaningAborted(f"{self._directory} was truncated, renamed or reconfigured")

    def create_output(self, base_offset: int) -> Segment:
        """Return an empty segment with `.cleaned` files, which a start would remove."""
        fs = self.context.fs
        names_of_files = (
            names.log_name,
            names.index_name,
            names.time_index_name,
            names.txn_index_name,
        )
        with self.writing():
            for name_of in names_of_files:
                name = name_of(base_offset) + names.CLEANED_SUFFIX
                fs.remove(self._directory / name, missing_ok=True)
            return Segment(
                fs,
                self._directory,
                base_offset,
                self._state.local.config,
                now_ms=self.context.clock.now_ms(),
                suffix=names.CLEANED_SUFFIX,
                is_new=True,
            )

    def discard(self, output: Segment) -> None:
        """Remove an output segment."""
        output.close_handles()
        with self.writing():
            output.remove_files()

    def finish(self, output: Segment, modified_ms: int) -> None:
        """Seal and sync a replacement segment."""
        with self.writing():
            output.seal()
            output.flush()
            output.indexes.rest()
            self.context.fs.set_modified_ms(output.records.path, modified_ms)

    def replace(self, output: Segment, sources: Sequence[Segment]) -> None:
        """Replace the sources by a finished segment, atomically for readers.

        After a power cut a start finds either all of the sources or the output. Raises
        CleaningAborted if one of the sources is no longer in the log.
        """
        state, directory = self._state, self._directory
        with self._reshaping:
            self.ensure_current()
            present = set(map(id, state.local.segments.snapshot.segments))
            if not present.issuperset(map(id, sources)):
                raise CleaningAborted(f"segments of {directory} were removed during the cleaning")
            with self.writing():
                opened = self.context.fs.open_directory(directory)
            with opened, self.context.health.writing:
                # The suffix marks the output as complete; it must be on disk before a source is
                # renamed.
                output.change_suffix(names.SWAP_SUFFIX)
                opened.sync_all()
                with self._lock:
                    state.swap_in(output, sources)
                # Before the output gets a live name: a source whose old name a power cut restored
                # would be a second segment with the same offsets.
                opened.sync_all()
                with self._lock:
                    output.change_suffix("")
                opened.sync_all()
                with self._lock:
                    state.local.rest_sealed([output])

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Guard the writing of a replacement, which may fail for lack of space or open files.

        Any other failure takes the data directory offline, unless the log's directory is gone.
        """
        health = self.context.health
        health.ensure_online()
        try:
            yield
        except OSError as error:
            if self.is_stale:
                raise CleaningAborted(f"{self._directory} was renamed") from error
            with health.appending:
                raise
