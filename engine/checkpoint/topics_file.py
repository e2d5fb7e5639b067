"""The topics of a data directory and their configurations: `tidelog-topics.json`.

Kafka keeps them in its metadata log, which tidelog does not have. This file is the truth: a
partition directory of a topic that is not in it is adopted under its name, unless a crash
interrupted its creation or removal.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple

from engine.checkpoint.json_file import canonical, read_json, write_texts
from engine.checkpoint.lines import corrupt
from engine.checkpoint.partition_metadata import is_topic_id
from engine.errors import InvalidConfig
from engine.fs.filesystem import FileSystem
from engine.fs.names import TOPICS_FILE, is_valid_topic_name
from engine.topic_keys import parse_overrides

VERSION: Final = 1


@dataclass(frozen=True, slots=True)
class TopicEntry:
    """One topic as it is stored."""

    id: str
    """22 characters of base64url, as in `partition.metadata`."""

    partitions: int

    config: Mapping[str, str] = field(default_factory=dict)
    """The configurations that differ from the defaults, in Kafka's names and spelling."""

    adopted: bool = False
    """Found in a directory that a Kafka broker wrote; its configuration is unknown."""

    deleted: bool = False
    """Its deletion has begun: directories with its id are removed, not adopted again."""

    compacted: bool = False
    """It was compacted at some time, so its offsets may have gaps."""

    added_partitions: int = 0
    """How many of the last partitions of an adopted topic were added since its adoption."""


@dataclass(frozen=True, slots=True)
class TopicsCopy:
    """The topics in one data directory's file; if copies differ, the newest wins."""

    generation: int = 0
    """Incremented with each change; 0 without a file, or if an older version wrote it."""

    topics: dict[str, TopicEntry] = field(default_factory=dict)


class _Written(NamedTuple):
    """An entry and its text in the file, the name included."""

    entry: TopicEntry
    text: str


class TopicsFile:
    """The file of one data directory. One thread writes at a time."""

    def __init__(self, fs: FileSystem, directory: Path) -> None:
        self.path = directory / TOPICS_FILE
        self._fs = fs
        self._written: dict[str, _Written] = {}

    def read(self) -> dict[str, TopicEntry]:
        """Return the topics by name; none if the file is missing. CorruptCheckpoint if damaged."""
        return self.read_copy().topics

    def read_copy(self) -> TopicsCopy:
        """Return the topics and their generation."""
        content = read_json(self._fs, self.path, VERSION, ("generation", "topics"))
        if content is None:
            return TopicsCopy()
        topics, generation = content.get("topics"), content.get("generation", 0)
        if not isinstance(topics, dict):
            raise corrupt(self.path, "it has no topics")
        if not isinstance(generation, int) or generation < 0:
            raise corrupt(self.path, f"{generation!r} is not a generation")
        entries = {name: self._entry(name, stored) for name, stored in topics.items()}
        return TopicsCopy(generation, entries)

    def write(self, topics: Mapping[str, TopicEntry], generation: int = 0) -> None:
        """Replace the whole content durably; unchanged entries are not encoded again."""
        counted = {"generation": canonical(generation)} if generation else {}
        self._written = {name: self._text_of(name, topics[name]) for name in sorted(topics)}
        stored = ", ".join(one.text for one in self._written.values())
        write_texts(self._fs, self.path, VERSION, {**counted, "topics": f"{{{stored}}}"})

    def _text_of(self, name: str, entry: TopicEntry) -> _Written:
        known = self._written.get(name)
        if known is not None and known.entry is entry:
            return known
        return _Written(entry, canonical({name: _stored(entry)})[1:-1])

    def _entry(self, name: str, stored: object) -> TopicEntry:
        fields = stored if isinstance(stored, dict) else {}
        topic_id, partitions, config = map(fields.get, ("id", "partitions", "config"))
        adopted, deleted = fields.get("adopted"), fields.get("deleted", False)
        compacted, added = fields.get("compacted", False), fields.get("added_partitions", 0)
        if not (
            is_valid_topic_name(name)
            and isinstance(topic_id, str)
            and is_topic_id(topic_id)
            and isinstance(partitions, int)
            and partitions > 0
            and isinstance(config, dict)
            and all(isinstance(value, str) for value in config.values())
            and isinstance(adopted, bool)
            and isinstance(deleted, bool)
            and isinstance(compacted, bool)
            and isinstance(added, int)
            and 0 <= added <= partitions
        ):
            raise corrupt(self.path, f"topic {name!r} is malformed")
        try:
            parse_overrides(config)
        except InvalidConfig as error:
            raise corrupt(self.path, f"of topic {name!r}: {error}") from error
        return TopicEntry(topic_id, partitions, config, adopted, deleted, compacted, added)


def _stored(entry: TopicEntry) -> dict[str, object]:
    """Return the entry for the file, without the optional fields that have their defaults."""
    fields: dict[str, object] = {
        "id": entry.id,
        "partitions": entry.partitions,
        "config": dict(entry.config),
        "adopted": entry.adopted,
    }
    if entry.deleted:
        fields["deleted"] = True
    if entry.compacted:
        fields["compacted"] = True
    if entry.added_partitions:
        fields["added_partitions"] = entry.added_partitions
    return fields
