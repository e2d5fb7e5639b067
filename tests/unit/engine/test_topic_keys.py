"""Kafka's topic configurations: names, defaults, ranges, one spelling."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.errors import InvalidConfig
from engine.topic_keys import (
    TOPIC_KEYS,
    canonical,
    effective,
    parse_overrides,
    render,
)
from engine.topic_values import ConfigValue
from engine.types import INT32_MAX, INT64_MAX
from tests.support.topic_defaults import KAFKA_4_3_DEFAULTS


def test_names_and_defaults_are_kafkas() -> None:
    """What `kafka-configs --describe --all` prints for a topic of 4.3."""
    assert {name: value.value for name, value in effective({}).items()} == KAFKA_4_3_DEFAULTS


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("segment.bytes", 13),
        ("segment.bytes", INT32_MAX + 1),
        ("segment.bytes", "1e6"),
        ("segment.bytes", ""),
        ("segment.bytes", "-"),
        ("segment.bytes", True),
        ("segment.bytes", 1.5),
        ("segment.bytes", None),
        ("segment.bytes", "9" * 5_000),
        ("retention.ms", -2),
        ("retention.ms", INT64_MAX + 1),
        ("retention.ms", "١٢"),
        ("min.cleanable.dirty.ratio", 1.1),
        ("min.cleanable.dirty.ratio", "nan"),
        ("min.cleanable.dirty.ratio", "half"),
        ("min.cleanable.dirty.ratio", False),
        ("min.cleanable.dirty.ratio", None),
        ("preallocate", "yes"),
        ("preallocate", 1),
        ("cleanup.policy", "compact,destroy"),
        ("cleanup.policy", 5),
        ("compression.type", "brotli"),
        ("compression.type", None),
        ("compression.gzip.level", 0),
        ("compression.gzip.level", 10),
        ("compression.lz4.level", 18),
        ("compression.zstd.level", 23),
        ("message.timestamp.type", "createtime"),
    ],
)
def test_values_out_of_range_are_refused(name: str, value: ConfigValue) -> None:
    """The error has the key, the value and what was expected."""
    with pytest.raises(InvalidConfig) as refusal:
        parse_overrides({name: value})
    facts = refusal.value.facts()
    assert facts["name"] == name
    assert facts["value"] == str(value)
    assert facts["accepted"]


def test_an_unknown_name_is_refused_with_the_known_ones() -> None:
    """The error for a mistyped name lists the known ones."""
    with pytest.raises(InvalidConfig, match="unknown topic configuration") as refusal:
        parse_overrides({"retention.hours": 1})
    assert refusal.value.facts()["accepted"] == sorted(TOPIC_KEYS)


def test_compaction_lags_must_leave_room() -> None:
    """The lower lag may not exceed the upper one; equal ones may stand."""
    lags = {"min.compaction.lag.ms": 10, "max.compaction.lag.ms": 10}
    assert parse_overrides(lags) == lags
    with pytest.raises(InvalidConfig, match="must not exceed"):
        parse_overrides({**lags, "min.compaction.lag.ms": "11"})


@pytest.mark.parametrize(
    ("given_values", "stored"),
    [
        ({"retention.ms": -1}, {"retention.ms": "-1"}),
        ({"retention.ms": " +5 "}, {"retention.ms": "5"}),
        ({"preallocate": True}, {"preallocate": "true"}),
        ({"preallocate": " TRUE "}, {"preallocate": "true"}),
        ({"preallocate": "False"}, {"preallocate": "false"}),
        ({"cleanup.policy": ["Compact", "delete"]}, {"cleanup.policy": "compact,delete"}),
        ({"cleanup.policy": " compact , compact "}, {"cleanup.policy": "compact"}),
        ({"cleanup.policy": ""}, {"cleanup.policy": ""}),
        ({"min.cleanable.dirty.ratio": "0.25"}, {"min.cleanable.dirty.ratio": "0.25"}),
        ({"min.cleanable.dirty.ratio": 1}, {"min.cleanable.dirty.ratio": "1.0"}),
        ({"compression.type": " lz4 "}, {"compression.type": "lz4"}),
        ({"compression.gzip.level": "9"}, {"compression.gzip.level": "9"}),
    ],
)
def test_equal_values_have_one_spelling(
    given_values: dict[str, ConfigValue], stored: dict[str, str]
) -> None:
    """Numbers, booleans, lists and odd spacing are stored as Kafka's tools write them."""
    assert canonical(given_values) == stored
    assert canonical(stored) == stored


@given(st.integers(-1, INT64_MAX))
def test_every_legal_number_survives_its_spelling(number: int) -> None:
    """Rendering and reading give the same number back."""
    parsed = parse_overrides({"retention.ms": render(number)})
    assert parsed == {"retention.ms": number}


def test_what_is_in_force_says_where_it_comes_from() -> None:
    """An override wins over what an adopted topic gets, and that over Kafka's default."""
    overrides = {"retention.bytes": "5"}
    values = effective(overrides, adopted=True)
    assert (values["retention.bytes"].value, values["retention.bytes"].source) == ("5", "topic")
    assert (values["retention.ms"].value, values["retention.ms"].source) == ("-1", "adopted")
    assert (values["segment.ms"].value, values["segment.ms"].source) == ("604800000", "default")
    assert effective(overrides)["retention.ms"].source == "default"
