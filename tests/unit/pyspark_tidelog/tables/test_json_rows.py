"""JSON values into columns: what fits, and what is said of the rest."""

from __future__ import annotations

import datetime as dt
import json
import pickle
from collections.abc import Callable
from decimal import Decimal

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pyspark.sql.types import LongType, StructField, StructType

from pyspark_tidelog.errors import OptionError
from pyspark_tidelog.lake.ddl import parse_schema
from pyspark_tidelog.tables.json_rows import JsonRows, arrow_type_of

NULLS = dict.fromkeys(("a", "b", "m", "t", "d", "s", "y", "r"))
ROWS = JsonRows(
    parse_schema(
        "a BIGINT, b STRUCT<`x y`: INT, z: ARRAY<DOUBLE>>, m MAP<STRING, DECIMAL(5,2)>, "
        "t TIMESTAMP, d DATE, s STRING, y TINYINT, r BINARY"
    )
)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (b"{}", {}),
        (None, {}),
        (b'{"a": null, "other": [1]}', {}),
        (b'{"a": -9223372036854775808}', {"a": -(1 << 63)}),
        (b'{"b": {"x y": 3, "z": [1, null, 2.5]}}', {"b": {"x y": 3, "z": [1.0, None, 2.5]}}),
        (b'{"b": {}}', {"b": {"x y": None, "z": None}}),
        (b'{"m": {"k": 1.25, "n": null}}', {"m": [("k", Decimal("1.25")), ("n", None)]}),
        (b'{"d": "2013-01-31", "s": "\\u00fc"}', {"d": dt.date(2013, 1, 31), "s": "ü"}),
        (b'{"r": "AP8="}', {"r": b"\x00\xff"}),
    ],
)
def test_a_value_that_fits_becomes_a_row(value: bytes | None, expected: dict[str, object]) -> None:
    """Missing fields are null, further ones are left out, and nothing else is changed."""
    fitted = pickle.loads(pickle.dumps(ROWS)).fit([value])
    assert fitted.reasons == [None]
    assert fitted.rows.to_pylist() == [NULLS | expected]


def dumps_as_utf8(document: object) -> str:
    return json.dumps(document, ensure_ascii=False)


names = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)


@given(
    st.lists(names, min_size=1, max_size=8, unique=True),
    st.sampled_from([json.dumps, dumps_as_utf8]),
)
@example(["é", "größe", "日本", "🌊", 'a"b', "a.b", "a/b", "", " ", "\\", "Id", "id"], json.dumps)
@example([f"field_{number}_ø" for number in range(1000)], dumps_as_utf8)
def test_a_field_is_found_whatever_its_name(
    chosen: list[str], dumps: Callable[[object], str]
) -> None:
    """At the top, in a struct and as the key of a map; as UTF-8 and as escapes.

    What is missing is null without a word, so a name that is passed over loses data in silence.
    """
    fields = StructType([StructField(name, LongType()) for name in chosen])
    schema = StructType([*fields.fields, StructField("nested", fields)])
    document: dict[str, object] = {name: number for number, name in enumerate(chosen)}
    document["nested"] = dict(document)
    value = dumps(document).encode()
    fitted = pickle.loads(pickle.dumps(JsonRows(schema))).fit([value])
    assert fitted.reasons == [None]
    assert fitted.rows.to_pylist() == [document]


@pytest.mark.parametrize(
    "text",
    [
        "2013-01-01T05:00:00.000001Z",
        "2013-01-01T05:00:00.000001",
        "2013-01-01T06:00:00.000001+01:00",
    ],
)
def test_a_time_without_a_zone_is_in_utc(text: str) -> None:
    """Three ways to write one instant, to the microsecond."""
    found = ROWS.fit([b'{"t": "%s"}' % text.encode()]).rows.field("t")
    assert found.cast("int64").to_pylist() == [1_357_016_400_000_001]


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (b"", "Input data was truncated"),
        (b"null", "Expected `object`, got `null`"),
        (b"[1]", "Expected `object`, got `array`"),
        (b'{"a": 1} x', "trailing characters (byte 10)"),
        (b'{"a": "1"}', "Expected `int | null`, got `str` - at `$.a`"),
        (b'{"a": 1.0}', "got `float` - at `$.a`"),
        (b'{"a": 12345678901234567890}', "Expected `int` <= 9223372036854775807 - at `$.a`"),
        (b'{"y": 128}', "Expected `int` <= 127 - at `$.y`"),
        (b'{"t": 1}', "Expected `datetime | null`, got `int` - at `$.t`"),
        (b'{"s": "\xff"}', "can't decode byte 0xff"),
        (b'{"m": {"k": 12345678}}', "precision"),
        (b'{"m": {"k": 1.255}}', "would cause data loss"),
        (b'{"b": ' + b"[" * 100_000, "got `array` - at `$.b`"),
        (b'{"q": ' + b"[" * 100_000, "nested too deeply"),
    ],
)
def test_a_value_that_does_not_fit_says_why(value: bytes, reason: str) -> None:
    """In one line, and the values around it are none the worse for it."""
    fitted = ROWS.fit([b'{"a": 1}', value, b'{"a": 2}'])
    assert [row and row["a"] for row in fitted.rows.to_pylist()] == [1, None, 2]
    assert [fitted.reasons[0], fitted.reasons[2]] == [None, None]
    assert reason in str(fitted.reasons[1])
    assert "\n" not in str(fitted.reasons[1])


def test_a_column_that_must_not_be_null_is_asked_for() -> None:
    """NOT NULL holds for a missing field and for null alike."""
    rows = JsonRows(parse_schema("id INT NOT NULL"))
    assert rows.fit([b"{}", b'{"id": null}', b'{"id": 1}']).reasons == [
        "Object missing required field `id`",
        "Expected `int`, got `null` - at `$.id`",
        None,
    ]


def test_a_type_that_json_cannot_fill_is_refused() -> None:
    """Before anything runs, with those that can be."""
    with pytest.raises(OptionError, match=r"cannot be map<int,int>: it can be string"):
        arrow_type_of(parse_schema("m MAP<INT, INT>"))
