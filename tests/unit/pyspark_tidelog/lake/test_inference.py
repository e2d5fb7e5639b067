"""The columns that a sample has."""

from __future__ import annotations

import json

import pytest

from pyspark_tidelog.errors import JobError
from pyspark_tidelog.lake.ddl import parse_schema
from pyspark_tidelog.lake.inference import ddl_of, infer_schema
from pyspark_tidelog.tables.json_rows import JsonRows

SAMPLE = [
    b'{"id": 1, "delay": null, "tail": null, "ok": true, "legs": [{"to": "x"}, {"km": 1}]}',
    b"no JSON",
    b"[1]",
    None,
    b'{"id": 1, "delay": 2, "big": 12345678901234567890, "legs": []}',
    b'{"delay": 2.5, "at": {"x": null}, "new": "s"}',
    b'{"at": {"y": [null]}}',
]


def test_a_sample_tells_its_columns() -> None:
    """In the order of appearance; what is only ever null is text."""
    schema = infer_schema(SAMPLE)
    assert schema == parse_schema(
        "id BIGINT, delay DOUBLE, tail STRING, ok BOOLEAN, "
        "legs ARRAY<STRUCT<to: STRING, km: BIGINT>>, big DECIMAL(38,0), "
        "at STRUCT<x: STRING, y: ARRAY<STRING>>, new STRING"
    )
    reasons = JsonRows(schema).fit(SAMPLE).reasons
    assert [reason is None for reason in reasons] == [True, False, False, True, True, True, True]


AWKWARD: list[tuple[list[object], str]] = [
    ([{"a": {}}], "a STRING"),
    ([{"a": {}}, {"a": {"b": 1}}], "a STRUCT<b: BIGINT>"),
    ([{"a": [{}], "b": {"c": {}}}], "a ARRAY<STRING>, b STRUCT<c: STRING>"),
    ([{"a": 1}, {"a": "x"}], "a STRING"),
    ([{"a": {"b": 1}}, {"a": [1]}, {"a": None}], "a STRING"),
    ([{"a": [1, "x", {"y": 2}]}], "a ARRAY<STRING>"),
    ([{"a": True}, {"a": 1}], "a STRING"),
    ([{"a": 1, "A": "x"}, {"A": 2}, {"n": {"b": 1, "B": []}}], "a BIGINT, n STRUCT<b: BIGINT>"),
    ([{"a": 2**63}, {"a": 1}], "a DECIMAL(38,0)"),
    ([{"a": -(2**63) - 1}, {"a": 1.5}], "a DOUBLE"),
    ([{"a": 10**40}], "a DOUBLE"),
    (
        [{"a b": 1, "c.d": 2, "größe": 3, "e`f": 4}],
        "`a b` BIGINT, `c.d` BIGINT, `größe` BIGINT, `e``f` BIGINT",
    ),
]


@pytest.mark.parametrize(("documents", "ddl"), AWKWARD)
def test_the_data_that_people_have_is_taken(documents: list[object], ddl: str) -> None:
    """Public data has empty objects, fields of two types and names that differ in case."""
    values = [json.dumps(one).encode() for one in documents]
    schema = infer_schema(values)
    assert ddl_of(schema) == ddl
    assert parse_schema(ddl) == schema
    assert not any(JsonRows(schema).fit(values).reasons)


def test_a_column_of_text_keeps_any_value() -> None:
    """As its JSON, at every depth; text stays as it is."""
    rows = JsonRows(parse_schema("a STRING, b ARRAY<STRING>, c STRUCT<d: STRING>"))
    values = [
        {"a": "x", "b": ["y", None, 1], "c": {"d": {"e": [True]}}},
        {"a": {}, "b": [[], {"k": "v"}], "c": {}},
        {"a": 2**70, "b": None},
    ]
    fitted = rows.fit([json.dumps(one).encode() for one in values])
    assert fitted.reasons == [None] * 3
    assert fitted.rows.to_pylist() == [
        {"a": "x", "b": ["y", None, "1"], "c": {"d": '{"e":[true]}'}},
        {"a": "{}", "b": ["[]", '{"k":"v"}'], "c": {"d": None}},
        {"a": str(2**70), "b": None, "c": None},
    ]


@pytest.mark.parametrize(
    ("sample", "sentence"),
    [
        ([], "there is no JSON object among the first records"),
        ([b"x", None, b"{}"], "there is no JSON object among the first records"),
    ],
)
def test_what_is_uncertain_is_refused(sample: list[bytes | None], sentence: str) -> None:
    """A guess is made only where there is nothing to guess."""
    with pytest.raises(JobError, match=sentence):
        infer_schema(sample)
