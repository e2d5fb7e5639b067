"""Appenders, readers, rolls, retention and commits at once, on one log of real files."""

from __future__ import annotations

from pathlib import Path

from engine.clock import SystemClock
from engine.config import LogConfig
from engine.errors import OffsetBelowLogStart
from engine.fs.health import DirectoryHealth
from engine.fs.posix import PosixFileSystem
from engine.log.damage import KnownDamage
from engine.log.files import LogContext
from engine.log.log import Log
from engine.log.open.loader import LoadRequest
from engine.records.builder import build_batch
from engine.records.header import Codec
from engine.segment.indexes import SealedFiles
from engine.types import INT64_MAX
from tests.support.builders import EVENTS, TOPIC_ID, World
from tests.support.crew import Crew, sealed, unsealed
from tests.support.logs import ALL_BYTES, batches_in

SECONDS = 2.0
APPENDERS = 3
CONFIG = LogConfig(
    segment_bytes=20_000,
    segment_index_bytes=4_096,
    index_interval_bytes=500,
    retention_bytes=60_000,
    file_delete_delay_ms=0,
    message_timestamp_after_max_ms=INT64_MAX,
)


class Appender:
    """An idempotent producer; every second append is repeated."""

    def __init__(self, log: Log, producer_id: int) -> None:
        self._log = log
        self._producer_id = producer_id
        self._sequence = 0

    def __call__(self) -> None:
        numbers = range(self._sequence, self._sequence + 1 + self._sequence % 7)
        values = [sealed(b"%09d" % number * 5) for number in numbers]
        codec = Codec(self._sequence % len(Codec))
        bases = [self._append(values, codec) for _ in range(1 + self._sequence % 2)]
        assert len(set(bases)) == 1
        self._sequence += len(values)

    def _append(self, values: list[bytes], codec: Codec) -> int:
        batch = build_batch(
            [(SystemClock().now_ms(), None, value, ()) for value in values],
            codec=codec,
            producer_id=self._producer_id,
            producer_epoch=0,
            base_sequence=self._sequence,
        )
        return self._log.append(batch).base_offset


class Reader:
    """Follows the log from wherever it begins: no gap, nothing twice, nothing uncommitted."""

    def __init__(self, log: Log, max_bytes: int) -> None:
        self._log = log
        self._max_bytes = max_bytes
        self.offset = 0
        self.records = 0

    def __call__(self) -> None:
        try:
            fetched = self._log.reader.read(self.offset, max_bytes=self._max_bytes)
        except OffsetBelowLogStart:
            self.offset = self._log.watermarks.log_start_offset
            return
        assert fetched is not None
        for batch in batches_in(fetched.data):
            batch.ensure_intact()
            for record in batch.records():
                if record.offset >= self.offset:
                    assert record.offset == self.offset
                    unsealed(record.value)
                    self.offset += 1
                    self.records += 1
        assert self.offset == fetched.next_offset <= fetched.watermarks.high_watermark
        if not fetched.data:
            self._look_up()

    def _look_up(self) -> None:
        newest = self._log.reader.max_timestamp()
        assert newest is None or newest.offset < self._log.watermarks.high_watermark
        for segment in self._log.reader.listing().segments:
            assert segment.base_offset <= segment.next_offset


def open_log(tmp_path: Path, world: World) -> Log:
    directory = tmp_path / "events-0"
    directory.mkdir(exist_ok=True)
    context = LogContext(
        PosixFileSystem(),
        SystemClock(),
        world.scheduler,
        world.recorder,
        DirectoryHealth(tmp_path),
        world.config,
        SealedFiles(2),
        KnownDamage(PosixFileSystem(), tmp_path, SystemClock()),
    )
    return Log.open(context, EVENTS, TOPIC_ID, LoadRequest(directory, CONFIG, 0, 0, was_clean=True))


def test_everybody_at_once_finds_every_record(tmp_path: Path) -> None:
    """No gap, no wrong byte, no exception, and the invariants hold afterwards."""
    world = World()
    log = open_log(tmp_path, world)
    crew = Crew(SECONDS)
    for number in range(APPENDERS):
        crew.add(Appender(log, number))
    readers = [Reader(log, max_bytes) for max_bytes in (1, 3_000, ALL_BYTES)]
    for reader in readers:
        crew.add(reader)
    crew.add(log.durability.commit)
    crew.add(log.roll)
    crew.add(world.scheduler.run_due)
    crew.add(log.maintenance.run_retention)
    crew.add(log.maintenance.check_invariants)
    crew.run()
    log.durability.commit()
    end_offset = log.watermarks.log_end_offset
    for reader in readers:
        while reader.offset < end_offset:
            reader()
    assert end_offset > 100
    assert min(reader.records for reader in readers) > 0
    log.durability.flush()
    log.close()
    again = open_log(tmp_path, World())
    again.maintenance.check_invariants()
    assert again.watermarks.log_end_offset == end_offset
