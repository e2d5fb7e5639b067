"""What one round of cleaning may do to a log while everybody else goes on using it.

A round looks at the sealed segments of one moment, writes replacements beside them, and puts each
in the place of its sources. Nothing else waits for it but what takes segments away itself:
truncation, retention, and the renaming of the directory. If one of those came first, the round ends
with `CleaningAborted`, and the log is as if it had never begun.
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
    """The log changed under the round, or it was told to stop; nothing has happened."""


class Compaction:
    """One round. Used by one thread; the locks are the log's own.

    `reshaping` is taken before `naming`, that one before `lock`. The disk is waited for under the
    first two only.
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
            """All segments at the beginning, the active one last."""

    @property
    def is_stale(self) -> bool:
        """Whether the round has lost its purpose since it began.

        Because the log was truncated, its directory renamed, or compaction configured away.
        """
        with self._naming:  # or a rename would be seen on the disk before it is seen here
            return (
                self._state.truncations != self._truncations
                or self._state.local.directory != self._directory
                or not self._state.local.config.is_compacted
            )

    def ensure_current(self) -> None:
        """Raise CleaningAborted if the round has nothing to work on any more."""
        if self.is_stale:
            raise CleaningAborted(
                f"{self._directory} was truncated, renamed or configured otherwise"
            )

    def create_output(self, base_offset: int) -> Segment:
        """Return an empty segment whose files have names that a start would remove."""
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
        """Remove what was written so far."""
        output.close_handles()
        with self.writing():
            output.remove_files()

    def finish(self, output: Segment, modified_ms: int) -> None:
        """Seal a replacement and return once it would survive a power cut."""
        with self.writing():
            output.seal()
            output.flush()
            output.indexes.rest()
            self.context.fs.set_modified_ms(output.records.path, modified_ms)

    def replace(self, output: Segment, sources: Sequence[Segment]) -> None:
        """Put a finished segment in the place of its sources, for readers at one instant.

        Whenever the power fails, a start finds either all of the sources or the output. Raises
        CleaningAborted if one of the sources is no longer in the log.
        """
        state, directory = self._state, self._directory
        with self._reshaping:
            self.ensure_current()
            present = set(map(id, state.local.segments.snapshot.segments))
            if not present.issuperset(map(id, sources)):
                raise CleaningAborted(f"segments of {directory} were removed meanwhile")
            with self.writing():
                opened = self.context.fs.open_directory(directory)
            with opened, self.context.health.writing:
                # The name says that the output is complete, and must be on disk before a source
                # has lost its own.
                output.change_suffix(names.SWAP_SUFFIX)
                opened.sync_all()
                with self._lock:
                    state.swap_in(output, sources)
                # Before the output gets a name like theirs: a source whose old name came back after
                # a power cut would be a second segment with the same offsets.
                opened.sync_all()
                with self._lock:
                    output.change_suffix("")
                opened.sync_all()
                with self._lock:
                    state.local.rest_sealed([output])

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Guard the writing of a replacement, which may fail for want of space or files: no harm.

        Any other failure takes the data directory offline, unless the log's own directory has gone.
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
