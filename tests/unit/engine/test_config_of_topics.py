"""Rows about topic configuration."""

import pytest

from engine.config import LogConfig
from engine.errors import InvalidConfig
from engine.topic_keys import TOPIC_KEYS, canonical, effective, parse_overrides
from engine.topic_values import ConfigValue
from tests.support.builders import EVENTS, World
from tests.support.kafka import kafka
from tests.support.topic_defaults import KAFKA_4_3_DEFAULTS

NO_NUMBER = ("not_a_number", "", "1.5", "0x10", "1e3", None, True, "9" * 30)
NO_CHOICE = ("not_a_choice", "", 1, None)
NO_REPLICAS = ("not_a_replica", "1", "1:", "1:x", "1:2,*", "*,*", ["1:2", 3], 1, None)

ILLEGAL: dict[str, tuple[object, ...]] = {
    "segment.bytes": (*NO_NUMBER, 13, 2**31),
    "segment.ms": (*NO_NUMBER, 0, 2**63),
    "segment.jitter.ms": (*NO_NUMBER, -1),
    "segment.index.bytes": (*NO_NUMBER, 11),
    "index.interval.bytes": (*NO_NUMBER, -1),
    "flush.messages": (*NO_NUMBER, 0),
    "flush.ms": (*NO_NUMBER, -1),
    "retention.bytes": (*NO_NUMBER, 2**63),
    "retention.ms": (*NO_NUMBER, -2),
    "max.message.bytes": (*NO_NUMBER, -1),
    "delete.retention.ms": (*NO_NUMBER, -1),
    "min.compaction.lag.ms": (*NO_NUMBER, -1),
    "max.compaction.lag.ms": (*NO_NUMBER, 0),
    "min.cleanable.dirty.ratio": ("not_a_number", "", None, True, -0.1, 1.1, "nan"),
    "file.delete.delay.ms": (*NO_NUMBER, -1),
    "cleanup.policy": ("true", "delete,false", ["compact", "x"], 1),
    "compression.type": NO_CHOICE,
    "compression.gzip.level": (*NO_NUMBER, 0, -2, 10),
    "compression.lz4.level": (*NO_NUMBER, 0, 18),
    "compression.zstd.level": (*NO_NUMBER, -131_073, 23),
    "preallocate": ("not_a_boolean", "", "1", 1, None),
    "message.timestamp.type": NO_CHOICE,
    "message.timestamp.before.max.ms": (*NO_NUMBER, -1),
    "message.timestamp.after.max.ms": (*NO_NUMBER, -1),
    "min.insync.replicas": (*NO_NUMBER, 0),
    "unclean.leader.election.enable": ("not_a_boolean", "", 1),
    "leader.replication.throttled.replicas": NO_REPLICAS,
    "follower.replication.throttled.replicas": NO_REPLICAS,
    "remote.storage.enable": ("not_a_boolean", "", 1),
    "local.retention.ms": (*NO_NUMBER, -3),
    "local.retention.bytes": (*NO_NUMBER, -3),
    "remote.log.copy.disable": ("not_a_boolean", "", 1),
    "remote.log.delete.on.disable": ("not_a_boolean", "", 1),
}

LEGAL: dict[str, dict[object, str]] = {
    "segment.bytes": {14: "14", " 1073741824 ": "1073741824", "+20": "20"},
    "retention.bytes": {-(2**63): "-9223372036854775808", "-2": "-2"},
    "leader.replication.throttled.replicas": {"": "", " 0:1 , 12:3 ": "0:1,12:3"},
    "follower.replication.throttled.replicas": {" * ": "*", ("0:1", "1:1"): "0:1,1:1"},
    "local.retention.ms": {-2: "-2", -1: "-1"},
    "remote.storage.enable": {False: "false", "FALSE": "false"},
    "retention.ms": {-1: "-1", "604800000": "604800000"},
    "min.cleanable.dirty.ratio": {0: "0.0", "0.5": "0.5", 1: "1.0"},
    "cleanup.policy": {"": "", " Compact , delete": "compact,delete", "delete": "delete"},
    "compression.gzip.level": {-1: "-1", 9: "9"},
    "compression.zstd.level": {-131_072: "-131072", 22: "22"},
    "preallocate": {True: "true", "FALSE": "false"},
    "message.timestamp.type": {"LogAppendTime": "LogAppendTime"},
}


@kafka("LogConfigTest.testFromPropsInvalid")
@pytest.mark.parametrize("name", TOPIC_KEYS)
def test_every_option_refuses_what_it_cannot_mean(name: str) -> None:
    """A value that is not a number, out of range or unknown is an error that names the option."""
    for value in ILLEGAL[name]:
        with pytest.raises(InvalidConfig) as refused:
            parse_overrides({name: value})  # type: ignore[dict-item]  # wrong types are the point
        assert refused.value.facts()["name"] == name, value


@kafka("LogConfigTest.testGetConfigValue", "LogConfigTest.shouldValidateThrottledReplicasConfig")
@pytest.mark.parametrize("name", LEGAL)
def test_every_spelling_of_a_value_becomes_one(name: str) -> None:
    """Numbers, booleans and strings with blanks are stored as Kafka's tools spell them."""
    for value, spelt in LEGAL[name].items():
        assert canonical({name: value}) == {name: spelt}  # type: ignore[dict-item]  # any JSON value


@kafka("LogConfigTest.testGetConfigValue")
def test_defaults_are_those_of_kafka_4_3() -> None:
    """Every option has Kafka's default, and a log without overrides works with these."""
    in_force = effective({})
    assert {name: value.value for name, value in in_force.items()} == KAFKA_4_3_DEFAULTS
    assert {value.source for value in in_force.values()} == {"default"}
    assert LogConfig.of(KAFKA_4_3_DEFAULTS) == LogConfig()


@kafka("LogConfigTest.testFromPropsInvalid")
@pytest.mark.parametrize(
    "name",
    [
        "message.format.version",
        "message.timestamp.difference.max.ms",
        "message.downconversion.enable",
        "no.such.option",
    ],
)
def test_an_option_that_kafka_removed_is_unknown(name: str) -> None:
    """What 4.3 has no more is refused by name, as it does."""
    with pytest.raises(InvalidConfig, match=name):
        parse_overrides({name: "1"})


@kafka(
    "LogConfigTest.testEnableRemoteLogStorage",
    "LogConfigTest.testLocalLogRetentionDerivedProps",
    "LogConfigTest.testLocalLogRetentionDerivedDefaultProps",
)
def test_local_retention_is_that_of_the_log_unless_it_is_set() -> None:
    """-2, the default, stands for it; everything else of the configuration stays."""
    tiered: dict[str, ConfigValue] = {
        "remote.storage.enable": "true",
        "retention.ms": 7,
        "retention.bytes": 9,
    }
    whole = LogConfig.of(tiered)
    assert whole.on_disk == whole
    local = LogConfig.of({**tiered, "local.retention.ms": 5, "local.retention.bytes": 0})
    assert (local.on_disk.retention_ms, local.on_disk.retention_bytes) == (5, 0)
    assert (local.retention_ms, local.retention_bytes) == (7, 9)


@kafka(
    "LogConfigTest.testInvalidLocalLogRetentionProps",
    "LogConfigTest.testEnableRemoteLogStorageOnCompactedTopic",
)
@pytest.mark.parametrize(
    ("config", "refusal"),
    [
        ({"cleanup.policy": "compact"}, "compaction changes old segments"),
        ({"cleanup.policy": "compact,delete"}, "compaction changes old segments"),
        ({"retention.ms": "10", "local.retention.ms": "11"}, "must not exceed retention.ms"),
        ({"local.retention.ms": "-1"}, "must not exceed retention.ms"),
        ({"retention.bytes": "10", "local.retention.bytes": "-1"}, "must not exceed"),
    ],
)
def test_a_contradiction_of_tiered_storage_is_refused(config: dict[str, str], refusal: str) -> None:
    """As Kafka does; without the switch the local retention means nothing."""
    with pytest.raises(InvalidConfig, match=refusal):
        parse_overrides({"remote.storage.enable": "true", **config})
    parse_overrides(config)
    parse_overrides(
        {"remote.storage.enable": "true", "retention.ms": "-1", "local.retention.ms": "-1"}
    )


@kafka("LogConfigTest.testInvalidCompactionLagConfig")
def test_the_least_compaction_lag_cannot_exceed_the_greatest() -> None:
    """A record that must be compacted could not be; equal lags are fine."""
    with pytest.raises(InvalidConfig, match="must not exceed"):
        parse_overrides({"min.compaction.lag.ms": 101, "max.compaction.lag.ms": 100})
    parse_overrides({"min.compaction.lag.ms": 100, "max.compaction.lag.ms": 100})


@kafka("LogConfigTest.testOverriddenConfigsAsLoggableString")
def test_only_overrides_are_reported_as_such() -> None:
    """Values of the topic have the topic as their source, all others the defaults."""
    overrides = canonical({"retention.ms": 7, "preallocate": "TRUE"})
    assert overrides == {"preallocate": "true", "retention.ms": "7"}
    by_topic = {n: v.value for n, v in effective(overrides).items() if v.source == "topic"}
    assert by_topic == overrides


@kafka(
    "LogManagerTest.testTopicConfigChangeUpdatesLogConfig",
    "LogManagerTest.testBrokerConfigChangeDeliveredToAllLogs",
    "LogManagerTest.testConfigChangesWithNoLogGettingInitialized",
)
def test_a_change_reaches_every_partition_and_those_made_later() -> None:
    """Logs of the topic, new partitions of it and the next start work with the new value."""
    world = World()
    manager = world.open_manager({"events": 2})
    manager.update_topic("events", {"retention.ms": "5"}, None)
    manager.update_topic("events", None, 3)
    assert [log.config.retention_ms for log in manager.logs()] == [5, 5, 5]
    world.restart(power_cut=True)
    assert world.open_manager().log(EVENTS).config.retention_ms == 5


@kafka("LocalLogTest.testUpdateConfig")
def test_a_new_configuration_replaces_the_old_one() -> None:
    """The log works with the new value from the next append on."""
    log = World().open_log(LogConfig(segment_index_bytes=1200))
    new = LogConfig(segment_index_bytes=1200, segment_bytes=123_456)
    log.maintenance.update_config(new)
    assert log.config is new
