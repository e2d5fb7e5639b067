"""Looks after the bucket: what each partition has there, and what nothing names any more."""

from __future__ import annotations

from collections.abc import Container, Iterator
from typing import NamedTuple

import crc32c

from engine.archive.catalog import CATALOG, Catalog
from engine.archive.documents import Documents
from engine.archive.manifest import (
    LOGS,
    Manifest,
    ObjectRef,
    manifest_prefix,
    topic_id_of,
    writer_of,
)
from engine.archive.ownership import WRITERS
from engine.archive.store import ArchiveError, ObjectMissing, ObjectStore, StoredObject
from engine.types import Buffer, TopicPartition


class PartitionStatus(NamedTuple):
    """What the archive has of a partition."""

    log: TopicPartition
    log_start_offset: int
    archived_offset: int
    archived_ms: int
    """When the last records were archived; 0 if none are."""
    size_bytes: int
    """The bytes of the log itself."""
    removed_bytes: int
    """What is kept for restores to an earlier time."""
    objects: int


class Prunable(NamedTuple):
    """Objects that no manifest names: an upload that was given up left them."""

    objects: list[StoredObject]

    @property
    def size_bytes(self) -> int:
        return sum(one.size_bytes for one in self.objects)


def load_catalog(store: ObjectStore) -> Catalog:
    """Return the archive's catalogue; ArchiveError if there is no archive."""
    document = Documents(store, CATALOG).load()
    if document is None:
        raise ArchiveError(f"{store.url} has no archive: {CATALOG} is empty")
    return Catalog.of(document)


def load_manifest(store: ObjectStore, topic_id: str, partition: int) -> Manifest | None:
    """Return a partition's manifest; None if nothing of it was archived. ArchiveDamaged."""
    documents = Documents(store, manifest_prefix(topic_id, partition))
    document = documents.load()
    if document is None:
        return None
    return Manifest.of(document, documents.name_of(document.number))


class BadObject(Exception):
    """An object that is missing or damaged."""


def checked(store: ObjectStore, ref: ObjectRef) -> Iterator[Buffer]:
    """Yield an object's content; after the last part, fail unless all of it was as archived."""
    checksum = size_bytes = 0
    try:
        for data in store.read(ref.name):
            checksum = crc32c.crc32c(data, checksum)
            size_bytes += len(data)
            yield data
    except ObjectMissing as error:
        raise BadObject(f"{ref.name} is missing") from error
    if size_bytes != ref.size_bytes:
        raise BadObject(f"{ref.name} has {size_bytes} bytes instead of {ref.size_bytes}")
    if checksum != ref.crc32c:
        raise BadObject(
            f"{ref.name} is damaged: CRC-32C {checksum:08x} instead of {ref.crc32c:08x}"
        )


def status(store: ObjectStore) -> Iterator[PartitionStatus]:
    """Yield what the archive has of each present partition, by name."""
    for name, topic in sorted(load_catalog(store).present.items()):
        for partition in range(topic.entry.partitions):
            manifest = load_manifest(store, topic.entry.id, partition)
            if manifest is not None:
                removed = (one.piece.size_bytes for one in manifest.removed)
                yield PartitionStatus(
                    TopicPartition(name, partition),
                    manifest.log_start_offset,
                    manifest.archived_offset,
                    max((piece.archived_ms for piece in manifest.pieces), default=0),
                    sum(piece.size_bytes for piece in manifest.pieces),
                    sum(removed),
                    len(manifest.object_names()),
                )


def unnamed(store: ObjectStore) -> Prunable:
    """Return the objects of earlier writers that no manifest names, and those of unknown topics.

    Those of the present writer may be named by its next manifest.
    """
    newest = Documents(store, WRITERS).load()
    present = 0 if newest is None else newest.number
    # The objects first, then what names them: a topic is in the catalogue before its first object,
    # and a manifest names what was uploaded before it.
    listed = list(store.list(LOGS))
    topics = {topic.entry.id: topic for topic in load_catalog(store).topics}
    named: set[str] = set()
    for topic_id, topic in topics.items():
        for partition in range(topic.entry.partitions):
            manifest = load_manifest(store, topic_id, partition)
            named |= manifest.object_names() if manifest is not None else set()
    return Prunable([one for one in listed if _is_left(one.name, named, topics, present)])


def _is_left(name: str, named: Container[str], topics: Container[str], present: int) -> bool:
    if topic_id_of(name) not in topics:
        return True
    writer = writer_of(name)
    return name not in named and writer is not None and writer < present
