"""Batch headers in one line, and a log that has producers and no bytes."""

from collections.abc import Sequence

from engine.records.control import ControlType, EndMarker
from engine.records.header import (
    CONTROL_MASK,
    LOG_OVERHEAD_BYTES,
    MAGIC_2,
    TRANSACTIONAL_MASK,
    BatchHeader,
)
from engine.state.producer_verdict import Accepted, Duplicate, Verdict
from engine.state.producers import ProducerStates
from engine.types import (
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    UNKNOWN_OFFSET_METADATA,
    AbortedTransaction,
    AppendOrigin,
    OffsetMetadata,
)
from tests.support.time import START_MS

BATCH_BYTES = 100

Marker = ControlType | tuple[ControlType, int]
"""How a transaction ends, and the coordinator's epoch if it matters."""

COMMIT = ControlType.COMMIT
ABORT = ControlType.ABORT


def marker_of(header: BatchHeader, marker: Marker) -> EndMarker:
    """What a reader of that control batch finds in it."""
    control_type, coordinator_epoch = marker if isinstance(marker, tuple) else (marker, 0)
    return EndMarker(control_type, coordinator_epoch, header.max_timestamp, header.base_offset)


def data_batch(
    producer_id: int = 1,
    *,
    offset: int,
    sequence: int,
    count: int = 1,
    epoch: int = 0,
    timestamp: int = START_MS,
    transactional: bool = False,
) -> BatchHeader:
    """The header of a batch of records whose offsets are assigned."""
    return BatchHeader(
        base_offset=offset,
        length=BATCH_BYTES - LOG_OVERHEAD_BYTES,
        leader_epoch=0,
        magic=MAGIC_2,
        crc=0,
        attributes=TRANSACTIONAL_MASK if transactional else 0,
        last_offset_delta=count - 1,
        base_timestamp=timestamp,
        max_timestamp=timestamp,
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
        records_count=count,
    )


def first_undecided(states: ProducerStates) -> int | None:
    """Where the oldest open transaction begins."""
    firsts = (entry.transaction_first_offset for entry in states.active_producers(START_MS))
    return min((first for first in firsts if first is not None), default=None)


def is_late(states: ProducerStates, now_ms: int, timeout_ms: int) -> bool:
    """Whether a producer has left its transaction open for too long."""
    return any(entry.is_late(now_ms, timeout_ms) for entry in states.active_producers(now_ms))


def plain_batch(*, offset: int, count: int = 1) -> BatchHeader:
    """The header of a batch without a producer id."""
    return data_batch(
        NO_PRODUCER_ID, offset=offset, sequence=NO_SEQUENCE, count=count, epoch=NO_PRODUCER_EPOCH
    )


def control_batch(
    producer_id: int = 1, *, offset: int, epoch: int = 0, timestamp: int = START_MS
) -> BatchHeader:
    """The header of a control batch with one record."""
    header = data_batch(
        producer_id, offset=offset, sequence=NO_SEQUENCE, epoch=epoch, timestamp=timestamp
    )
    return header._replace(attributes=TRANSACTIONAL_MASK | CONTROL_MASK)


class ProducerLog:
    """The producer side of a log: does what `Log.append` does, in its order, without bytes."""

    def __init__(self, states: ProducerStates) -> None:
        self.states = states
        self.aborted: list[AbortedTransaction] = []

    def append(
        self,
        *headers: BatchHeader,
        origin: AppendOrigin = AppendOrigin.CLIENT,
        marker: Marker | None = None,
        start: OffsetMetadata = UNKNOWN_OFFSET_METADATA,
    ) -> Verdict:
        """Append batches with a client's checks; `marker` is the content of the first one."""
        markers = {} if marker is None else {0: marker_of(headers[0], marker)}
        verdict = self.states.judge(headers, origin, start=start, markers=markers)
        if isinstance(verdict, Accepted):
            self._publish(verdict, headers)
        return verdict

    def end_transaction(
        self,
        marker: Marker,
        *,
        offset: int,
        producer_id: int = 1,
        epoch: int = 0,
        timestamp: int = START_MS,
    ) -> Accepted:
        """Append a marker as the coordinator does."""
        header = control_batch(producer_id, offset=offset, epoch=epoch, timestamp=timestamp)
        verdict = self.append(header, origin=AppendOrigin.COORDINATOR, marker=marker)
        assert isinstance(verdict, Accepted)
        return verdict

    def replicate(self, header: BatchHeader, marker: Marker | None = None) -> None:
        """Apply a batch that is in the log already."""
        ended = None if marker is None else marker_of(header, marker)
        aborted = self.states.observe(header, ended)
        if aborted is not None:
            self.aborted.append(aborted)
        self.states.check_invariants()

    def is_duplicate(self, header: BatchHeader) -> bool:
        """Whether a client's append of this batch would be a duplicate."""
        return isinstance(self.states.judge((header,), AppendOrigin.CLIENT), Duplicate)

    def _publish(self, verdict: Accepted, headers: Sequence[BatchHeader]) -> None:
        for completed in self.states.apply(verdict):
            aborted = self.states.decide(completed)
            if aborted is not None:
                self.aborted.append(aborted)
        self.states.map_end_offset = headers[-1].next_offset
        self.states.check_invariants()
