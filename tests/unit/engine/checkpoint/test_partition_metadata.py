"""Which topic a directory belongs to: Kafka's `PartitionMetadataFile`."""

import uuid

import pytest

from engine.checkpoint.kafka_files import (
    format_topic_id,
    is_topic_id,
    read_topic_id,
    write_topic_id,
)
from engine.errors import CorruptCheckpoint
from engine.fs.names import PARTITION_METADATA
from engine.fs.posix import PosixFileSystem
from tests.support.golden import golden_partitions
from tests.support.kafka import kafka
from tests.support.place import Place

TOPIC_ID = "S6g8ZPZuQWap3C72_08X5Q"


def test_topic_id_is_a_uuid_in_base64url() -> None:
    """Kafka's example has Kafka's text; all zeros is not an id."""
    raw = uuid.UUID("4ba83c64-f66e-4166-a9dc-2ef6ff4f17e5").bytes
    assert format_topic_id(raw) == TOPIC_ID
    assert is_topic_id(TOPIC_ID)
    for text in ("", "A" * 22, TOPIC_ID + "=", TOPIC_ID[:-1], TOPIC_ID[:-1] + "+"):
        assert not is_topic_id(text)


@kafka("PartitionMetadataFileTest")
def test_file_has_two_lines(place: Place) -> None:
    """The bytes are those of Kafka, without a newline at the end, and read back."""
    path = place / PARTITION_METADATA
    assert read_topic_id(place.fs, path) is None
    write_topic_id(place.fs, path, TOPIC_ID)
    assert place.fs.read_bytes(path) == f"version: 0\ntopic_id: {TOPIC_ID}".encode()
    assert read_topic_id(place.fs, path) == TOPIC_ID


def test_later_versions_are_read(place: Place) -> None:
    """Kafka accepts any version from 0 on, and a newline at the end."""
    path = place.write(PARTITION_METADATA, f"version: 1\ntopic_id: {TOPIC_ID}\n".encode())
    assert read_topic_id(place.fs, path) == TOPIC_ID


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"version: 0",
        f"version: 0\ntopic_id: {'A' * 22}".encode(),
        b"version: 0\ntopic_id: short",
        f"version: -1\ntopic_id: {TOPIC_ID}".encode(),
        f"version: x\ntopic_id: {TOPIC_ID}".encode(),
        f"version:0\ntopic_id: {TOPIC_ID}".encode(),
        f"version: 0\ntopic: {TOPIC_ID}".encode(),
        f"version: 0\nversion: 0\ntopic_id: {TOPIC_ID}".encode(),
        b"version: 0\ntopic_id: \xff",
    ],
)
def test_damaged_file_is_refused(place: Place, content: bytes) -> None:
    """An id that cannot be read is an error: guessing could mix two topics of one name."""
    path = place.write(PARTITION_METADATA, content)
    with pytest.raises(CorruptCheckpoint) as refused:
        read_topic_id(place.fs, path)
    assert refused.value.facts() == {"file": str(path)}


def test_files_of_a_broker_are_read_and_written(place: Place) -> None:
    """Every partition of a real broker gives its bytes back after reading and writing."""
    topic_ids = set()
    for partition in golden_partitions("clean"):
        original = partition / PARTITION_METADATA
        topic_id = read_topic_id(PosixFileSystem(), original)
        assert topic_id is not None
        write_topic_id(place.fs, place / "copy", topic_id)
        assert place.fs.read_bytes(place / "copy") == original.read_bytes()
        topic_ids.add(topic_id)
    assert len(topic_ids) == len(golden_partitions("clean"))
