"""What the rows ask of a log: its files by kind, its epochs, and producers that append to it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from engine.checkpoint.kafka_files import read_epochs
from engine.config import LogConfig
from engine.fs import names
from engine.log.log import Log
from engine.log.results import Appended
from engine.records.control import ControlType, build_end_marker
from engine.state.producer_entry import ProducerEntry
from engine.types import AppendOrigin, TopicPartition
from tests.support.builders import DATA, EVENTS, World, new_batch
from tests.support.logs import with_config
from tests.support.time import START_MS

DENSE = with_config(index_interval_bytes=1)
"""An entry for every append but the first of a segment."""


@dataclass
class Producer:
    """An idempotent or transactional producer; counts its own sequences."""

    log: Log
    producer_id: int = 1
    epoch: int = 0
    sequence: int = 0
    transactional: bool = False

    def send(self, count: int = 1, **options: Any) -> Appended:
        """Append a batch with the next sequences."""
        appended = self.log.append(self.batch(count, **options))
        self.sequence += count
        return appended

    def batch(self, count: int = 1, **options: Any) -> bytearray:
        """The batch that `send` would append."""
        options.setdefault("base_sequence", self.sequence)
        return new_batch(
            count,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            is_transactional=self.transactional,
            **options,
        )

    def end(self, control_type: ControlType, *, coordinator_epoch: int = 0) -> Appended:
        """Append the marker that ends the transaction, as the coordinator does."""
        marker = build_end_marker(
            control_type,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            coordinator_epoch=coordinator_epoch,
            timestamp=START_MS,
        )
        return self.log.append(marker, origin=AppendOrigin.COORDINATOR)

    def commit(self) -> Appended:
        return self.end(ControlType.COMMIT)

    def abort(self) -> Appended:
        return self.end(ControlType.ABORT)


def transaction_of(log: Log, producer_id: int) -> Producer:
    """A producer whose batches belong to transactions."""
    return Producer(log, producer_id, transactional=True)


def entry_of(log: Log, producer_id: int = 1) -> ProducerEntry:
    """What the log knows of one producer, which must be there."""
    (entry,) = [entry for entry in log.producers.active() if entry.producer_id == producer_id]
    return entry


def offsets_of(world: World, suffix: str, *, log: TopicPartition = EVENTS) -> list[int]:
    """The offsets of the files of one kind, `.snapshot` for example, in the log's directory."""
    found = []
    for name in world.fs.list_directory(DATA / str(log)):
        offset = names.base_offset_of(name)
        if offset is not None and name == f"{offset:020d}{suffix}":
            found.append(offset)
    return sorted(found)


def snapshots_of(world: World) -> list[int]:
    """The offsets of the producer snapshots in the log's directory."""
    return offsets_of(world, names.SNAPSHOT_SUFFIX)


def remove_files(world: World, *suffixes: str) -> None:
    """Remove all files of some kinds from the log's directory."""
    directory = DATA / str(EVENTS)
    for name in world.fs.list_directory(directory):
        if name.endswith(suffixes):
            world.fs.remove(directory / name)


def epochs_of(world: World) -> list[tuple[int, int]]:
    """The epochs and start offsets in the log's directory."""
    path = DATA / str(EVENTS) / names.LEADER_EPOCH_CHECKPOINT
    return [tuple(entry) for entry in read_epochs(world.fs, path)]  # type: ignore[misc]  # pairs


def reopen(
    world: World,
    log: Log,
    config: LogConfig,
    *,
    clean: bool,
    recovery_point: int = 0,
    log_start_offset: int = 0,
) -> Log:
    """Stop a log, orderly or by the death of its process, and open it again."""
    if clean:
        log.durability.flush()
        log.close()
    world.restart(power_cut=False)
    return world.open_log(
        config, recovery_point=recovery_point, log_start_offset=log_start_offset, was_clean=clean
    )
