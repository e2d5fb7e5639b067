"""Configuration: Kafka's topic keys as one table and one frozen value, and the engine's own settings.

`TOPIC_KEYS` is the table of log-core.md section 11 (defaults of Kafka 4.3): name, type, default, legal
range. `LogConfig` is what a log works with; it is built from overrides and never changed, a new
configuration is a new value.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias

from engine.errors import InvalidConfig
from engine.types import INT32_MAX, INT64_MAX

ConfigValue: TypeAlias = str | int | float | bool | None | Iterable[str]
ParsedValue: TypeAlias = int | float | bool | str | tuple[str, ...]
Parse: TypeAlias = Callable[[str, ConfigValue], ParsedValue]

MIB: Final = 1024 * 1024
HOUR_MS: Final = 3_600_000
DAY_MS: Final = 24 * HOUR_MS


@dataclass(frozen=True, slots=True)
class TopicKey:
    """One topic configuration: its default, how it is read, and where it lands in `LogConfig`."""

    name: str
    default: ParsedValue
    parse: Parse
    documentation: str
    attribute: str | None = None


def _reject(name: str, value: object, expected: str) -> InvalidConfig:
    return InvalidConfig(
        f"{name} must be {expected}, not {value!r}", name=name, value=str(value), expected=expected
    )


def _integer(low: int, high: int) -> Parse:
    def parse(name: str, value: ConfigValue) -> int:
        expected = f"an integer from {low} to {high}"
        if isinstance(value, bool) or not isinstance(value, int | str):
            raise _reject(name, value, expected)
        text = value.strip() if isinstance(value, str) else str(value)
        digits = text[1:] if text[:1] in "+-" else text
        if not (digits.isascii() and digits.isdigit()) or len(digits) > len(str(INT64_MAX)):
            raise _reject(name, value, expected)
        number = int(text)
        if not low <= number <= high:
            raise _reject(name, value, expected)
        return number

    return parse


def _ratio(name: str, value: ConfigValue) -> float:
    expected = "a number from 0 to 1"
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise _reject(name, value, expected)
    try:
        number = float(value)
    except ValueError:
        raise _reject(name, value, expected) from None
    if not 0.0 <= number <= 1.0:  # refuses NaN too
        raise _reject(name, value, expected)
    return number


def _boolean(name: str, value: ConfigValue) -> bool:
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value.strip().lower() in {"true", "false"}:
        return value.strip().lower() == "true"
    raise _reject(name, value, "true or false")


def _one_of(*choices: str) -> Parse:
    def parse(name: str, value: ConfigValue) -> str:
        if isinstance(value, str) and value.strip() in choices:
            return value.strip()
        raise _reject(name, value, "one of " + ", ".join(choices))

    return parse


def _subset_of(*choices: str) -> Parse:
    def parse(name: str, value: ConfigValue) -> tuple[str, ...]:
        expected = "a list of " + ", ".join(choices)
        if isinstance(value, str):
            items = [item.strip().lower() for item in value.split(",") if item.strip()]
        elif isinstance(value, Iterable):
            items = [str(item).strip().lower() for item in value]
        else:
            raise _reject(name, value, expected)
        if not set(items) <= set(choices):
            raise _reject(name, value, expected)
        return tuple(dict.fromkeys(items))

    return parse


def _gzip_level(name: str, value: ConfigValue) -> int:
    level = _integer(-1, 9)(name, value)
    if level == 0:
        raise _reject(name, value, "-1 or an integer from 1 to 9")
    assert isinstance(level, int)
    return level


_INT: Final = INT32_MAX
_LONG: Final = INT64_MAX

TOPIC_KEYS: Final[Mapping[str, TopicKey]] = {
    key.name: key
    for key in (
        TopicKey("segment.bytes", 1024 * MIB, _integer(14, _INT), "largest segment file", "segment_bytes"),
        TopicKey("segment.ms", 7 * DAY_MS, _integer(1, _LONG), "span of record times in one segment", "segment_ms"),
        TopicKey("segment.jitter.ms", 0, _integer(0, _LONG), "random part taken off segment.ms", "segment_jitter_ms"),
        TopicKey("segment.index.bytes", 10 * MIB, _integer(12, _INT), "size an index is preallocated to", "segment_index_bytes"),
        TopicKey("index.interval.bytes", 4096, _integer(0, _INT), "bytes between two index entries", "index_interval_bytes"),
        TopicKey("flush.messages", _LONG, _integer(1, _LONG), "flush after so many records", "flush_messages"),
        TopicKey("flush.ms", _LONG, _integer(0, _LONG), "flush at the latest after so long", "flush_ms"),
        TopicKey("retention.bytes", -1, _integer(-1, _LONG), "oldest segments go beyond this; -1 keeps all", "retention_bytes"),
        TopicKey("retention.ms", 7 * DAY_MS, _integer(-1, _LONG), "segments older than this go; -1 keeps all", "retention_ms"),
        TopicKey("max.message.bytes", MIB + 12, _integer(0, _INT), "largest batch a client may append", "max_message_bytes"),
        TopicKey("delete.retention.ms", DAY_MS, _integer(0, _LONG), "how long compaction keeps a tombstone", "delete_retention_ms"),
        TopicKey("min.compaction.lag.ms", 0, _integer(0, _LONG), "records younger than this are not compacted", "min_compaction_lag_ms"),
        TopicKey("max.compaction.lag.ms", _LONG, _integer(1, _LONG), "records older than this must be compacted", "max_compaction_lag_ms"),
        TopicKey("min.cleanable.dirty.ratio", 0.5, _ratio, "share of dirty bytes that starts compaction", "min_cleanable_dirty_ratio"),
        TopicKey("file.delete.delay.ms", 60_000, _integer(0, _LONG), "wait between renaming and removing a file", "file_delete_delay_ms"),
        TopicKey("cleanup.policy", ("delete",), _subset_of("compact", "delete"), "delete, compact, or both", "cleanup_policy"),
        TopicKey("compression.type", "producer", _one_of("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"), "codec of stored batches", "compression_type"),
        TopicKey("compression.gzip.level", -1, _gzip_level, "level when batches are recompressed", "compression_gzip_level"),
        TopicKey("compression.lz4.level", 9, _integer(1, 17), "level when batches are recompressed", "compression_lz4_level"),
        TopicKey("compression.zstd.level", 3, _integer(-131072, 22), "level when batches are recompressed", "compression_zstd_level"),
        TopicKey("preallocate", False, _boolean, "reserve a segment's bytes when it is made", "preallocate"),
        TopicKey("message.timestamp.type", "CreateTime", _one_of("CreateTime", "LogAppendTime"), "whose clock dates a record", "message_timestamp_type"),
        TopicKey("message.timestamp.before.max.ms", _LONG, _integer(0, _LONG), "how far back a record's time may lie", "timestamp_before_max_ms"),
        TopicKey("message.timestamp.after.max.ms", HOUR_MS, _integer(0, _LONG), "how far ahead a record's time may lie", "timestamp_after_max_ms"),
        TopicKey("min.insync.replicas", 1, _integer(1, _INT), "accepted for Kafka's tools; there is one replica"),
        TopicKey("unclean.leader.election.enable", False, _boolean, "accepted for Kafka's tools; there is one replica"),
    )
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class LogConfig:
    """What one log works with; every field is a topic key of the same meaning."""

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
    timestamp_before_max_ms: int = INT64_MAX
    timestamp_after_max_ms: int = HOUR_MS

    @property
    def is_compacted(self) -> bool:
        return "compact" in self.cleanup_policy

    @property
    def deletes(self) -> bool:
        return "delete" in self.cleanup_policy

    @property
    def uses_append_time(self) -> bool:
        return self.message_timestamp_type == "LogAppendTime"

    @property
    def max_segment_ms(self) -> int:
        """The span after which a segment rolls; compaction may need it sooner."""
        if self.is_compacted:
            return min(self.segment_ms, self.max_compaction_lag_ms)
        return self.segment_ms

    @property
    def initial_file_bytes(self) -> int:
        return self.segment_bytes if self.preallocate else 0

    @classmethod
    def of(cls, overrides: Mapping[str, ConfigValue]) -> LogConfig:
        """Build from topic overrides. Unknown names and illegal values raise InvalidConfig."""
        parsed = parse_overrides(overrides)
        attributes = {TOPIC_KEYS[name].attribute: value for name, value in parsed.items()}
        attributes.pop(None, None)
        return cls(**attributes)  # type: ignore[arg-type]  # the table ties names to types


ADOPTED_DEFAULTS: Final[Mapping[str, str]] = {
    "retention.ms": "-1",
    "retention.bytes": "-1",
    "cleanup.policy": "delete",
}
"""What an adopted topic gets until somebody configures it: the defaults would delete its data."""


def parse_overrides(overrides: Mapping[str, ConfigValue]) -> dict[str, ParsedValue]:
    """Return the typed values of `overrides`; raises InvalidConfig naming the first that is wrong."""
    parsed: dict[str, ParsedValue] = {}
    for name, value in overrides.items():
        key = TOPIC_KEYS.get(name)
        if key is None:
            raise InvalidConfig(
                f"unknown topic configuration {name!r}", name=name, expected=sorted(TOPIC_KEYS)
            )
        parsed[name] = key.parse(name, value)
    lag_low = parsed.get("min.compaction.lag.ms", 0)
    lag_high = parsed.get("max.compaction.lag.ms", INT64_MAX)
    assert isinstance(lag_low, int)
    assert isinstance(lag_high, int)
    if lag_low > lag_high:
        raise InvalidConfig(
            f"min.compaction.lag.ms ({lag_low}) must not exceed max.compaction.lag.ms ({lag_high})",
            name="min.compaction.lag.ms",
            value=str(lag_low),
            expected=f"at most {lag_high}",
        )
    return parsed


def canonical(overrides: Mapping[str, ConfigValue]) -> dict[str, str]:
    """Return `overrides` in the one spelling that is stored and compared."""
    return {name: render(value) for name, value in sorted(parse_overrides(overrides).items())}


def render(value: ParsedValue) -> str:
    """Spell a typed value as Kafka's tools do."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        return ",".join(value)
    return str(value)


@dataclass(frozen=True, slots=True)
class EffectiveValue:
    """One configuration value that is in force and where it comes from."""

    value: str
    source: Literal["topic", "adopted", "default"]


def effective(overrides: Mapping[str, str], *, adopted: bool = False) -> dict[str, EffectiveValue]:
    """Return every topic key with the value in force: topic over adopted over Kafka's default."""
    result: dict[str, EffectiveValue] = {}
    for name, key in TOPIC_KEYS.items():
        if name in overrides:
            result[name] = EffectiveValue(overrides[name], "topic")
        elif adopted and name in ADOPTED_DEFAULTS:
            result[name] = EffectiveValue(ADOPTED_DEFAULTS[name], "adopted")
        else:
            result[name] = EffectiveValue(render(key.default), "default")
    return result


@dataclass(frozen=True, slots=True)
class EngineConfig:
    """Settings of the engine as a whole; every field has its trade-off beneath it."""

    commit_interval_ms: int = 50
    """The latest flush after the oldest unflushed byte: visibility against fsyncs when idle-ish."""

    flush_check_interval_ms: int = 1_000
    """How often flush.ms is looked at; shorter costs wake-ups."""

    retention_check_interval_ms: int = 300_000
    """Kafka's log.retention.check.interval.ms."""

    checkpoint_interval_ms: int = 60_000
    """Recovery points and log starts; longer means more to scan after a crash."""

    initial_task_delay_ms: int = 30_000
    """Background passes wait this long after start, as Kafka's do."""

    recovery_threads: int = 4
    """Logs opened at once; recovery is bound by the disk and the checksum."""

    producer_id_expiration_ms: int = DAY_MS
    """Idle producers are forgotten after this; their retries are then no longer recognised."""

    producer_id_expiration_check_interval_ms: int = 600_000
    """How often idle producers are looked for."""

    max_decompressed_batch_bytes: int = 64 * MIB
    """Ceiling for one decompressed batch: a 12 KB batch can hold 400 MB."""

    max_partitions_per_topic: int = 10_000
    """Each partition costs file descriptors and memory."""

    max_topics: int = 100_000
    """Topics of one data directory."""

    default_topic_config: Mapping[str, str] = field(default_factory=dict)
    """Overrides applied to every topic that does not set the key itself."""
