"""The archive's catalogue: topics with their configuration, and the reserved producer ids.

One numbered document for the whole data directory, `directory/…`. A deleted topic stays listed
until its time is over; then its objects are deleted.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final, Self

import msgspec

from engine.archive.documents import Document
from engine.archive.store import ArchiveDamaged
from engine.checkpoint.tidelog_files import TopicEntry

CATALOG: Final = "directory/"


@dataclass(frozen=True, slots=True)
class ArchivedTopic:
    """A topic as it was at some time."""

    name: str
    entry: TopicEntry
    since_ms: int
    """When the archive first saw it."""
    removed_ms: int | None = None
    """When it was gone, or another topic had its name."""

    def was_there(self, at_ms: int) -> bool:
        """Whether it existed at that time."""
        return self.since_ms <= at_ms and (self.removed_ms is None or at_ms < self.removed_ms)


@dataclass(frozen=True, slots=True)
class Catalog:
    """All topics of the archive, those that were deleted lately included."""

    topics: tuple[ArchivedTopic, ...] = ()
    producer_ids_end: int = 0
    """The exclusive end of the producer ids that may have been given out."""

    @property
    def present(self) -> dict[str, ArchivedTopic]:
        """The topics that exist, by name."""
        return {one.name: one for one in self.topics if one.removed_ms is None}

    def at(self, until_ms: int) -> dict[str, ArchivedTopic]:
        """Return the topics that existed at a time, by name, as they are configured now."""
        return {one.name: one for one in self.topics if one.was_there(until_ms)}

    def after(
        self, entries: Mapping[str, TopicEntry], producer_ids_end: int, now_ms: int
    ) -> Catalog:
        """Return the catalogue of a directory that now has these topics."""
        topics: list[ArchivedTopic] = []
        known: set[str] = set()
        for one in self.topics:
            entry = entries.get(one.name)
            if one.removed_ms is not None:
                topics.append(one)
            elif entry is None or entry.id != one.entry.id:
                topics.append(replace(one, removed_ms=now_ms))
            else:
                known.add(one.name)
                topics.append(replace(one, entry=entry))
        topics += [
            ArchivedTopic(name, entry, now_ms)
            for name, entry in sorted(entries.items())
            if name not in known
        ]
        ids_end = max(producer_ids_end, self.producer_ids_end)
        return replace(self, topics=tuple(topics), producer_ids_end=ids_end)

    def forgotten(self, now_ms: int, *, keep_ms: int) -> tuple[Catalog, list[str]]:
        """Return the catalogue without topics whose time is over, and the ids of those."""
        over = [
            one
            for one in self.topics
            if one.removed_ms is not None and one.removed_ms + keep_ms <= now_ms
        ]
        kept = tuple(one for one in self.topics if one not in over)
        return replace(self, topics=kept), [one.entry.id for one in over]

    @classmethod
    def of(cls, document: Document) -> Self:
        """Parse the catalogue; ArchiveDamaged."""
        try:
            return msgspec.convert(document.fields, cls)
        except msgspec.ValidationError as error:
            raise ArchiveDamaged(
                f"{CATALOG}… is not the catalogue of an archive: {error}"
            ) from error

    def fields(self) -> Mapping[str, object]:
        """Return the catalogue as the fields of a document."""
        fields: Mapping[str, object] = msgspec.to_builtins(self)
        return fields
