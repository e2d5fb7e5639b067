"""Schemas as people write them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pyspark.sql.types import (
    ArrayType,
    DecimalType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
)

from pyspark_tidelog.errors import OptionError
from pyspark_tidelog.lake.ddl import parse_schema


def test_ddl_is_read_as_spark_reads_it() -> None:
    """Nested types, quoted names, colons or none, any case."""
    text = (
        "id bigint NOT NULL, `a ``b` STRUCT<x: Int, y ARRAY<STRING>>, m map<string,dec(4,1)>, "
        "n numeric(7) COMMENT 'it\\'s, (a) n', d decimal comment \"x\""
    )
    assert parse_schema(text) == StructType(
        [
            StructField("id", LongType(), nullable=False),
            StructField(
                "a `b",
                StructType(
                    [StructField("x", IntegerType()), StructField("y", ArrayType(StringType()))]
                ),
            ),
            StructField("m", MapType(StringType(), DecimalType(4, 1))),
            StructField("n", DecimalType(7, 0)),
            StructField("d", DecimalType(10, 0)),
        ]
    )


def test_a_schema_may_lie_in_a_file(tmp_path: Path) -> None:
    """As Spark's JSON, or as DDL."""
    expected = parse_schema("a INT, b STRING")
    (tmp_path / "x.json").write_text(expected.json())
    (tmp_path / "x.ddl").write_text("a INT,\n b STRING\n")
    assert parse_schema(str(tmp_path / "x.json")) == expected
    assert parse_schema(str(tmp_path / "x.ddl")) == expected
    assert parse_schema(json.dumps(expected.jsonValue())) == expected


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "the schema has no columns"),
        ("a", "a type is missing"),
        ("a foo", "a type is missing"),
        ("a int b int", "a comma is missing before 'int'"),
        ("a int, A int", "two columns A: case"),
        ("a struct<b int, B int>", "two columns B: case"),
        ("a array<struct<>>", "no columns"),
        ("a map<string, struct<b int, B int>>", "two columns B: case"),
        ("a array<int", "> is missing"),
        ("a int not", "NOT NULL is missing"),
        ("a int !", "a column is missing before '!'"),
        (", a int", "the name of a column is missing"),
        ("a decimal(50,1)", "a decimal of 1 to 38 digits"),
        ("a decimal(x)", "a number is missing"),
        ("a varchar(3)", "a column of VARCHAR, which a lake does not have: use STRING"),
        ("a struct<b: timestamp_ntz>", "TIMESTAMP_NTZ, which a lake does not have: use TIMESTAMP"),
        ("a int comment x", "the text of a comment in quotes is missing"),
        ("/no/such/file", "cannot be read: No such file"),
        ('{"type": "x"}', "not Spark's JSON form"),
    ],
)
def test_what_is_no_schema_is_refused_with_a_sentence(text: str, sentence: str) -> None:
    """The first thing that is wrong is named."""
    with pytest.raises(OptionError) as refused:
        parse_schema(text)
    assert sentence in str(refused.value)
