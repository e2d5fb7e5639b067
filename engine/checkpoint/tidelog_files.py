"""The files that are tidelog's own; Kafka ignores files that it does not know.

The JSON files hold one object with a version and a checksum, and are replaced atomically. The
checksum covers the values, not the spacing. Without it, a digit that changed on the disk could pass
for another retention time or topic id. A file without a checksum is accepted: it was edited by
hand, or written by a version that had none.

* `tidelog-topics.json`: the topics and their configurations, which Kafka keeps in its metadata log.
  This file is the truth: a partition directory of a topic that is not in it is adopted under its
  name, unless a crash interrupted its creation or removal.
* `tidelog-directories.json`: which data directories belong together. Without it, a start that is
  given all directories but one would recreate that one's partitions, empty. Each directory has an
  id, so that it is recognized under another path. A log that has only ever had one directory has no
  such file.
* `tidelog-producer-ids.json`: up to where producer ids are reserved. Kafka's `ProducerIdManager`
  without the controller: ids are reserved in blocks before they are allocated, so a crash loses the
  rest of a block and never repeats an id.
* `tidelog-segment-gaps`, in a partition directory: intended gaps between segments. When a
  follower's log rolls, its next offset may jump ahead. After a crash that would look as if the tail
  of the older segment were lost, and recovery would end the log there. Each line holds the end of a
  segment, the base offset of the next one, and a CRC-32 of both. If the file is damaged, every gap
  in the log is accepted, so that a flipped digit never removes records.
"""

from __future__ import annotations

import json
import logging
import re
import zlib
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from engine.checkpoint.kafka_files import (
    corrupt,
    is_topic_id,
    parse_number,
    read_lines,
    write_lines,
)
from engine.errors import CorruptCheckpoint, InvalidConfig
from engine.fs.directories import replace_atomically
from engine.fs.names import DIRECTORIES_FILE, PRODUCER_ID_FILE, TOPICS_FILE, is_valid_topic_name
from engine.fs.port import FileSystem
from engine.topic_keys import parse_overrides
from engine.types import INT64_MAX

VERSION_FIELD: Final = "version"
CHECKSUM_FIELD: Final = "checksum"


def read_json(
    fs: FileSystem, path: Path, version: int, fields: Collection[str]
) -> dict[str, object] | None:
    """Return the object in the file, which has only these fields; None if the file is missing.

    CorruptCheckpoint if its checksum is wrong, its version is another one, or it has other fields:
    a later version may have written something that the next write would lose.
    """
    try:
        content = fs.read_bytes(path)
    except FileNotFoundError:
        return None
    try:
        found = json.loads(content)
        stored = found.pop(CHECKSUM_FIELD, None) if isinstance(found, dict) else None
        is_intact = stored is None or stored == _checksum(found)
    except (ValueError, RecursionError) as error:
        raise corrupt(path, f"it is not JSON: {error}") from error
    if not isinstance(found, dict) or found.get(VERSION_FIELD) != version:
        raise corrupt(path, f"it is not an object of version {version}")
    if not is_intact:
        hint = f"after an edit by hand, remove {CHECKSUM_FIELD!r}"
        raise corrupt(path, f"the checksum of its content is not {stored!r}; {hint}")
    unknown = sorted(found.keys() - {VERSION_FIELD, *fields})
    if unknown:
        raise corrupt(path, f"the field {unknown[0]!r} is not known")
    return found


def write_json(fs: FileSystem, path: Path, version: int, fields: Mapping[str, object]) -> None:
    """Replace the file durably; the caller allows only one thread at a time."""
    stored = {VERSION_FIELD: version, **fields}
    _replace(
        fs, path, json.dumps({**stored, CHECKSUM_FIELD: _checksum(stored)}, ensure_ascii=False)
    )


def write_texts(fs: FileSystem, path: Path, version: int, texts: Mapping[str, str]) -> None:
    """As `write_json`, with values that are `canonical` text already.

    For callers that keep the texts of thousands of values, of which one has changed.
    """
    fields = sorted({**texts, VERSION_FIELD: canonical(version)}.items())
    stored = ", ".join(f'"{name}": {text}' for name, text in fields)
    checksum = _checksum_of(f"{{{stored}}}")
    _replace(fs, path, f'{{{stored}, "{CHECKSUM_FIELD}": "{checksum}"}}')


def canonical(value: object) -> str:
    """Return the canonical JSON text of a value, which checksums cover."""
    return json.dumps(value, sort_keys=True)


def _replace(fs: FileSystem, path: Path, content: str) -> None:
    # Indented for people by msgspec: `json` would take 100 ms for thousands of topics.
    replace_atomically(fs, path, f"{msgspec.json.format(content, indent=2)}\n".encode())


def _checksum(stored: Mapping[str, object]) -> str:
    return _checksum_of(canonical(stored))


def _checksum_of(text: str) -> str:
    return f"{zlib.crc32(text.encode()):08x}"


_LOG = logging.getLogger(__name__)


class SegmentGap(NamedTuple):
    """Offsets that were never assigned: [end_offset, base_offset)."""

    end_offset: int
    base_offset: int


def read_gaps(fs: FileSystem, path: Path) -> list[SegmentGap]:
    """Return the gaps, ascending; none if the file is missing.

    CorruptCheckpoint if it is damaged or empty: it is only ever written with a gap in it.
    """
    gaps: list[SegmentGap] = []
    for end_offset, base_offset, checksum in read_lines(fs, path, 3):
        gap = SegmentGap(parse_number(end_offset, path), parse_number(base_offset, path))
        if checksum != _checksum_of_gap(gap):
            raise corrupt(path, f"the checksum of {tuple(gap)} is not {checksum}")
        gaps.append(gap)
    if not gaps and fs.exists(path):
        raise corrupt(path, "it has no lines")
    return gaps


def note_gap(fs: FileSystem, path: Path, gap: SegmentGap) -> None:
    """Add a gap at the end of the log, durably; drop the gaps above it, which were truncated.

    A damaged file is left as it is: a valid file without the lost gaps would deny them.
    """
    try:
        noted = read_gaps(fs, path)
    except CorruptCheckpoint as error:
        _LOG.warning("gap %s is not recorded: %s", tuple(gap), error)
        return
    kept = [one for one in noted if one.base_offset <= gap.end_offset]
    write_lines(fs, path, [(*one, _checksum_of_gap(one)) for one in (*kept, gap)])


def _checksum_of_gap(gap: SegmentGap) -> str:
    return f"{zlib.crc32(b'%d %d' % gap):08x}"


_DIRECTORIES_VERSION: Final = 1

_FIELDS: Final = ("id", "set", "generation", "directories")
_ID: Final = re.compile(r"[0-9a-f]{32}")


@dataclass(frozen=True, slots=True)
class DirectorySet:
    """The id of one directory, and the ids and paths of all directories of its log."""

    own_id: str
    set_id: str
    """The id of the set: the same in all directories, even when some are added or removed."""
    generation: int
    """Incremented with each change; if copies differ, the highest generation wins."""
    paths: Mapping[str, str] = field(default_factory=dict)
    """Where each directory was last seen, by id, this one included."""


def read_directory_set(fs: FileSystem, directory: Path) -> DirectorySet | None:
    """Return the content of the file; None if it is missing. CorruptCheckpoint if it is damaged."""
    path = directory / DIRECTORIES_FILE
    content = read_json(fs, path, _DIRECTORIES_VERSION, _FIELDS)
    if content is None:
        return None
    own_id, set_id, generation, paths = map(content.get, _FIELDS)
    if not (
        _is_id(own_id)
        and _is_id(set_id)
        and isinstance(generation, int)
        and isinstance(paths, dict)
        and own_id in paths
        and all(_is_id(one) and isinstance(seen, str) for one, seen in paths.items())
    ):
        raise corrupt(path, "ids, generation or directories are malformed")
    return DirectorySet(str(own_id), str(set_id), generation, paths)


def write_directory_set(fs: FileSystem, directory: Path, known: DirectorySet) -> None:
    """Replace the file, durably."""
    fields = {
        "set": known.set_id,
        "generation": known.generation,
        "id": known.own_id,
        "directories": dict(sorted(known.paths.items())),
    }
    write_json(fs, directory / DIRECTORIES_FILE, _DIRECTORIES_VERSION, fields)


def _is_id(value: object) -> bool:
    return isinstance(value, str) and _ID.fullmatch(value) is not None


_PRODUCER_IDS_VERSION: Final = 1
BLOCK_SIZE: Final = 1000

_FIELD: Final = "next_producer_id"


class ProducerIds:
    """The producer ids of one data directory. Not thread-safe.

    The file is read by the first call, and written by one call in a thousand.
    """

    def __init__(self, fs: FileSystem, directory: Path, *, block_size: int = BLOCK_SIZE) -> None:
        self.path = directory / PRODUCER_ID_FILE
        self._fs = fs
        self._block_size = block_size
        self._next_id = 0
        self._end_id: int | None = None  # None until the file was read

    def ensure_readable(self) -> None:
        """Raise CorruptCheckpoint if the file is damaged."""
        self._load()

    def allocate(self) -> int:
        """Return an unused id. CorruptCheckpoint if the file is damaged."""
        if self._next_id >= self._load():
            self._reserve(self._next_id)
        allocated = self._next_id
        self._next_id += 1
        return allocated

    def raise_above(self, highest_seen: int) -> None:
        """Make all further ids exceed `highest_seen`, which was found in a log."""
        self._load()
        self._next_id = max(self._next_id, highest_seen + 1)

    @property
    def reserved_end(self) -> int:
        """The exclusive end of the ids that are reserved on disk; reads the file if necessary."""
        return self._load()

    def reserve_through(self, end_id: int) -> None:
        """Reserve the ids below `end_id` on disk: another directory allocates them.

        This directory's own ids continue after them.
        """
        if self._load() < end_id:
            self._reserve(end_id - self._block_size)
            self._next_id = end_id

    def _load(self) -> int:
        """Return the exclusive end of the ids that are reserved on disk."""
        if self._end_id is None:
            content = read_json(self._fs, self.path, _PRODUCER_IDS_VERSION, (_FIELD,)) or {
                _FIELD: 0
            }
            end_id = content.get(_FIELD)
            if not isinstance(end_id, int) or not 0 <= end_id <= INT64_MAX:
                raise corrupt(self.path, f"{end_id!r} is not a producer id")
            # Ids that the last process reserved and may not have used are skipped.
            self._next_id = self._end_id = end_id
        return self._end_id

    def _reserve(self, first_id: int) -> None:
        end_id = first_id + self._block_size
        write_json(self._fs, self.path, _PRODUCER_IDS_VERSION, {_FIELD: end_id})
        self._end_id = end_id  # after the write: an id counts as reserved once it is durable


_TOPICS_VERSION: Final = 1


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
        content = read_json(self._fs, self.path, _TOPICS_VERSION, ("generation", "topics"))
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
        write_texts(self._fs, self.path, _TOPICS_VERSION, {**counted, "topics": f"{{{stored}}}"})

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
