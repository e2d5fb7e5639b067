"""Configuration as frozen values: that of one log, and the settings of the engine.

`LogConfig` is built from a topic's overrides of `engine.topic_keys` and never changes: a new
configuration is a new value.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from engine.records.header import Codec
from engine.topic_keys import AS_THE_LOG, DAY_MS, HOUR_MS, MIB, TOPIC_KEYS, parse_overrides
from engine.topic_values import ConfigValue
from engine.types import INT64_MAX


@dataclass(frozen=True, slots=True)
class LogConfig:
    """The configuration of one log; every field is the topic key of that name."""

    segment_bytes: int = 1024 * MIB
    segment_ms: int = 7 * DAY_MS
    segment_jitter_ms: int = 0
    segment_index_bytes: int = 10 * MIB
    index_interval_bytes: int = 4096
    flush_messages: int = INT64_MAX
    flush_ms: int = INT64_MAX
    retention_bytes: int = -1
    retention_ms: int = 7 * DAY_MS
    max_message_bytes: int = MIB + 12
    delete_retention_ms: int = DAY_MS
    min_compaction_lag_ms: int = 0
    max_compaction_lag_ms: int = INT64_MAX
    min_cleanable_dirty_ratio: float = 0.5
    file_delete_delay_ms: int = 60_000
    cleanup_policy: tuple[str, ...] = ("delete",)
    compression_type: str = "producer"
    compression_gzip_level: int = -1
    compression_lz4_level: int = 9
    compression_zstd_level: int = 3
    preallocate: bool = False
    message_timestamp_type: str = "CreateTime"
    message_timestamp_before_max_ms: int = INT64_MAX
    message_timestamp_after_max_ms: int = HOUR_MS
    remote_storage_enable: bool = False
    local_retention_ms: int = AS_THE_LOG
    local_retention_bytes: int = AS_THE_LOG
    is_compacted: bool = field(init=False, repr=False, compare=False)
    uses_append_time: bool = field(init=False, repr=False, compare=False)
    max_segment_ms: int = field(init=False, repr=False, compare=False)
    """The age at which a segment rolls: segment.ms, or max.compaction.lag.ms if shorter."""
    stored_codec: tuple[Codec, int | None] | None = field(init=False, repr=False, compare=False)
    """The codec of stored batches, by compression.type, and its level, if the codec has levels;
    None if batches keep the codec of their producer."""
    takes_any_record: bool = field(init=False, repr=False, compare=False)
    """Whether no record can be refused or changed for its key, or for a time in the past."""

    def __post_init__(self) -> None:
        """Derive what every append asks for."""
        derived = object.__setattr__
        derived(self, "is_compacted", "compact" in self.cleanup_policy)
        derived(self, "uses_append_time", self.message_timestamp_type == "LogAppendTime")
        longest_ms = self.max_compaction_lag_ms if self.is_compacted else INT64_MAX
        derived(self, "max_segment_ms", min(self.segment_ms, longest_ms))
        derived(self, "stored_codec", self._stored_codec())
        has_lower_bound = self.message_timestamp_before_max_ms != INT64_MAX
        is_changed = self.is_compacted or self.uses_append_time or has_lower_bound
        derived(self, "takes_any_record", not is_changed)

    def _stored_codec(self) -> tuple[Codec, int | None] | None:
        kind = self.compression_type
        if kind == "producer":
            return None
        if kind == "uncompressed":
            return Codec.NONE, None
        levels = {
            "gzip": self.compression_gzip_level,
            "lz4": self.compression_lz4_level,
            "zstd": self.compression_zstd_level,
        }
        return Codec.of_label(kind), levels.get(kind)

    @property
    def deletes(self) -> bool:
        return "delete" in self.cleanup_policy

    @property
    def on_disk(self) -> LogConfig:
        """The configuration whose retention is that of the disk, for what the archive has too."""
        ms, size_bytes = self.local_retention_ms, self.local_retention_bytes
        return replace(
            self,
            retention_ms=self.retention_ms if ms == AS_THE_LOG else ms,
            retention_bytes=self.retention_bytes if size_bytes == AS_THE_LOG else size_bytes,
        )

    @property
    def initial_file_bytes(self) -> int:
        return self.segment_bytes if self.preallocate else 0

    @classmethod
    def of(cls, overrides: Mapping[str, ConfigValue]) -> LogConfig:
        """Build from topic overrides. Unknown names and illegal values raise InvalidConfig."""
        parsed = parse_overrides(overrides)
        attributes = {TOPIC_KEYS[name].attribute: value for name, value in parsed.items()}
        known = {name: attributes[name] for name in attributes.keys() & cls.__slots__}
        return cls(**known)  # type: ignore[arg-type]  # the table ties names to types


@dataclass(frozen=True, slots=True)
class CleanerConfig:
    """Compaction; fields are Kafka's `log.cleaner.…` of the same meaning."""

    enable: bool = True
    """Off: compacted topics only grow, unless a compaction is requested."""

    backoff_ms: int = 15_000
    """How long the cleaner sleeps when no log is dirty enough; longer keeps old values longer."""

    dedupe_buffer_bytes: int = 128 * MIB
    """Ceiling for the offset map, 24 bytes per key; a log with more keys takes several rounds.

    The map only takes what the log needs, and nothing between rounds."""

    io_buffer_load_factor: float = 0.9
    """How full the map may be; fuller means more collisions."""

    chunk_bytes: int = MIB
    """How much of a segment is read at once."""

    max_bytes_per_second: float = math.inf
    """Reading and writing together; less leaves more of the disk to appends and readers."""


@dataclass(frozen=True, slots=True)
class ScrubConfig:
    """Periodic verification of everything committed."""

    interval_ms: int = 0
    """From the end of one pass to the next; 0: never. Shorter finds damage sooner."""

    max_bytes_per_second: float = 50 * MIB
    """Less leaves more of the disk to appends and readers."""


@dataclass(frozen=True, slots=True)
class ArchiveConfig:
    """A copy of everything committed in an object store, if there is one."""

    interval_ms: int = 10_000
    """How often what is new is archived: what is younger may be lost with the disk. Shorter costs
    more requests: two for each partition with new records."""

    keep_ms: int = 7 * DAY_MS
    """How long the archive keeps what left the log, for restores to an earlier time. Longer costs
    storage."""

    max_bytes_per_second: float = math.inf
    """Less leaves more of the network and the disk to appends and readers."""

    threads: int = 8
    """Partitions that are archived at once; each waits for the store most of the time."""

    cache_bytes: int = 128 * MIB
    """Memory for records that only the archive has, most recently read first. Less means that
    readers at different places fetch the same bytes again."""

    take_over: bool = False
    """Whether to continue an archive that belongs to another data directory, after a restore."""


@dataclass(frozen=True, slots=True)
class EngineConfig:
    """Settings of the engine as a whole; the trade-off of each field stands below it."""

    commit_interval_ms: int = 50
    """How long a byte waits for a flush at most: shorter shows records sooner, with more fsyncs
    under light load."""

    max_inline_round_ms: int = 1
    """The longest commit round that an append's own thread runs, which is the event loop's: after a
    longer one the flusher runs them for some time; 0: always. More holds up other clients on a disk
    of that speed."""

    retention_check_interval_ms: int = 300_000
    """Kafka's log.retention.check.interval.ms."""

    checkpoint_interval_ms: int = 60_000
    """Recovery points and log starts; longer means more to scan after a crash."""

    initial_task_delay_ms: int = 30_000
    """Background passes wait this long after start, as Kafka's do."""

    recovery_threads: int = 4
    """Logs opened at once; recovery is bound by the disk and the checksum."""

    producer_id_expiration_ms: int = DAY_MS
    """Idle producers expire after this; their retries are then no longer recognised."""

    max_producers_per_partition: int = 10_000
    """Producer ids that one log remembers, some 6 MB; beyond it the longest idle one expires."""

    max_producers: int = 200_000
    """Producer ids that all logs together remember, some 120 MB; beyond it the longest idle ones of
    all logs expire."""

    producer_id_expiration_check_interval_ms: int = 600_000
    """How often idle producers are looked for."""

    gone_directories: tuple[Path, ...] = ()
    """Data directories that are gone for good. Otherwise startup fails while they are missing.

    Their data is lost; their partitions are created again, empty."""

    max_waiting_moves: int = 1_000
    """Moves to another data directory that may be queued, the current one included."""

    max_decompressed_batch_bytes: int = 64 * MIB
    """Ceiling for one decompressed batch: 12 KB can decompress to 400 MB."""

    max_index_check_bytes: int = 64 * MIB
    """About how many bytes of the log one read_committed read may scan to verify transaction
    indexes that were found on disk: at least one segment; the next read continues."""

    max_partitions_per_topic: int = 10_000
    """Each partition costs file descriptors and memory."""

    max_segments_per_partition: int = 10_000
    """Each segment costs memory and time at a start; an append that needs one more is refused."""

    max_sealed_segments: int = 200_000
    """Sealed segments of all logs together; an append that needs to seal one more is refused."""

    max_open_sealed_segments: int = 1_000
    """Sealed segments whose files are open; beyond it the one that was opened first is closed."""

    min_segment_bytes: int = 14
    """The smallest segment.bytes of a topic, and the smallest segment its indexes must cover."""

    max_topics: int = 100_000
    """Topics of one data directory."""

    cleaner: CleanerConfig = CleanerConfig()
    """Compaction of the topics whose cleanup.policy includes compact."""

    scrub: ScrubConfig = ScrubConfig()
    """The scrubber, which searches for damage; off unless an interval is given."""

    archive: ArchiveConfig = ArchiveConfig()
    """The archive in an object store."""

    default_topic_config: Mapping[str, str] = field(default_factory=dict)
    """Overrides applied to every topic that does not set the key itself."""
