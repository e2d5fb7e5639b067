"""A compacted log with the cleaner beside it, on a disk in memory, and what a test asks of them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from engine.cleaner.cleaner import CleaningReport, LogCleaner
from engine.cleaner.selection import CleanableRange, cleanable_range
from engine.config import CleanerConfig
from engine.fs.names import CLEANER_CHECKPOINT
from engine.log.log import Log
from engine.manager.manager import LogManager
from engine.records.batch import BatchView
from engine.records.builder import build_batch
from engine.records.control import ControlType, build_end_marker
from engine.types import AppendOrigin, FetchIsolation
from tests.support.builders import EVENTS, World
from tests.support.logs import read_headers, read_records
from tests.support.time import START_MS

BY_HAND = CleanerConfig(enable=False)
"""No thread: a test makes the passes."""

OVERRIDES: dict[str, Any] = {
    "cleanup.policy": "compact",
    "segment.index.bytes": 1200,
    "index.interval.bytes": 200,
    "min.cleanable.dirty.ratio": 0,
    "retention.ms": -1,
}

Pair = tuple[str, str | None]
"""Key and value; a value of None deletes."""


def keyed(*pairs: Pair, timestamp: int = START_MS, **options: Any) -> bytearray:
    """A batch of records with these keys and values; `options` are `build_batch`'s."""
    return build_batch(
        [
            (timestamp, key.encode(), None if value is None else value.encode(), ())
            for key, value in pairs
        ],
        **options,
    )


@dataclass
class Compacted:
    """The topic `events` with one compacted partition; `overrides` change its configuration."""

    world: World = field(default_factory=World)
    overrides: dict[str, Any] = field(default_factory=dict)
    config: CleanerConfig = BY_HAND

    def __post_init__(self) -> None:
        self.open()

    def open(self) -> None:
        """Open, or open again, manager and cleaner."""
        self.manager: LogManager = self.world.open_manager()
        self.manager.create_topic(EVENTS.topic, 1, OVERRIDES | self.overrides)
        self.cleaner = self.new_cleaner()

    def new_cleaner(self, **settings: Any) -> LogCleaner:
        cleaner = LogCleaner(
            self.manager,
            clock=self.world.clock,
            config=replace(self.config, **settings),
            recorder=self.world.recorder,
        )
        cleaner.start()
        return cleaner

    def close(self) -> None:
        self.cleaner.stop()
        self.manager.close()

    def crash(self, *, power_cut: bool) -> None:
        """End the process without a word and start again."""
        self.world.restart(power_cut=power_cut)
        self.open()

    @property
    def log(self) -> Log:
        return self.manager.log(EVENTS)

    def put(self, *pairs: Pair, **options: Any) -> int:
        """Append one batch as a client does; return its base offset."""
        return self.log.append(keyed(*pairs, **options)).base_offset

    def end_transaction(self, kind: ControlType, producer_id: int, producer_epoch: int = 0) -> int:
        """Append a marker; return its offset."""
        marker = build_end_marker(
            kind,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            coordinator_epoch=0,
            timestamp=self.world.clock.now_ms(),
        )
        return self.log.append(marker, origin=AppendOrigin.COORDINATOR).base_offset

    def seal(self) -> None:
        """Roll, and commit what was appended, so that it can be cleaned."""
        self.log.roll()
        self.log.durability.commit()

    def clean(self) -> CleaningReport:
        """Seal, and make one pass that has something to do."""
        self.seal()
        report = self.cleaner.run_pass()
        assert report is not None, "nothing was dirty"
        return report

    def dirty(self, first_dirty: int = 0) -> CleanableRange:
        return cleanable_range(
            self.log, self.log.reader.segments, first_dirty, self.world.clock.now_ms()
        )

    def pairs(self, *, isolation: FetchIsolation = FetchIsolation.HIGH_WATERMARK) -> list[Pair]:
        """Keys and values of all visible records, in order."""
        return [
            (_text(record.key) or "", _text(record.value))
            for record in read_records(self.log, isolation=isolation)
        ]

    def offsets(self) -> list[int]:
        return [record.offset for record in read_records(self.log)]

    def batches(self) -> list[tuple[int, int, int]]:
        """Base offset, last offset and records of every visible batch, control batches too."""
        return [
            (header.base_offset, header.last_offset, header.records_count)
            for header in read_headers(self.log)
        ]

    def files(self) -> list[str]:
        return self.world.fs.list_directory(self.log.directory)

    def file(self, base_offset: int, suffix: str) -> bytes:
        return self.world.fs.read_bytes(self.log.directory / f"{base_offset:020d}{suffix}")

    def checkpoint(self) -> str:
        return self.world.fs.read_bytes(self.world.directory / CLEANER_CHECKPOINT).decode()

    def aborted(self) -> list[int]:
        """The marker offsets in all transaction indexes."""
        return [
            entry.last_offset
            for segment in self.log.reader.segments
            for entry in segment.indexes.transaction.entries()
        ]


def newest(pairs: Iterable[Pair]) -> dict[str, str | None]:
    """What a reader who keeps the last value of each key ends up with; deleted keys are gone."""
    state = dict(pairs)
    return {key: value for key, value in state.items() if value is not None}


def view(*pairs: Pair, **options: Any) -> BatchView:
    """A batch as a filter gets it."""
    return BatchView(keyed(*pairs, **options))


def _text(content: bytes | None) -> str | None:
    return None if content is None else content.decode()
