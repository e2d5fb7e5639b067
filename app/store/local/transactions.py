"""How a producer's open transaction ends in a log of the engine: by a marker, written once."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Final, NamedTuple

from app.limits.executors import Workers
from app.store.port import entry_of
from engine.background.committer import Committer
from engine.clock import Clock
from engine.errors import InvalidTransactionState
from engine.log.log import Log
from engine.log.results import LogTag
from engine.records.batch import BatchView
from engine.records.control import ControlType, build_end_marker, parse_end_marker
from engine.records.scan import iter_headers
from engine.state.producer_entry import ProducerEntry
from engine.types import INT64_MAX, AppendOrigin, FetchIsolation

MAX_ENDED: Final = 1_000
"""Cached first offsets of ended transactions, for repeated requests."""
MAX_SOUGHT_OFFSETS: Final = 100_000
"""Offsets that are searched for the marker of a repeated request."""
PIECE_BYTES: Final = 256 * 1024


class Ending(NamedTuple):
    """Whose transaction is to end, and how."""

    producer_id: int
    producer_epoch: int
    control_type: ControlType


class Ended(NamedTuple):
    """A transaction that has ended."""

    first_offset: int | None
    """None if a repeated request asks for one that is no longer remembered."""
    marker_offset: int
    tag: LogTag
    """Of the log's end after the marker."""


class Transactions:
    """Ends transactions in all logs, one at a time: no transaction ends twice."""

    def __init__(self, workers: Workers, committer: Committer, clock: Clock) -> None:
        self._workers = workers
        self._committer = committer
        self._clock = clock
        self._ending = asyncio.Lock()
        """Held from reading a transaction's producer to its marker."""
        self.ended: dict[tuple[str, int], int] = {}
        """First offsets of ended transactions, by `log_id` and the offset of their marker."""

    async def end(self, log: Log, ending: Ending) -> Ended:
        """Write the marker, or find the one that a repeated request has written.

        Raises ProducerNotFound, ProducerFenced, and InvalidTransactionState if no transaction is
        open and none ended so.
        """
        async with self._ending:
            ended = await self._workers.write(partial(self._end, log, ending))
            if ended.first_offset is not None:
                self.ended[log.reader.log_id, ended.marker_offset] = ended.first_offset
                if len(self.ended) > MAX_ENDED:
                    del self.ended[next(iter(self.ended))]
        return ended

    def _end(self, log: Log, ending: Ending) -> Ended:
        entry = entry_of(log.producers.active(), log.topic_partition, ending.producer_id)
        first_offset = entry.transaction_first_offset
        if first_offset is None:
            marker_offset, tag = _marker_of(log, entry, ending)
            first_offset = self.ended.get((log.reader.log_id, marker_offset))
            return Ended(first_offset, marker_offset, tag)
        marker = build_end_marker(
            ending.control_type,
            producer_id=ending.producer_id,
            producer_epoch=ending.producer_epoch,
            coordinator_epoch=max(entry.coordinator_epoch, 0),
            timestamp=self._clock.now_ms(),
        )
        appended = self._committer.append(
            log, marker, acks_all=True, origin=AppendOrigin.COORDINATOR
        )
        return Ended(first_offset, appended.base_offset, appended.tag)


def _marker_of(log: Log, entry: ProducerEntry, ending: Ending) -> tuple[int, LogTag]:
    """Return the marker that ended a producer's last transaction, and the log's end after it.

    Raises InvalidTransactionState without one of this epoch and kind in range: the log is searched
    from the producer's last batch on.
    """
    marks = log.watermarks
    offset = entry.batches[-1].last_offset + 1 if entry.batches else INT64_MAX
    offset = max(offset, marks.log_start_offset)
    end = min(marks.log_end_offset, offset + MAX_SOUGHT_OFFSETS)
    while offset < end:
        fetched = log.reader.read(offset, max_bytes=PIECE_BYTES, isolation=FetchIsolation.LOG_END)
        assert fetched is not None, "only a read of cached bytes may find nothing"
        for position, header in iter_headers(fetched.data):
            if header.is_control and header.producer_id == ending.producer_id:
                marker = parse_end_marker(BatchView(fetched.data, position))
                is_same = marker is not None and marker.control_type is ending.control_type
                if is_same and header.producer_epoch == ending.producer_epoch:
                    tag = LogTag(fetched.leader_epoch, header.next_offset, header.crc)
                    return header.base_offset, tag
                end = offset  # it ended, in the other way
        offset = fetched.next_offset
    raise InvalidTransactionState(
        f"producer {ending.producer_id} has no open transaction",
        producer_id=ending.producer_id,
    )
