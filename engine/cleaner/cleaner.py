"""The cleaner: again and again the dirtiest log, one at a time, on a thread of its own.

One at a time because the offset map is what compaction costs in memory. After each round retention
runs on the compacted logs, so that it never meets a cleaning of the same log. A log that cannot be
cleaned is reported once and left alone until the next start. Kafka's `LogCleaner` and
`LogCleanerManager`.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from types import MappingProxyType

from engine.cleaner.marks import CleanMarks
from engine.cleaner.offset_map import SLOT_BYTES
from engine.cleaner.report import CleaningReport
from engine.cleaner.round import run_round
from engine.cleaner.selection import (
    CleanableRange,
    cleanable_range,
    due_by_dirt,
    first_dirty_offset,
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
from engine.log.log import Log
from engine.log.maintenance.compaction import CleaningAborted, Compaction
from engine.manager.manager import LogManager
from engine.manager.retention import remove_old_segments
from engine.metrics import Recorder
from engine.segment.segment import Segment
from engine.throttle import Throttle
from engine.types import TopicPartition

_LOG = logging.getLogger(__name__)


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
        self._tried: set[TopicPartition] = set()  # in vain, since a pass last found nothing to do
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="tidelog-cleaner", daemon=True)

    # -- life --------------------------------------------------------------------------------

    def start(self) -> None:
        """Take over the marks and begin; all logs must be open."""
        with self._one_at_a_time:
            self._marks = CleanMarks(self._manager.checkpoints, self._manager.logs())
        if self._config.enable:
            self._thread.start()

    def stop(self) -> None:
        """Give up the round that is under way, which changes nothing, and wait for the thread."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join()
        with self._one_at_a_time:  # whoever called clean_now
            if self._marks is not None and not self._manager.health.is_offline:
                self._write_marks(self._marks)
            self._marks = None

    def _run(self) -> None:
        try:
            while not self._stopping.wait(self._config.backoff_ms / 1000):
                try:
                    while not self._stopping.is_set() and self.run_pass() is not None:
                        pass  # the next log may be as dirty
                except Exception:  # noqa: BLE001 - the thread must go on, or compaction ends unseen
                    _LOG.exception("a pass of the cleaner failed and will run again")
        finally:
            if not self._stopping.is_set():
                self._recorder.cleaner_died()

    # -- work --------------------------------------------------------------------------------

    def run_pass(self) -> CleaningReport | None:
        """Clean the dirtiest log that is due and can be cleaned; run retention on compacted logs.

        A log that cannot be cleaned now, on a full disk for example, is not tried again before all
        others had their turn. Returns None if nothing was cleaned. Only what concerns no single log
        is raised.
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
        """Clean a log as far as it can be, however little of it is dirty; return what that did.

        Waits for a round that is under way. What is younger than min.compaction.lag.ms stays, and
        so does the active segment: roll first. Raises PolicyViolation for a log that is not
        compacted, Recovering when stopping, and what is wrong with the log.
        """
        with self._one_at_a_time:
            marks = self._marks
            while marks is not None and not self._stopping.is_set():
                _ensure_compacted(log)
                try:
                    return self._clean_fully(log, marks)
                except CleaningAborted as error:
                    _LOG.info("%s: once more, because %s", log.topic_partition, error)
                finally:
                    self._write_marks(marks)
            raise Recovering("the cleaner is not running")

    def preview(self, log: Log) -> CleanableRange:
        """Return what `clean_now` would clean; changes nothing and waits for no round.

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
        """The logs that are left alone until the next start, and why."""
        return MappingProxyType({log: why for log, (_, why) in self._uncleanable.items()})

    # -- private steps, one at a time --------------------------------------------------------

    def _candidates(self, marks: CleanMarks) -> Iterator[CleanableRange]:
        for log in self._compacted_logs():
            if log.durability.health.is_offline:
                continue
            try:
                with log.durability.health.reading:
                    candidate = self._range(log, log.reader.segments, marks)
            except Overloaded as error:
                _LOG.warning("%s is not looked at: %s", log.topic_partition, error)
            except Exception as error:  # noqa: BLE001 - whatever it is, the other logs go on
                self._give_up(log, error)
            else:
                yield candidate

    def _report_dirt(self, candidates: Sequence[CleanableRange], marks: CleanMarks) -> None:
        """Tell what there is to do, and what is left undone until the next start."""
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
        """Return what can be cleaned; a mark that cannot be right is put right."""
        mark = marks.cleaned_up_to(log)
        first_dirty = first_dirty_offset(log, mark)
        if mark is not None and mark != first_dirty:
            _LOG.warning("%s: %d is no mark for it", log.topic_partition, mark)
            marks.note(log, first_dirty)
        return cleanable_range(log, segments, first_dirty, self._clock.now_ms())

    def _clean_fully(self, log: Log, marks: CleanMarks) -> CleaningReport:
        """Run as many rounds as the offset map makes it."""
        report, dirty = self._clean(log, marks)
        while report.end_offset < dirty.first_uncleanable_offset:
            later, dirty = self._clean(log, marks)
            report = report.followed_by(later)
        return report

    def _clean(self, log: Log, marks: CleanMarks) -> tuple[CleaningReport, CleanableRange]:
        """Run one round; return what it did, and what it was to clean.

        Raises CleaningAborted if the log changed under it, whatever failed because of that.
        """
        compaction = log.maintenance.compaction()  # first: a change from here on makes it stale
        try:
            with log.durability.health.reading:
                dirty = self._range(log, compaction.segments, marks)
                report = run_round(compaction, dirty, self._config, partial(self._pace, compaction))
        except (CorruptIndex, StoredDataCorrupt, ValueError) as error:
            if compaction.is_stale:  # the bytes, or the open files, went while they were read
                raise CleaningAborted(f"{log.topic_partition} changed meanwhile") from error
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
        """Clean the first of the logs that can be cleaned, and was not tried in vain before."""
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
            log.durability.health.ensure_online()  # before all of the log is read for nothing
            return self._clean(log, marks)[0]
        except CleaningAborted as error:
            _LOG.info("%s was not compacted: %s", log.topic_partition, error)
        except (Overloaded, StorageOffline, StorageFull) as error:
            _LOG.error("%s was not compacted: %s", log.topic_partition, error)
        except Exception as error:  # noqa: BLE001 - whatever it is, the other logs go on
            self._give_up(log, error)
        return None

    def _pace(self, compaction: Compaction, size_bytes: int) -> None:
        """Wait as the throttle asks; raise CleaningAborted if the round has lost its purpose."""
        compaction.ensure_current()
        self._recorder.cleaner_io(size_bytes=size_bytes)
        pause_ms = self._throttle.pause_ms(size_bytes)
        if self._stopping.wait(pause_ms / 1000) if pause_ms else self._stopping.is_set():
            raise CleaningAborted("the cleaner stops")

    def _give_up(self, log: Log, error: Exception) -> None:
        _LOG.error("%s is not compacted until restart", log.topic_partition, exc_info=error)
        self._uncleanable[log.topic_partition] = (log.reader.log_id, str(error))

    def _forget_departed(self) -> None:
        """Give those a chance that were made again or truncated."""
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
            _LOG.error("how far logs are clean was not written down: %s", error)


def _ensure_compacted(log: Log) -> None:
    if not log.config.is_compacted:
        raise PolicyViolation(
            f"cleanup.policy of {log.topic_partition} does not have compact in it",
            log=str(log.topic_partition),
        )
