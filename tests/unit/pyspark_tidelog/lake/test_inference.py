"""The columns that a sample has."""

from __future__ import annotations

import pytest

from pyspark_tidelog.errors import JobError
from pyspark_tidelog.lake.ddl import parse_schema
from pyspark_tidelog.lake.inference import infer_schema
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
    """In the order of appearance; what is only ever null is text, any mix of numbers double."""
    schema = infer_schema(SAMPLE)
    assert schema == parse_schema(
        "id BIGINT, delay DOUBLE, tail STRING, ok BOOLEAN, "
        "legs ARRAY<STRUCT<to: STRING, km: BIGINT>>, big DOUBLE, "
        "at STRUCT<x: STRING, y: ARRAY<STRING>>, new STRING"
    )
    reasons = JsonRows(schema).fit(SAMPLE).reasons
    assert [reason is None for reason in reasons] == [True, False, False, True, True, True, True]


@pytest.mark.parametrize(
    ("sample", "sentence"),
    [
        ([b'{"a": 1}', b'{"a": "x"}'], "the field a is bigint in one record and string in another"),
        ([b'{"a": {"b": [1]}}', b'{"a": {"b": [true]}}'], r"the field a\.b\[\] is bigint"),
        ([b'{"a": [1, "x"]}'], r"the field a\[\] is bigint in one record and string in another"),
        ([], "there is no JSON object among the first records"),
        ([b"x", None, b"{}"], "there is no JSON object among the first records"),
    ],
)
def test_what_is_uncertain_is_refused(sample: list[bytes | None], sentence: str) -> None:
    """A guess is made only where there is nothing to guess."""
    with pytest.raises(JobError, match=sentence):
        infer_schema(sample)
