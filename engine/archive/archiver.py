"""Archives everything committed, on threads of its own: claim, catalogue, then every partition.

What the store does not do is done at a later pass. Its failures never reach appends, reads or
readiness: the archive falls behind, says so, and catches up.
"""

from __future__ import annotations

import enum
import itertools
import logging
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from typing import Final, NamedTuple

from engine.archive.archived_segments import ArchivedSegments
from engine.archive.catalog import CATALOG, Catalog
from engine.archive.documents import Documents, Overtaken
from engine.archive.manifest import folder_of
from engine.archive.ownership import Claim, claim
from engine.archive.partition import ByteRate, PartitionArchive, Tools
from engine.archive.range_cache import RangeCache
from engine.archive.store import ArchiveError, ArchiveFenced, ObjectStore
from engine.clock import Clock
from engine.config import ArchiveConfig
from engine.errors import EngineError
from engine.fs.port import FileSystem
from engine.manager.manager import LogManager
from engine.metrics import Recorder
from engine.types import TopicPartition

_LOG = logging.getLogger(__name__)

CLAIM_WAIT_MS: Final = 5_000
"""The longest that a start waits to learn whether the archive belongs to another directory."""

LAST_PASS_MS: Final = 5_000
"""The longest that a stop waits for what is not archived yet."""

MAX_FAILURES: Final = 3
"""After so many partitions one after the other that failed, a pass ends: the store is down."""


FETCHERS: Final = 8
"""Requests at once for records that only the archive has."""


class ArchivePhase(enum.Enum):
    """What the archiver does."""

    STARTING = "starting"
    """The archive is not claimed yet: the store was not reached."""
    RUNNING = "running"
    FAILING = "failing"
    """The last pass could not archive everything."""
    FENCED = "fenced"
    """The archive belongs to another writer: nothing more is archived until a restart."""


class ArchiveReport(NamedTuple):
    """How the archive as a whole is."""

    url: str
    phase: ArchivePhase
    problem: str | None
    """What went wrong last, while it is not well again."""


class Stopping(Exception):
    """The service stops: an upload under way is given up."""


class Archiver:
    """Archives all logs periodically. `start` once, `stop` once; the rest is thread-safe."""

    def __init__(
        self,
        manager: LogManager,
        store: ObjectStore,
        *,
        fs: FileSystem,
        clock: Clock,
        config: ArchiveConfig,
        recorder: Recorder,
    ) -> None:
        self._manager = manager
        self._store = store
        self._fs = fs
        self._clock = clock
        self._config = config
        self._recorder = recorder
        self._rate = ByteRate(clock, config.max_bytes_per_second)
        self._ending = threading.Event()
        """Set when the last pass is to begin."""
        self._stopping = threading.Event()
        """Set when uploads are to be given up."""
        self._tried = threading.Event()
        """Set once the first claim has succeeded or failed."""
        self._thread = threading.Thread(target=self._run, name="tidelog-archiver", daemon=True)
        self._pool: ThreadPoolExecutor | None = None
        self._tools: Tools | None = None
        self._catalog_versions = Documents(store, CATALOG)
        self._catalog: Catalog | None = None
        self._partitions: dict[TopicPartition, PartitionArchive] = {}
        """Of the present logs; replaced as a whole by the archiver's thread."""
        self._cache = RangeCache(store, clock, config.cache_bytes)
        self._segments = ArchivedSegments(self._cache)
        self._started_ms = clock.monotonic_ms()
        self._next = 0
        """Where the next pass begins, so that no partition is always the last."""
        self.report = ArchiveReport(store.url, ArchivePhase.STARTING, None)

    @property
    def partitions(self) -> dict[TopicPartition, PartitionArchive]:
        """The archives of the present logs, as far as a pass has come to them."""
        return self._partitions

    @property
    def lag_ms(self) -> int:
        """How old the oldest committed record may be that is not archived; 0 if none is."""
        archives = self._partitions
        since_ms: list[int] = []
        for log in self._manager.logs():
            known = archives.get(log.topic_partition)
            marks = log.watermarks
            is_behind = marks.high_watermark > marks.log_start_offset
            if known is not None:
                is_behind = known.is_behind
            if is_behind:
                caught_up_ms = None if known is None else known.state.caught_up_ms
                since_ms.append(self._started_ms if caught_up_ms is None else caught_up_ms)
        now_ms = self._clock.monotonic_ms()  # wall clocks jump
        return max(1, now_ms - min(since_ms)) if since_ms else 0

    # -- start and stop ----------------------------------------------------------------------

    def start(self) -> None:
        """Start the passes, of which the first claims the archive; all logs must be open.

        Raises ArchiveFenced if it belongs to another data directory. A store that does not answer
        delays the start by at most `CLAIM_WAIT_MS`; the claim is then repeated with each pass.
        """
        self._pool = ThreadPoolExecutor(self._config.threads, thread_name_prefix="tidelog-upload")
        self._cache.pool = ThreadPoolExecutor(FETCHERS, thread_name_prefix="tidelog-fetch")
        self._thread.start()
        self._tried.wait(CLAIM_WAIT_MS / 1000)
        report = self.report
        if report.phase is ArchivePhase.FENCED:
            raise ArchiveFenced(str(report.problem))

    def stop(self) -> None:
        """Archive what is left, for at most `LAST_PASS_MS`; then give it up, and end the threads.

        The next start archives the rest. After a failed pass nothing more is tried.
        """
        self._ending.set()
        if self._pool is not None:  # it was started
            self._thread.join(LAST_PASS_MS / 1000)
            self._stopping.set()
            self._thread.join()
            self._pool.shutdown(cancel_futures=True)
            self._cache.close()

    def _run(self) -> None:
        while True:
            try:
                self.run_pass()
            except Stopping:
                return
            except Exception as error:  # noqa: BLE001 - a pass must not end the archive
                _LOG.exception("a pass of the archive failed")
                self._say(ArchivePhase.FAILING, error)
            is_well = self.report.phase is ArchivePhase.RUNNING
            is_behind = any(one.has_more for one in self._partitions.values())
            pause_ms = 0 if is_well and is_behind else self._config.interval_ms
            if self.report.phase is ArchivePhase.FENCED:
                return
            if self._ending.wait(pause_ms / 1000):
                if is_well:
                    self._archive_the_rest()
                return

    def _archive_the_rest(self) -> None:
        while self.lag_ms and self.run_pass():
            pass

    # -- passes ------------------------------------------------------------------------------

    def run_pass(self) -> bool:
        """Archive what is committed, of a backlog a part; return whether it went well.

        Raises Stopping. Every other failure is in the report.
        """
        try:
            if self._tools is None:
                self._claim()
                self._tried.set()
            tools = self._tools
            assert tools is not None, "claimed"
            self._write_catalog(tools)
            failure = self._visit_all(tools)
        except ArchiveFenced as error:
            self._say(ArchivePhase.FENCED, error)
            return False
        except (ArchiveError, EngineError, OSError, Overtaken) as error:
            is_claimed = self._tools is not None
            self._say(ArchivePhase.FAILING if is_claimed else ArchivePhase.STARTING, error)
            return False
        finally:
            self._tried.set()
        self._say(ArchivePhase.RUNNING if failure is None else ArchivePhase.FAILING, failure)
        return failure is None

    def _claim(self) -> None:
        online = [one.directory for one in self._manager.directories if not one.is_offline]
        claimed: Claim = claim(
            self._store,
            self._fs,
            online,
            take_over=self._config.take_over,
            now_ms=self._clock.now_ms(),
        )
        _LOG.info("archiving to %s as writer %d", self._store.url, claimed.writer)
        self._tools = Tools(
            self._store,
            self._fs,
            self._clock,
            self._config,
            self._recorder,
            claimed.writer,
            claimed.is_new_owner,
            self._wait,
            itertools.count(1),
            self._segments,
            self._manager.release,
        )

    def _write_catalog(self, tools: Tools) -> None:
        known = self._catalog
        if known is None:
            document = self._catalog_versions.load()
            known = Catalog() if document is None else Catalog.of(document)
        now_ms = self._clock.now_ms()
        entries = {name: topic.entry for name, topic in self._manager.topics().items()}
        after = known.after(entries, self._manager.producer_ids_end, now_ms)
        after, over = after.forgotten(now_ms, keep_ms=self._config.keep_ms)
        for topic_id in over:
            self._delete_all(folder_of(topic_id))
        if after != known or self._catalog is None:
            self._catalog = None  # if this fails, it may have been written all the same
            self._catalog_versions.write(tools.writer, after.fields())
        self._catalog = after

    def _delete_all(self, prefix: str) -> None:
        self._store.delete([one.name for one in self._store.list(prefix)])

    def _visit_all(self, tools: Tools) -> Exception | None:
        """Visit every partition; return the last failure, if any. Raises ArchiveFenced."""
        logs = self._manager.logs()
        before = self._partitions
        partitions: dict[TopicPartition, PartitionArchive] = {}
        for log in logs:
            known = before.get(log.topic_partition)
            if known is None or known.log is not log:
                known = PartitionArchive(tools, log)
            partitions[log.topic_partition] = known
        self._partitions = partitions
        waiting = list(partitions.values())
        first = self._next % max(1, len(waiting))
        in_a_row, last = 0, None
        for count, (archive, error) in enumerate(
            self._visited([*waiting[first:], *waiting[:first]])
        ):
            if isinstance(error, ArchiveFenced | Stopping):
                raise error
            if error is not None:
                self._recorder.archive_failed(archive.log.topic_partition)
                _LOG.warning("%s was not archived: %s", archive.log.topic_partition, error)
            in_a_row = 0 if error is None else in_a_row + 1
            last = error or last
            if in_a_row >= MAX_FAILURES:
                self._next = first + count + 1
                break
        return last

    def _visited(
        self, archives: Iterable[PartitionArchive]
    ) -> Iterable[tuple[PartitionArchive, Exception | None]]:
        """Visit partitions, on the pool's threads if there is one, and yield the results."""
        pool = self._pool
        if pool is None:
            for archive in archives:
                yield archive, _failure_of(archive.visit)
            return
        running: dict[Future[Exception | None], PartitionArchive] = {}
        try:
            for archive in archives:
                running[pool.submit(_failure_of, archive.visit)] = archive
                if len(running) >= self._config.threads:
                    yield from _ended(running)
            while running:
                yield from _ended(running)
        finally:
            wait(running)

    # -- small things ------------------------------------------------------------------------

    def _wait(self, size_bytes: int) -> None:
        """Wait as the rate asks for; raise Stopping once stopped."""
        pause_ms = self._rate.pause_ms(size_bytes)
        if self._stopping.wait(pause_ms / 1000) if pause_ms > 0 else self._stopping.is_set():
            raise Stopping

    def _say(self, phase: ArchivePhase, error: Exception | None) -> None:
        before = self.report
        problem = None if error is None else str(error)
        self.report = ArchiveReport(self._store.url, phase, problem)
        if phase is not before.phase:
            level = logging.INFO if error is None else logging.ERROR
            _LOG.log(level, "the archive is %s%s", phase.value, f": {problem}" if problem else "")


def _ended(
    running: dict[Future[Exception | None], PartitionArchive],
) -> Iterator[tuple[PartitionArchive, Exception | None]]:
    """Wait for at least one visit; take those that have ended, and yield their results."""
    for future in wait(running, return_when=FIRST_COMPLETED).done:
        yield running.pop(future), future.result()


def _failure_of(visit: Callable[[], None]) -> Exception | None:
    try:
        visit()
    except (ArchiveError, EngineError, OSError, Overtaken, Stopping) as error:
        return error
    return None
