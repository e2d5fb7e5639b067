"""Adds the topics of data directories to the metadata with which a new Kafka cluster starts.

A KRaft controller whose metadata log is empty writes the records of `bootstrap.checkpoint` to it,
in one transaction. `kafka-storage format` creates that file. Once it has the topics' own ids,
leader epochs and configurations too, the node that has the data directories as its `log.dirs`
serves their partitions, and the other replicas copy them from it.

A record of a cluster's metadata, in the versions of Kafka 4.0 and later, is the value of a Kafka
record: frame version, type and version of the record as unsigned varints, then its fields in
Kafka's flexible encoding, then the number of tagged fields.
"""

from __future__ import annotations

import base64
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from engine.clock import SystemClock
from engine.config import EngineConfig
from engine.errors import (
    EngineError,
    InvalidDataDirectory,
    InvalidRecord,
    InvalidRequestValue,
    PolicyViolation,
)
from engine.fs import names
from engine.fs.directories import replace_atomically
from engine.fs.port import FileSystem
from engine.log.log import Log
from engine.manager.manager import LogManager
from engine.manager.topics import Topic
from engine.records.batch import BatchView, stamp_offset_and_epoch
from engine.records.builder import build_batch
from engine.records.varint import decode_unsigned_varint, encode_unsigned_varint
from engine.tools.offline import open_logs
from engine.topic_keys import ADOPTED_DEFAULTS, MIB
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


_MIN_SEGMENT_BYTES: Final = MIB
"""Kafka's smallest `segment.bytes`."""
_BATCH_RECORDS: Final = 1_000


@dataclass(frozen=True, slots=True)
class Exported:
    """What was added to a checkpoint."""

    topics: int
    partitions: int
    next_producer_id: int


@dataclass(frozen=True, slots=True)
class _Node:
    """The node that will serve the directories, from their `meta.properties`."""

    node_id: int
    directory_ids: Mapping[Path, str]


def export_topics(
    fs: FileSystem,
    directories: Sequence[Path],
    checkpoint: Path,
    replicas: Sequence[int],
    config: EngineConfig,
) -> Exported:
    """Add all topics of the directories to a bootstrap checkpoint; return how many.

    `replicas` are the nodes that will have the partitions, the one of the directories among them.
    The directories are opened and closed as by the service, with `config`. Raises
    InvalidRequestValue, InvalidDataDirectory and PolicyViolation if a cluster could not serve them
    as they are; then the checkpoint is unchanged.
    """
    node = _read_node(fs, directories)
    if node.node_id not in replicas or len(set(replicas)) != len(replicas):
        raise InvalidRequestValue(
            f"replicas are different nodes, {node.node_id} among them: its log.dirs are the data "
            f"directories; not {','.join(map(str, replicas))}"
        )
    before = _Checkpoint.read(fs, checkpoint)
    manager = open_logs(fs, directories, config)
    try:
        _ensure_whole(manager)
        placement = _Placement(node, replicas, config.default_topic_config)
        records = [*placement.records(manager)]
        next_producer_id, _ = manager.allocate_producer()
        records.append(producer_ids_record(next_producer_id))
        exported = Exported(len(manager.topics()), len(manager.logs()), next_producer_id)
        timestamp = SystemClock().now_ms()
    finally:
        manager.close()
    replace_atomically(fs, checkpoint, before.extended(records, timestamp))
    return exported


def _read_node(fs: FileSystem, directories: Sequence[Path]) -> _Node:
    nodes, directory_ids = set(), {}
    for directory in directories:
        node_id, directory_ids[directory] = _read_properties(fs, directory / names.META_PROPERTIES)
        nodes.add(node_id)
    if len(nodes) != 1:
        raise InvalidDataDirectory(
            f"the directories belong to different nodes: {sorted(nodes)}; pass the log.dirs of one"
        )
    return _Node(nodes.pop(), directory_ids)


def _read_properties(fs: FileSystem, path: Path) -> tuple[int, str]:
    try:
        lines = fs.read_bytes(path).decode().splitlines()
        pairs = (line.split("=", 1) for line in lines if line and not line.startswith("#"))
        properties = dict(pairs)
        return int(properties["node.id"]), properties["directory.id"]
    except (FileNotFoundError, ValueError, KeyError) as error:
        raise InvalidDataDirectory(
            f"{path} does not name a node and a directory: run kafka-storage format with this "
            "directory in log.dirs first"
        ) from error


def _ensure_whole(manager: LogManager) -> None:
    """Raise unless a cluster can serve every log as it is."""
    for offline in manager.offline_logs:
        raise offline.refusal()
    for topic in manager.topics().values():
        present = {log.topic_partition.partition for log in manager.logs_of(topic.name)}
        if missing := sorted({*range(topic.partitions)} - present):
            raise PolicyViolation(
                f"topic {topic.name} lacks the partitions {missing}, and a cluster would create "
                "them empty: copy their directories from the broker that has them"
            )
    for log in manager.logs():
        marks = log.watermarks
        if marks.last_stable_offset < marks.log_end_offset:
            raise PolicyViolation(
                f"{log.topic_partition} has an open transaction at offset "
                f"{marks.last_stable_offset}: end it first, because no coordinator of the cluster "
                "knows it"
            )


@dataclass(frozen=True, slots=True)
class _Placement:
    """The records that create topics in the cluster."""

    node: _Node
    replicas: Sequence[int]
    defaults: Mapping[str, str]

    def records(self, manager: LogManager) -> Iterator[bytes]:
        """Yield the records of every topic, then of its partitions."""
        for topic in manager.topics().values():
            yield topic_record(topic.name, topic.topic_id)
            for name, value in sorted(self._configuration(topic).items()):
                yield topic_config_record(topic.name, name, value)
            for log in sorted(manager.logs_of(topic.name), key=lambda log: log.topic_partition):
                yield self._partition(topic, log)

    def _configuration(self, topic: Topic) -> Mapping[str, str]:
        """Return what is not Kafka's default; PolicyViolation if Kafka would refuse it."""
        adopted = ADOPTED_DEFAULTS if topic.adopted else {}
        found = {**self.defaults, **adopted, **topic.overrides}
        segment_bytes = topic.log_config(self.defaults).segment_bytes
        if segment_bytes < _MIN_SEGMENT_BYTES:
            raise PolicyViolation(
                f"topic {topic.name} has segment.bytes={segment_bytes}, and Kafka's minimum is "
                f"{_MIN_SEGMENT_BYTES}: change it with PATCH before the move"
            )
        return found

    def _partition(self, topic: Topic, log: Log) -> bytes:
        number = log.topic_partition.partition
        first = number % len(self.replicas)  # preferred leaders are spread over the nodes
        nodes = [*self.replicas[first:], *self.replicas[:first]]
        own = self.node.directory_ids[log.directory.parent]
        directory_ids = [own if node == self.node.node_id else UNASSIGNED for node in nodes]
        return partition_record(
            topic.topic_id,
            number,
            Replicas(nodes, directory_ids),
            leader=self.node.node_id,
            leader_epoch=log.reader.leader_epoch,
        )


@dataclass(frozen=True, slots=True)
class _Checkpoint:
    """The batches of a bootstrap checkpoint: the header, records, the footer."""

    batches: Sequence[BatchView]

    @classmethod
    def read(cls, fs: FileSystem, path: Path) -> _Checkpoint:
        """Raise InvalidDataDirectory unless it is one that no topics were added to."""
        advice = "format the node again, into directories without a metadata log"
        try:
            batches = [*_batches(fs.read_bytes(path))]
            types = {record_type(value) for value in _values(batches)}
        except (OSError, EngineError) as error:
            raise InvalidDataDirectory(
                f"{path} is not a bootstrap checkpoint ({error}): {advice}"
            ) from error
        if len(batches) < 2 or not batches[-1].header.is_control:
            raise InvalidDataDirectory(f"{path} has no snapshot footer: {advice}")
        if TOPIC_RECORD in types:
            raise InvalidDataDirectory(f"{path} has topics already: {advice}")
        log = path.parent / f"{names.CLUSTER_METADATA_TOPIC}-0" / f"{0:020d}{names.LOG_SUFFIX}"
        if fs.exists(log):
            raise InvalidDataDirectory(
                f"{log} exists, and a node that has started does not read the checkpoint: {advice}"
            )
        return cls(batches)

    def extended(self, records: Sequence[bytes], timestamp: int) -> bytes:
        """Return the content of the file with more records before the footer."""
        *others, footer = self.batches
        position = footer.header.base_offset
        content = bytearray().join(batch.buffer for batch in others)
        for start in range(0, len(records), _BATCH_RECORDS):
            chosen = records[start : start + _BATCH_RECORDS]
            content += build_batch(
                [(timestamp, None, value, ()) for value in chosen],
                base_offset=position,
                leader_epoch=footer.header.leader_epoch,
            )
            position += len(chosen)
        last = bytearray(footer.buffer)
        stamp_offset_and_epoch(last, 0, position, footer.header.leader_epoch)
        return bytes(content + last)


def _batches(content: bytes) -> Iterator[BatchView]:
    position = 0
    while position < len(content):
        batch = BatchView(content, position)
        batch.ensure_intact()
        yield batch
        position += batch.header.size_bytes


def _values(batches: Sequence[BatchView]) -> Iterator[bytes]:
    for batch in batches:
        if not batch.header.is_control:
            for record in batch.records():
                yield record.value or b""
