"""The topic configurations of Kafka as a table: name, default, legal range, description.

Values are strings, or JSON numbers and booleans; they are stored and compared in the spelling of
Kafka's tools. Names, defaults and ranges are those of Kafka 4.3, except that segments may be
smaller than a mebibyte (down to `EngineConfig.min_segment_bytes`), and indexes of less than one
entry are refused. Configurations for clusters are parsed as in Kafka and have no effect, so that a
topic's configuration can be copied from and to a cluster.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal, cast

from engine.errors import InvalidConfig
from engine.topic_values import (
    ConfigValue,
    Parse,
    ParsedValue,
    boolean,
    gzip_level,
    integer,
    one_of,
    ratio,
    subset_of,
    throttled_replicas,
)
from engine.types import INT32_MAX, INT64_MAX

MIB: Final = 1024 * 1024
HOUR_MS: Final = 3_600_000
DAY_MS: Final = 24 * HOUR_MS


@dataclass(frozen=True, slots=True)
class TopicKey:
    """One topic configuration: its default, parser and description."""

    name: str
    default: ParsedValue
    parse: Parse
    documentation: str

    @property
    def accepted(self) -> str:
        """What the parser accepts, as its errors describe it."""
        accepted = ""
        try:
            self.parse(self.name, _NO_VALUE)
        except InvalidConfig as error:
            (accepted,) = cast("list[str]", error.facts()["accepted"])
        return accepted

    @property
    def attribute(self) -> str:
        """The name of its field in `LogConfig`, if it has one."""
        return self.name.replace(".", "_")


_NO_VALUE: Final = "?"
"""A value that no parser accepts."""

_INT: Final = INT32_MAX
_LONG: Final = INT64_MAX
AS_THE_LOG: Final = -2
"""The value of `local.retention.…` that means the one without `local.`."""

_ONE_REPLICA: Final = "accepted for Kafka's tools; there is one replica"
_ONE_SWITCH: Final = "accepted for Kafka's tools; has no effect"

TOPIC_KEYS: Final[Mapping[str, TopicKey]] = {
    key.name: key
    for key in (
        TopicKey("segment.bytes", 1024 * MIB, integer(14, _INT), "largest segment file"),
        TopicKey(
            "segment.ms", 7 * DAY_MS, integer(1, _LONG), "span of record times in one segment"
        ),
        TopicKey("segment.jitter.ms", 0, integer(0, _LONG), "random part taken off segment.ms"),
        TopicKey(
            "segment.index.bytes", 10 * MIB, integer(12, _INT), "size an index is preallocated to"
        ),
        TopicKey("index.interval.bytes", 4096, integer(0, _INT), "bytes between two index entries"),
        TopicKey("flush.messages", _LONG, integer(1, _LONG), "flush after so many records"),
        TopicKey("flush.ms", _LONG, integer(0, _LONG), "flush at the latest after so long"),
        TopicKey(
            "retention.bytes",
            -1,
            integer(-_LONG - 1, _LONG),
            "beyond this the oldest segments are deleted; a negative number keeps all",
        ),
        TopicKey(
            "retention.ms",
            7 * DAY_MS,
            integer(-1, _LONG),
            "segments older than this are deleted; -1 keeps all",
        ),
        TopicKey(
            "max.message.bytes", MIB + 12, integer(0, _INT), "largest batch a client may append"
        ),
        TopicKey(
            "delete.retention.ms",
            DAY_MS,
            integer(0, _LONG),
            "how long compaction keeps a tombstone",
        ),
        TopicKey(
            "min.compaction.lag.ms",
            0,
            integer(0, _LONG),
            "records younger than this are not compacted",
        ),
        TopicKey(
            "max.compaction.lag.ms",
            _LONG,
            integer(1, _LONG),
            "records older than this must be compacted",
        ),
        TopicKey(
            "min.cleanable.dirty.ratio", 0.5, ratio, "share of dirty bytes that starts compaction"
        ),
        TopicKey(
            "file.delete.delay.ms",
            60_000,
            integer(0, _LONG),
            "wait between renaming and removing a file",
        ),
        TopicKey(
            "cleanup.policy",
            ("delete",),
            subset_of("compact", "delete"),
            "delete, compact, or both",
        ),
        TopicKey(
            "compression.type",
            "producer",
            one_of("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"),
            "codec of stored batches",
        ),
        TopicKey("compression.gzip.level", -1, gzip_level, "level when batches are recompressed"),
        TopicKey("compression.lz4.level", 9, integer(1, 17), "level when batches are recompressed"),
        TopicKey(
            "compression.zstd.level",
            3,
            integer(-131072, 22),
            "level when batches are recompressed",
        ),
        TopicKey("preallocate", False, boolean, "reserve a segment's bytes when it is made"),
        TopicKey(
            "message.timestamp.type",
            "CreateTime",
            one_of("CreateTime", "LogAppendTime"),
            "whose clock dates a record",
        ),
        TopicKey(
            "message.timestamp.before.max.ms",
            _LONG,
            integer(0, _LONG),
            "how far back a record's time may lie",
        ),
        TopicKey(
            "message.timestamp.after.max.ms",
            HOUR_MS,
            integer(0, _LONG),
            "how far ahead a record's time may lie",
        ),
        TopicKey(
            "min.insync.replicas",
            1,
            integer(1, _INT),
            _ONE_REPLICA,
        ),
        TopicKey(
            "unclean.leader.election.enable",
            False,
            boolean,
            _ONE_REPLICA,
        ),
        TopicKey(
            "leader.replication.throttled.replicas",
            (),
            throttled_replicas,
            _ONE_REPLICA,
        ),
        TopicKey(
            "follower.replication.throttled.replicas",
            (),
            throttled_replicas,
            _ONE_REPLICA,
        ),
        TopicKey(
            "remote.storage.enable",
            False,
            boolean,
            "whether old segments may be in the archive only; needs an archive",
        ),
        TopicKey(
            "local.retention.ms",
            AS_THE_LOG,
            integer(AS_THE_LOG, _LONG),
            "archived segments older than this leave the disk; -2 as retention.ms",
        ),
        TopicKey(
            "local.retention.bytes",
            AS_THE_LOG,
            integer(AS_THE_LOG, _LONG),
            "beyond this archived segments leave the disk; -2 as retention.bytes",
        ),
        TopicKey(
            "remote.log.copy.disable",
            False,
            boolean,
            _ONE_SWITCH,
        ),
        TopicKey(
            "remote.log.delete.on.disable",
            False,
            boolean,
            _ONE_SWITCH,
        ),
    )
}


ADOPTED_DEFAULTS: Final[Mapping[str, str]] = {
    "retention.ms": "-1",
    "retention.bytes": "-1",
    "cleanup.policy": "delete",
}
"""The configuration of an adopted topic until it is configured: the defaults could delete its
data."""


def parse_overrides(overrides: Mapping[str, ConfigValue]) -> dict[str, ParsedValue]:
    """Return the typed values; raises InvalidConfig for the first wrong one."""
    parsed: dict[str, ParsedValue] = {}
    for name, value in overrides.items():
        key = TOPIC_KEYS.get(name)
        if key is None:
            raise InvalidConfig(
                f"unknown topic configuration {name!r}", name=name, accepted=sorted(TOPIC_KEYS)
            )
        parsed[name] = key.parse(name, value)
    _ensure_tiers_fit(parsed)
    lag_low = parsed.get("min.compaction.lag.ms", 0)
    lag_high = parsed.get("max.compaction.lag.ms", INT64_MAX)
    assert isinstance(lag_low, int)
    assert isinstance(lag_high, int)
    if lag_low > lag_high:
        raise InvalidConfig(
            f"min.compaction.lag.ms ({lag_low}) must not exceed max.compaction.lag.ms ({lag_high})",
            name="min.compaction.lag.ms",
            value=str(lag_low),
            accepted=[f"at most {lag_high}"],
        )
    return parsed


def _ensure_tiers_fit(parsed: Mapping[str, ParsedValue]) -> None:
    """Raise InvalidConfig if a topic that may be in the archive only contradicts itself, as Kafka.

    A compacted log changes its old segments, and the disk keeps no more than the log.
    """

    def value_of(name: str) -> ParsedValue:
        return parsed.get(name, TOPIC_KEYS[name].default)

    if not value_of("remote.storage.enable"):
        return
    if value_of("cleanup.policy") != ("delete",):
        raise InvalidConfig(
            "remote.storage.enable needs cleanup.policy=delete: compaction changes old segments",
            name="remote.storage.enable",
            value="true",
            accepted=["false"],
        )
    for unit in ("ms", "bytes"):
        local, whole = value_of(f"local.retention.{unit}"), value_of(f"retention.{unit}")
        assert isinstance(local, int)
        assert isinstance(whole, int)
        if whole >= 0 and (local > whole or local == -1):
            raise InvalidConfig(
                f"local.retention.{unit} ({local}) must not exceed retention.{unit} ({whole})",
                name=f"local.retention.{unit}",
                value=str(local),
                accepted=[f"at most {whole}", "-2 for the same"],
            )


def overrides_in(text: str) -> dict[str, ConfigValue]:
    """Return the overrides that a text names: `key=value,key=value`, or a JSON object.

    A piece without `=` continues the value before it: `cleanup.policy=compact,delete`. Raises
    InvalidConfig; keys and values are not looked at.
    """
    if text.lstrip().startswith("{"):
        try:
            return dict(json.loads(text))
        except ValueError as error:
            raise InvalidConfig(f"{text!r} is not JSON: {error}") from None
    found: dict[str, ConfigValue] = {}
    key = ""
    for piece in filter(None, text.split(",")):
        name, sign, value = piece.partition("=")
        if sign:
            key = name.strip()
            found[key] = value.strip()
        elif key:
            found[key] = f"{found[key]},{piece.strip()}"
        else:
            raise InvalidConfig(f"{text!r} is neither key=value,key=value nor a JSON object")
    return found


def canonical(overrides: Mapping[str, ConfigValue]) -> dict[str, str]:
    """Return `overrides` in canonical spelling."""
    return {name: render(value) for name, value in sorted(parse_overrides(overrides).items())}


def render(value: ParsedValue) -> str:
    """Format a typed value as Kafka's tools do."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        return ",".join(value)
    return str(value)


@dataclass(frozen=True, slots=True)
class EffectiveValue:
    """A configuration value in effect, and its source."""

    value: str
    source: Literal["topic", "adopted", "default"]


def effective(overrides: Mapping[str, str], *, adopted: bool = False) -> dict[str, EffectiveValue]:
    """Return the effective value of every topic key: topic over adopted over Kafka's default."""
    result: dict[str, EffectiveValue] = {}
    for name, key in TOPIC_KEYS.items():
        if name in overrides:
            result[name] = EffectiveValue(overrides[name], "topic")
        elif adopted and name in ADOPTED_DEFAULTS:
            result[name] = EffectiveValue(ADOPTED_DEFAULTS[name], "adopted")
        else:
            result[name] = EffectiveValue(render(key.default), "default")
    return result
