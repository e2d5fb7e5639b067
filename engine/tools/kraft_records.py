"""Records of a Kafka cluster's metadata, in the versions of Kafka 4.0 and later.

A record is the value of a Kafka record: frame version, type and version of the record as unsigned
varints, then its fields in Kafka's flexible encoding, then the number of tagged fields.
"""

from __future__ import annotations

import base64
import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from engine.errors import InvalidRecord
from engine.records.varint import decode_unsigned_varint, encode_unsigned_varint
from engine.types import Buffer

TOPIC_RECORD: Final = 2
PARTITION_RECORD: Final = 3
CONFIG_RECORD: Final = 4
PRODUCER_IDS_RECORD: Final = 15

UNASSIGNED: Final = base64.urlsafe_b64encode(bytes(16)).decode().rstrip("=")
"""The directory id of a replica whose broker has not chosen a log directory yet."""

_FRAME_VERSION: Final = 1
_TOPIC_RESOURCE: Final = 2
_NO_TAGGED_FIELDS: Final = b"\x00"
_NO_BROKER: Final = -1
_NO_BROKER_EPOCH: Final = -1
_FIRST_PARTITION_EPOCH: Final = 0
_INT32: Final = struct.Struct(">i")


@dataclass(frozen=True, slots=True)
class Replicas:
    """The replicas of a partition: node ids, the preferred leader first, and their directories."""

    nodes: Sequence[int]
    directory_ids: Sequence[str]


def topic_record(name: str, topic_id: str) -> bytes:
    """Return the record that creates a topic."""
    return _frame(TOPIC_RECORD, 0, _text(name), _uuid(topic_id))


def partition_record(
    topic_id: str, number: int, replicas: Replicas, *, leader: int, leader_epoch: int
) -> bytes:
    """Return the record that creates a partition; only the leader is in sync."""
    nodes = replicas.nodes
    return _frame(
        PARTITION_RECORD,
        2,
        _INT32.pack(number),
        _uuid(topic_id),
        _array(map(_INT32.pack, nodes)),
        _array([_INT32.pack(leader)]),
        _array([]),  # removing
        _array([]),  # adding
        struct.pack(">iii", leader, leader_epoch, _FIRST_PARTITION_EPOCH),
        _array(map(_uuid, replicas.directory_ids)),
    )


def topic_config_record(topic: str, name: str, value: str) -> bytes:
    """Return the record that sets one configuration of a topic."""
    resource = bytes([_TOPIC_RESOURCE])
    return _frame(CONFIG_RECORD, 0, resource, _text(topic), _text(name), _text(value))


def producer_ids_record(next_producer_id: int) -> bytes:
    """Return the record after which the cluster allocates producer ids from this one on."""
    fields = struct.pack(">iqq", _NO_BROKER, _NO_BROKER_EPOCH, next_producer_id)
    return _frame(PRODUCER_IDS_RECORD, 0, fields)


def record_type(record: Buffer) -> int:
    """Return the type of a record; InvalidRecord if it is of another frame version."""
    frame_version, position = decode_unsigned_varint(record, 0)
    if frame_version != _FRAME_VERSION:
        raise InvalidRecord(f"a metadata record has frame version {frame_version}, not 1")
    return decode_unsigned_varint(record, position)[0]


def _frame(record_type: int, version: int, *fields: bytes) -> bytes:
    head = (encode_unsigned_varint(each) for each in (_FRAME_VERSION, record_type, version))
    return b"".join([*head, *fields, _NO_TAGGED_FIELDS])


def _text(value: str) -> bytes:
    encoded = value.encode()
    return encode_unsigned_varint(len(encoded) + 1) + encoded


def _uuid(value: str) -> bytes:
    return base64.urlsafe_b64decode(value + "==")


def _array(items: Iterable[bytes]) -> bytes:
    encoded = [*items]
    return encode_unsigned_varint(len(encoded) + 1) + b"".join(encoded)
