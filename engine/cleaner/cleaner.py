"""The cleaner: compacts the dirtiest log, one at a time, on a thread of its own.

One at a time because each round needs memory for its offset map. Retention of compacted logs runs
between rounds on the same thread, so that both never work on the same log at once. A log that
cannot be cleaned is reported once and skipped until the next start. Kafka's `LogCleaner` and
`LogCleanerManager`; a round is `Cleaner.doClean`.

The offset up to which each log is clean is kept in Kafka's `cleaner-offset-checkpoint`. Such a mark
is valid for one state of a log. If the topic was created again, or the log was truncated or moved
to another disk, the log counts as dirty from its start, and `Checkpoints` removes the line so that
the next start does not use it. A lost mark costs one round of cleaning and nothing else.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from engine.cleaner.offset_map import SLOT_BYTES, build_offset_map
from engine.cleaner.reading import Pace
from engine.cleaner.rewrite import BatchFilter, LastBatch, Round, rewrite_group
from engine.cleaner.selection import (
    CleanableRange,
    cleanable_range,
    due_by_dirt,
    first_dirty_offset,
    grouped,
    overlapping,
    sealed_bytes_from,
)
from engine.clock import Clock
from engine.config import CleanerConfig
from engine.errors import (
    CorruptIndex,
    Overloaded,
    PolicyViolation,
    Recovering,
    StorageError,
    StorageFull,
    StorageOffline,
    StoredDataCorrupt,
)
from engine.fs.health import DirectoryHealth
from engine.log.log import Log
from engine.log.maintenance import CleaningAborted, Compaction
from engine.manager.checkpoints import Checkpoints
from engine.manager.manager import LogManager
from engine.metrics import Recorder
from engine.segment.segment import Segment
from engine.throttle import Throttle
from engine.types import TopicPartition

_LOG = logging.getLogger(__name__)


def remove_old_segments(logs: Iterable[Log]) -> int:
    """Remove the segments that retention no longer keeps, in every log; return their number.

    A log that fails is reported, and the others continue.
    """
    removed_count = 0
    for log in logs:
        try:
            removed = log.maintenance.run_retention()
        except (Overloaded, StorageError) as error:
            _LOG.error("retention of %s failed: %s", log.topic_partition, error)
            continue
        except Exception:  # noqa: BLE001 - one log must not stop the others
            _LOG.exception("retention of %s failed", log.topic_partition)
            continue
        for segment in removed:
            _LOG.info(
                "%s: removed segment %d, %d bytes, because of its %s",
                log.topic_partition,
                segment.base_offset,
                segment.size_bytes,
                segment.reason.value,
            )
        removed_count += len(removed)
    return removed_count


@dataclass(frozen=True, slots=True)
class CleaningReport:
    """One or more rounds on one log; sizes are those of the segments that were rewritten."""

    log: TopicPartition
    first_dirty_offset: int
    end_offset: int
    """Exclusive: below it every key has at most one record. A full map ends a round early."""
    segments_before: int
    segments_after: int
    bytes_before: int
    bytes_after: int
    records_read: int
    records_kept: int
    records_without_key: int
    """Records without a key, which compaction drops."""
    keys_count: int
    """Different keys in the dirty part."""
    duration_ms: int

    def followed_by(self, later: CleaningReport) -> CleaningReport:
        """Return the report of both rounds; the later one rewrote what the earlier one wrote."""
        return CleaningReport(
            self.log,
            self.first_dirty_offset,
            later.end_offset,
            max(self.segments_before, later.segments_before),
            later.segments_after,
            max(self.bytes_before, later.bytes_before),
            later.bytes_after,
            self.records_read + later.records_read,
            later.records_kept,
            self.records_without_key + later.records_without_key,
            self.keys_count + later.keys_count,
            self.duration_ms + later.duration_ms,
        )

    def __str__(self) -> str:
        return (
            f"{self.log}: compacted offsets {self.first_dirty_offset} to {self.end_offset}, "
            f"{self.bytes_before} bytes in {self.segments_before} segments are now "
            f"{self.bytes_after} in {self.segments_after}, {self.records_kept} of "
            f"{self.records_read} records stay ({self.duration_ms} ms)"
        )


class _Mark(NamedTuple):
    offset: int
    log_id: str
    directory: Path


class CleanMarks:
    """The marks of the open logs; each data directory has a file. Not thread-safe."""

    def __init__(self, files: Mapping[DirectoryHealth, Checkpoints], logs: Iterable[Log]) -> None:
        """Use the marks in the files for `logs`, which were just opened.

        If a mark lies above the last stable offset, the log was truncated: it counts as dirty from
        its start, even after it has grown past the mark again.
        """
        self._files = files
        self._marks: dict[TopicPartition, _Mark] = {}
        for log in logs:
            offset = files[log.durability.health].clean_marks.get(log.topic_partition)
            if offset is not None:
                self.note(log, first_dirty_offset(log, offset))

    def cleaned_up_to(self, log: Log) -> int | None:
        """Return where the last cleaning of this log ended, exclusive; None if unknown."""
        mark = self._marks.get(log.topic_partition)
        return mark.offset if mark is not None and mark == _mark(log, mark.offset) else None

    def note(self, log: Log, offset: int) -> None:
        """Remember that the log is clean below `offset`; durable with the next `write`."""
        self._marks[log.topic_partition] = _mark(log, offset)

    def write(self, logs: Callable[[], Iterable[Log]]) -> None:
        """Drop the marks of all other logs, and write the rest if it has changed."""
        failure: Overloaded | StorageError | None = None
        for health, file in self._files.items():
            if health.is_offline:
                continue
            try:
                file.write_clean_marks(partial(self._current, health.directory, logs))
            except (Overloaded, StorageError) as error:
                failure = error
        if failure is not None:
            raise failure

    def _current(self, here: Path, logs: Callable[[], Iterable[Log]]) -> dict[TopicPartition, int]:
        """Return the marks of one directory, without those of logs that no longer exist."""
        present = {log.topic_partition: _mark(log, 0) for log in logs()}
        self._marks = {
            log: mark
            for log, mark in self._marks.items()
            if present.get(log) == mark._replace(offset=0)
        }
        return {log: mark.offset for log, mark in self._marks.items() if mark.directory == here}


def _mark(log: Log, offset: int) -> _Mark:
    return _Mark(offset, log.reader.log_id, log.directory.parent)


def run_round(
    compaction: Compaction, dirty: CleanableRange, config: CleanerConfig, pace: Pace
) -> CleaningReport:
    """Clean the log from its first segment to the end of the map; return the report.

    A group that was swapped in stays, even if a later one fails. Raises as `build_offset_map` and
    `rewrite_group`.
    """
    log, clock = dirty.log, compaction.context.clock
    started_ms = clock.monotonic_ms()
    newest = build_offset_map(compaction, dirty, config, pace)
    end_offset = newest.latest_offset + 1
    batch_filter = BatchFilter(_round_of(compaction, dirty), newest)
    sources = overlapping(compaction.segments, 0, min(end_offset, dirty.first_uncleanable_offset))
    groups = list(grouped(sources, log.config, dirty.first_uncleanable_offset))
    bytes_before = sum(segment.size_bytes for segment in sources)
    bytes_after = 0
    for group in groups:
        batch_filter.last_batches = last_batches(log)
        output = rewrite_group(
            compaction, group, batch_filter, chunk_bytes=config.chunk_bytes, pace=pace
        )
        bytes_after += output.size_bytes
    counts = batch_filter.counts
    return CleaningReport(
        log.topic_partition,
        dirty.first_dirty_offset,
        end_offset,
        len(sources),
        len(groups),
        bytes_before,
        bytes_after,
        counts.records_read,
        counts.records_kept,
        counts.records_without_key,
        len(newest),
        clock.monotonic_ms() - started_ms,
    )


def last_batches(log: Log) -> dict[int, LastBatch]:
    """Return the last batch of each active producer: those batches must stay."""
    return {
        entry.producer_id: LastBatch(
            entry.batches[-1].last_offset if entry.batches else None, entry.producer_epoch
        )
        for entry in log.producers.active()
    }


def _round_of(compaction: Compaction, dirty: CleanableRange) -> Round:
    context = compaction.context
    return Round(
        now_ms=context.clock.now_ms(),
        delete_retention_ms=dirty.log.config.delete_retention_ms,
        end_offset=dirty.first_uncleanable_offset,
        limit_bytes=context.config.max_decompressed_batch_bytes,
    )


class LogCleaner:
    """Compacts the logs of all data directories. Thread-safe; `start` once, `stop` once."""

    def __init__(
        self,
        manager: LogManager,
        *,
        clock: Clock,
        config: CleanerConfig,
        recorder: Recorder,
    ) -> None:
        self._manager = manager
        self._recorder = recorder
        self._clock = clock
        self._config = config
        self._throttle = Throttle(clock, config.max_bytes_per_second)
        self._one_at_a_time = threading.Lock()
        self._marks: CleanMarks | None = None
        self._uncleanable: dict[TopicPartition, tuple[str, str]] = {}  # log id, reason
        self._tried: set[TopicPartition] = set()  # failed since the last idle pass
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="tidelog-cleaner", daemon=True)

    # -- start and stop ----------------------------------------------------------------------

    def start(self) -> None:
        """Read the cleaner checkpoints and start the thread; all logs must be open."""
        with self._one_at_a_time:
            self._marks = CleanMarks(self._manager.checkpoints, self._manager.logs())
        if self._config.enable:
            self._thread.start()

    def stop(self) -> None:
        """Abandon the current round, which changes nothing, and wait for the thread."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join()
        with self._one_at_a_time:  # wait for a clean_now of another thread
            if self._marks is not None and not self._manager.health.is_offline:
                self._write_marks(self._marks)
            self._marks = None

    def _run(self) -> None:
        try:
            while not self._stopping.wait(self._config.backoff_ms / 1000):
                try:
                    while not self._stopping.is_set() and self.run_pass() is not None:
                        pass  # the next log may be dirty too
                except Exception:  # noqa: BLE001 - or compaction would stop silently
                    _LOG.exception("a pass of the cleaner failed and will run again")
        finally:
            if not self._stopping.is_set():
                self._recorder.cleaner_died()

    # -- work --------------------------------------------------------------------------------

    def run_pass(self) -> CleaningReport | None:
        """Clean the dirtiest log that is due and can be cleaned; run retention on compacted logs.

        A log that cannot be cleaned now, on a full disk for example, is tried again only after all
        others. Returns None if nothing was cleaned. Errors of a single log are reported, not
        raised.
        """
        with self._one_at_a_time:
            if self._manager.health.is_offline or self._marks is None:
                return None
            self._forget_departed()
            candidates = list(self._candidates(self._marks))
            self._report_dirt(candidates, self._marks)
            report = self._clean_first(due_by_dirt(candidates), self._marks)
            self._write_marks(self._marks)
            remove_old_segments(self._compacted_logs())
            return report

    def clean_now(self, log: Log) -> CleaningReport:
        """Clean a log as far as possible, however little of it is dirty; return the report.

        Waits for the current round. Records younger than min.compaction.lag.ms are not cleaned, and
        neither is the active segment: roll it first. Raises PolicyViolation for a log that is not
        compacted, Recovering when stopping, and any error of the log itself.
        """
        with self._one_at_a_time:
            marks = self._marks
            while marks is not None and not self._stopping.is_set():
                _ensure_compacted(log)
                try:
                    return self._clean_fully(log, marks)
                except CleaningAborted as error:
                    _LOG.info("%s: cleaning it again, because %s", log.topic_partition, error)
                finally:
                    self._write_marks(marks)
            raise Recovering("the cleaner is not running")

    def preview(self, log: Log) -> CleanableRange:
        """Return the range that `clean_now` would clean; changes nothing and does not wait.

        Raises PolicyViolation for a log that is not compacted, Recovering when stopping.
        """
        marks = self._marks
        if marks is None:
            raise Recovering("the cleaner is not running")
        _ensure_compacted(log)
        with log.durability.health.reading:
            first_dirty = first_dirty_offset(log, marks.cleaned_up_to(log))
            segments = log.reader.segments
            return cleanable_range(log, segments, first_dirty, self._clock.now_ms())

    @property
    def uncleanable(self) -> Mapping[TopicPartition, str]:
        """The logs that are skipped until the next start, and why."""
        return MappingProxyType({log: why for log, (_, why) in self._uncleanable.items()})

    # -- private steps, under the lock -------------------------------------------------------

    def _candidates(self, marks: CleanMarks) -> Iterator[CleanableRange]:
        for log in self._compacted_logs():
            if log.durability.health.is_offline:
                continue
            try:
                with log.durability.health.reading:
                    candidate = self._range(log, log.reader.segments, marks)
            except Overloaded as error:
                _LOG.warning("%s is skipped by the cleaner: %s", log.topic_partition, error)
            except Exception as error:  # noqa: BLE001 - one log must not stop the others
                self._give_up(log, error)
            else:
                yield candidate

    def _report_dirt(self, candidates: Sequence[CleanableRange], marks: CleanMarks) -> None:
        """Report the dirty ratio and delay of the cleanable logs, and the uncleanable ones."""
        self._recorder.cleaner_looked(
            dirty_ratio=max((one.ratio for one in candidates), default=0.0),
            delay_ms=max((one.overdue_ms for one in candidates), default=0),
        )
        stuck = [log for log in self._manager.logs() if log.topic_partition in self._uncleanable]
        for health in self._manager.directories:
            here = [log for log in stuck if log.durability.health is health]
            size_bytes = sum(
                sealed_bytes_from(log, first_dirty_offset(log, marks.cleaned_up_to(log)))
                for log in here
            )
            self._recorder.uncleanable(str(health.directory), logs=len(here), size_bytes=size_bytes)

    def _compacted_logs(self) -> Iterator[Log]:
        for log in self._manager.logs():
            if log.config.is_compacted and log.topic_partition not in self._uncleanable:
                yield log

    def _range(self, log: Log, segments: Sequence[Segment], marks: CleanMarks) -> CleanableRange:
        """Return the cleanable range of a log; an impossible mark is replaced."""
        mark = marks.cleaned_up_to(log)
        first_dirty = first_dirty_offset(log, mark)
        if mark is not None and mark != first_dirty:
            _LOG.warning("%s: its clean mark %d is impossible", log.topic_partition, mark)
            marks.note(log, first_dirty)
        return cleanable_range(log, segments, first_dirty, self._clock.now_ms())

    def _clean_fully(self, log: Log, marks: CleanMarks) -> CleaningReport:
        """Run rounds until the range is clean; the offset map may not hold all keys at once."""
        report, dirty = self._clean(log, marks)
        while report.end_offset < dirty.first_uncleanable_offset:
            later, dirty = self._clean(log, marks)
            report = report.followed_by(later)
        return report

    def _clean(self, log: Log, marks: CleanMarks) -> tuple[CleaningReport, CleanableRange]:
        """Run one round; return its report and the range it had to clean.

        Raises CleaningAborted if the log was changed meanwhile, whatever error that caused.
        """
        compaction = log.maintenance.compaction()  # first, so that any later change makes it stale
        try:
            with log.durability.health.reading:
                dirty = self._range(log, compaction.segments, marks)
                report = run_round(compaction, dirty, self._config, partial(self._pace, compaction))
        except (CorruptIndex, StoredDataCorrupt, ValueError) as error:
            if compaction.is_stale:  # the bytes or files went away while they were read
                raise CleaningAborted(f"{log.topic_partition} was changed meanwhile") from error
            compaction.context.recorder.corrupt_data_found(log.topic_partition)
            raise
        marks.note(log, report.end_offset)
        self._recorder.compacted(
            log.topic_partition,
            read_bytes=report.bytes_before,
            written_bytes=report.bytes_after,
            duration_ms=report.duration_ms,
            map_utilization=report.keys_count * SLOT_BYTES / self._config.dedupe_buffer_bytes,
        )
        _LOG.info("%s", report)
        return report, dirty

    def _clean_first(
        self, candidates: Sequence[CleanableRange], marks: CleanMarks
    ) -> CleaningReport | None:
        """Clean the first log that can be cleaned and has not failed since the last idle pass."""
        for candidate in candidates:
            log = candidate.log
            if log.topic_partition not in self._tried and not self._stopping.is_set():
                report = self._clean_or_report(log, marks)
                if report is not None:
                    return report
                self._tried.add(log.topic_partition)
        self._tried.clear()
        return None

    def _clean_or_report(self, log: Log, marks: CleanMarks) -> CleaningReport | None:
        try:
            log.durability.health.ensure_online()  # before the whole log is read in vain
            return self._clean(log, marks)[0]
        except CleaningAborted as error:
            _LOG.info("%s was not compacted: %s", log.topic_partition, error)
        except (Overloaded, StorageOffline, StorageFull) as error:
            _LOG.error("%s was not compacted: %s", log.topic_partition, error)
        except Exception as error:  # noqa: BLE001 - one log must not stop the others
            self._give_up(log, error)
        return None

    def _pace(self, compaction: Compaction, size_bytes: int) -> None:
        """Wait as long as the throttle asks; raise CleaningAborted if the round is stale."""
        compaction.ensure_current()
        self._recorder.cleaner_io(size_bytes=size_bytes)
        pause_ms = self._throttle.pause_ms(size_bytes)
        if self._stopping.wait(pause_ms / 1000) if pause_ms else self._stopping.is_set():
            raise CleaningAborted("the cleaner is stopping")

    def _give_up(self, log: Log, error: Exception) -> None:
        _LOG.error("%s is not compacted until restart", log.topic_partition, exc_info=error)
        self._uncleanable[log.topic_partition] = (log.reader.log_id, str(error))

    def _forget_departed(self) -> None:
        """Retry uncleanable logs whose topic was recreated or whose log was truncated."""
        present = {log.topic_partition: log.reader.log_id for log in self._manager.logs()}
        self._uncleanable = {
            log: (log_id, why)
            for log, (log_id, why) in self._uncleanable.items()
            if present.get(log) == log_id
        }

    def _write_marks(self, marks: CleanMarks) -> None:
        try:
            marks.write(self._manager.logs)
        except (Overloaded, StorageError) as error:
            _LOG.error("the cleaner checkpoint was not written: %s", error)


def _ensure_compacted(log: Log) -> None:
    if not log.config.is_compacted:
        raise PolicyViolation(
            f"cleanup.policy of {log.topic_partition} does not include compact",
            log=str(log.topic_partition),
        )
