"""Control batches: the markers that end transactions, and types that tidelog ignores.

A control batch has one record, whose key is its type (int16 version, int16 type). The value of an
end marker is an int16 version and the epoch of the transaction coordinator, int32. Versions above 0
are read as 0. Mirrors Kafka's `ControlRecordType` and `EndTransactionMarker`.
"""

from __future__ import annotations

import enum
import struct
from typing import Final, NamedTuple

from engine.errors import InvalidRecord, InvalidRequestValue
from engine.records.batch import BatchView
from engine.records.builder import encode_batch
from engine.records.header import CONTROL_MASK, MAGIC_2, TRANSACTIONAL_MASK, BatchHeader
from engine.records.record import Record
from engine.types import NO_LEADER_EPOCH, NO_SEQUENCE, Buffer

_KEY: Final = struct.Struct(">hh")  # version, type
_VALUE: Final = struct.Struct(">hi")  # version, coordinator epoch
_VERSION: Final = 0

END_MARKER_BYTES: Final = 78
"""The size of every marker batch that tidelog writes."""


@enum.unique
class ControlType(enum.IntEnum):
    """The type of a control record; only the first two change a log's state."""

    UNKNOWN = -1
    ABORT = 0
    COMMIT = 1
    LEADER_CHANGE = 2
    SNAPSHOT_HEADER = 3
    SNAPSHOT_FOOTER = 4
    KRAFT_VERSION = 5
    KRAFT_VOTERS = 6


class EndMarker(NamedTuple):
    """The content of a marker: the end of a producer's transaction."""

    control_type: ControlType
    coordinator_epoch: int
    timestamp: int
    offset: int

    @property
    def is_abort(self) -> bool:
        return self.control_type is ControlType.ABORT


def parse_control_type(key: Buffer | None) -> ControlType:
    """Return the type in a control record's key; `UNKNOWN` for types that readers ignore.

    Raises `InvalidRecord` for a key of fewer than 4 bytes or a negative version.
    """
    if key is None or len(key) < _KEY.size:
        raise InvalidRecord("the key of a control record has fewer than 4 bytes")
    version, number = _KEY.unpack_from(key)
    if version < 0:
        raise InvalidRecord(f"the key of a control record has version {version}")
    if ControlType.ABORT <= number <= ControlType.KRAFT_VOTERS:
        return ControlType(number)
    return ControlType.UNKNOWN


def parse_coordinator_epoch(value: Buffer | None) -> int:
    """Return the coordinator epoch of an end marker's value; `InvalidRecord` as for the key."""
    if value is None or len(value) < _VALUE.size:
        raise InvalidRecord("the value of an end marker has fewer than 6 bytes")
    version, coordinator_epoch = _VALUE.unpack_from(value)
    if version < 0:
        raise InvalidRecord(f"the value of an end marker has version {version}")
    return int(coordinator_epoch)


def parse_end_marker(batch: BatchView) -> EndMarker | None:
    """Return the marker in a control batch, or None if it has none.

    A batch that compaction emptied has none, and neither have other control types.
    """
    assert batch.header.is_control, "only control batches hold markers"
    for record in batch.records():
        control_type = parse_control_type(record.key)
        if control_type in (ControlType.ABORT, ControlType.COMMIT):
            coordinator_epoch = parse_coordinator_epoch(record.value)
            return EndMarker(control_type, coordinator_epoch, record.timestamp, record.offset)
        return None
    return None


def build_end_marker(
    control_type: ControlType,
    *,
    producer_id: int,
    producer_epoch: int,
    coordinator_epoch: int,
    timestamp: int,
    base_offset: int = 0,
    leader_epoch: int = NO_LEADER_EPOCH,
) -> bytearray:
    """Return the batch that commits or aborts a producer's transaction, byte for byte Kafka's."""
    if control_type not in (ControlType.ABORT, ControlType.COMMIT) or producer_id < 0:
        raise InvalidRequestValue("an end marker must commit or abort, and needs a producer id")
    header = BatchHeader(
        base_offset=base_offset,
        length=0,
        leader_epoch=leader_epoch,
        magic=MAGIC_2,
        crc=0,
        attributes=TRANSACTIONAL_MASK | CONTROL_MASK,
        last_offset_delta=0,
        base_timestamp=timestamp,
        max_timestamp=timestamp,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=NO_SEQUENCE,
        records_count=1,
    )
    key = _KEY.pack(_VERSION, control_type)
    value = _VALUE.pack(_VERSION, coordinator_epoch)
    return encode_batch(header, [Record(base_offset, timestamp, key, value, ())])
