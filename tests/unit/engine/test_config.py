"""The configuration of one log: a frozen value from a topic's overrides."""

import dataclasses

import pytest

from engine.config import EngineConfig, LogConfig
from engine.errors import InvalidConfig
from engine.topic_keys import TOPIC_KEYS


def test_without_overrides_it_is_kafkas_default() -> None:
    """Every field that is a topic key has the key's default, in both places."""
    config = LogConfig.of({})
    assert config == LogConfig()
    keys = {key.attribute: key.default for key in TOPIC_KEYS.values()}
    fields = {one.name: getattr(config, one.name) for one in dataclasses.fields(config) if one.init}
    assert {name: keys[name] for name in fields} == fields


def test_overrides_are_typed_and_the_rest_stays() -> None:
    """Strings and numbers are converted to the types of the log's configuration.

    Unused keys are accepted.
    """
    config = LogConfig.of(
        {"segment.bytes": "2048", "cleanup.policy": "compact,delete", "min.insync.replicas": 2}
    )
    assert config == dataclasses.replace(
        LogConfig(), segment_bytes=2048, cleanup_policy=("compact", "delete")
    )
    with pytest.raises(InvalidConfig):
        LogConfig.of({"segment.bytes": "many"})


@pytest.mark.parametrize(
    ("policy", "is_compacted", "deletes"),
    [
        (("delete",), False, True),
        (("compact",), True, False),
        (("compact", "delete"), True, True),
        ((), False, False),
    ],
)
def test_the_policy_says_what_happens_to_old_records(
    policy: tuple[str, ...], *, is_compacted: bool, deletes: bool
) -> None:
    """Compaction and deletion can be set separately, together, or not at all."""
    config = LogConfig(cleanup_policy=policy)
    assert (config.is_compacted, config.deletes) == (is_compacted, deletes)


def test_compaction_may_need_segments_to_roll_sooner() -> None:
    """A compacted log rolls after the shorter of segment.ms and max.compaction.lag.ms."""
    plain = LogConfig(segment_ms=1_000, max_compaction_lag_ms=300)
    assert plain.max_segment_ms == 1_000
    assert dataclasses.replace(plain, cleanup_policy=("compact",)).max_segment_ms == 300


def test_preallocation_is_a_segments_size_or_nothing() -> None:
    """New files reserve segment.bytes if the topic is configured so."""
    assert LogConfig(segment_bytes=77).initial_file_bytes == 0
    assert LogConfig(segment_bytes=77, preallocate=True).initial_file_bytes == 77


def test_append_time_is_a_choice() -> None:
    """LogAppendTime stamps, CreateTime does not."""
    assert LogConfig(message_timestamp_type="LogAppendTime").uses_append_time
    assert not LogConfig().uses_append_time


def test_settings_of_the_engine_are_frozen() -> None:
    """A running engine's settings cannot be changed under it."""
    with pytest.raises(dataclasses.FrozenInstanceError):
        EngineConfig().commit_interval_ms = 1  # type: ignore[misc]  # that is the point
