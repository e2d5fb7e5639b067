"""The verifier's own reading of JSON values, against the job's."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pyspark.sql import types as T  # noqa: N812 -- as everywhere in Spark

from pyspark_tidelog.lake.ddl import parse_schema
from pyspark_tidelog.lake.expected_rows import PlainRows
from pyspark_tidelog.lake.inference import ddl_of, infer_schema
from pyspark_tidelog.tables.json_rows import JsonRows
from tests.support.boundaries import INTEGERS, NUMBERS, TEXTS

names = st.sampled_from(["a", "b", "A", "größe", "日本", "🌊", 'q"', "a.b", "a/b", "~", "", " "])
scalars = st.sampled_from(
    [
        T.StringType(),
        T.BinaryType(),
        T.BooleanType(),
        T.ByteType(),
        T.ShortType(),
        T.IntegerType(),
        T.LongType(),
        T.FloatType(),
        T.DoubleType(),
        T.DateType(),
        T.TimestampType(),
        T.DecimalType(5, 2),
        T.DecimalType(38, 0),
    ]
)


def structs(types: st.SearchStrategy[T.DataType]) -> st.SearchStrategy[T.StructType]:
    fields = st.builds(T.StructField, names, types, st.booleans())
    return st.lists(fields, min_size=1, max_size=4, unique_by=lambda each: each.name).map(
        T.StructType
    )


schemas = structs(
    st.recursive(
        scalars,
        lambda inner: st.one_of(
            st.builds(T.ArrayType, inner, st.booleans()),
            st.builds(T.MapType, st.just(T.StringType()), inner, st.booleans()),
            structs(inner),
        ),
        max_leaves=4,
    )
)

# What a value of JSON can be written as: good and bad of each kind, as text.
pieces = st.one_of(
    st.sampled_from(
        [
            *("null", "true", "false", "0", "-0", "1", "-129", "128", "32768", "2147483648"),
            *("9223372036854775807", "9223372036854775808", "-9223372036854775809", "1e16"),
            *("1" + "0" * 38, "1" + "0" * 400, "1.0", "1.25", "1.255", "1e300", "1e400", "-1e-400"),
            *("3.4028235e38", "3.5e38", "NaN", "Infinity", "01", "1.", "-", '"', "[", "nul"),
            *('"NaN"', '"1.25"', '"1_0"', '" 1 "', '"YQ=="', '"YQ"', '"YR=="', '"Y Q="', '"_-8="'),
            *('"2024-02-29"', '"2023-02-29"', '"20240101"', '"0000-01-01"', '"9999-12-31"'),
            *('"2024-01-01T00:00:00"', '"2024-01-01 00:00:00.1234565Z"', '"2024-01-01T24:00:00Z"'),
            *(
                '"2024-01-01T23:59:59.9999999z"',
                '"2024-01-01T00:00:00+0100"',
                '"0001-01-01t00:00:00+01:00"',
            ),
            *(
                '"9999-12-31T23:59:59.9999999Z"',
                '"2024-01-01T00:00:00-23:59"',
                '"2024-01-01T00:00:00+24:00"',
            ),
            *(
                '"2024-01-01T00:00:00+00:60"',
                '"2024-01-01T00:00Z"',
                '"2024-01-01T00:00:00.Z"',
                '"\uff12024-01-01"',
            ),
            *(
                r'"\ud800"',
                r'"\udc00\ud800"',
                r'"\ud83d\ude00"',
                r'"\u0000"',
                r'"\q"',
                '"\x7f"',
                '"é\u2028"',
            ),
            *("[1,]", '{"a":1,}', '{"a":1,"a":"x"}', '{"a":{"x":1},"a":{}}', "{}", "[]", "[null]"),
        ]
    ),
    st.text(max_size=3).map(lambda text: json.dumps(text, ensure_ascii=False)),
    st.integers().map(str),
    st.floats(allow_nan=False, allow_infinity=False).map(json.dumps),
)
quoted = st.sampled_from([*("a", "größe", "日本", "🌊", "a/b", "~", "", "x", "y.z")]).map(
    json.dumps
)
documents = st.recursive(
    pieces,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3).map(lambda each: f"[{','.join(each)}]"),
        st.lists(st.tuples(quoted, inner), max_size=4).map(
            lambda fields: "{" + ", ".join(f"{name} :{each}" for name, each in fields) + "}"
        ),
    ),
    max_leaves=8,
)


def value_of(data_type: T.DataType) -> st.SearchStrategy[str]:
    """Return JSON that often fits a type: at random, hardly any would."""
    match data_type:
        case T.StructType():
            known = st.tuples(
                *(
                    st.one_of(
                        st.just(""),
                        st.builds(
                            lambda text, name=each.name: f"{json.dumps(name)}:{text}",
                            value_of(each.dataType),
                        ),
                    )
                    for each in data_type.fields
                )
            )
            more = st.builds(lambda name, text: f"{name}:{text}", quoted, documents)
            return st.builds(
                lambda own, others: "{" + ",".join(x for x in (*own, *others) if x) + "}",
                known,
                st.one_of(st.just([]), st.lists(more, max_size=2)),
            )
        case T.ArrayType():
            return st.lists(value_of(data_type.elementType), max_size=2).map(
                lambda each: f"[{','.join(each)}]"
            )
        case T.MapType():
            fields = st.tuples(quoted, value_of(data_type.valueType))
            return st.lists(fields, max_size=2).map(
                lambda each: "{" + ",".join(f"{name}:{text}" for name, text in each) + "}"
            )
        case _:
            return pieces


@st.composite
def cases(draw: st.DrawFn) -> tuple[T.StructType, list[bytes]]:
    schema = draw(schemas)
    texts = draw(st.lists(st.one_of(value_of(schema), documents), min_size=1, max_size=4))
    return schema, [text.encode("utf-8", "surrogatepass") for text in texts]


TEXT = parse_schema("a STRING")


@given(cases())
@example((TEXT, [b'{"a":"\xff"}', b'{"x":"\xff"}', b'{"\xff":1}', b"\xef\xbb\xbf{}", b"", b"null"]))
@example((TEXT, [b'{"a":{"b":[1.50,1e16,-0.0,"\\u00e9"]}}', b'{"a":1' + b"0" * 5000 + b"}"]))
@example((TEXT, [rb'{"a":"\ud800","a":null}', rb'{"a":"\\ud800"}', rb'{"a":"\\\ud83d\ude00"}']))
@example((parse_schema("a DECIMAL(4,2), b FLOAT"), [b'{"a":1.50,"b":1e300}', b'{"a":"1.5"}']))
def test_both_readings_of_a_value_are_one(case: tuple[T.StructType, Sequence[bytes]]) -> None:
    """The same values fit, as the same rows, with the same fields left over."""
    schema, values = case
    written, verified = JsonRows(schema).fit(values), PlainRows(schema).fit(values)
    fits = [reason is None for reason in written.reasons]
    assert [reason is None for reason in verified.reasons] == fits
    assert repr(verified.rows.to_pylist()) == repr(written.rows.to_pylist())
    assert verified.unknown == written.unknown


@pytest.mark.parametrize("escapes", [False, True])
def test_names_and_values_at_every_boundary_arrive(tmp_path: Path, *, escapes: bool) -> None:
    """From a sample to DDL, through both readings, into a file and out again."""
    written = {text: text for text in TEXTS.values()}
    sample = [json.dumps(written, ensure_ascii=escapes).encode("utf-8")]
    schema = parse_schema(ddl_of(infer_schema(sample)))
    for reading in (JsonRows, PlainRows):
        fitted = reading(schema).fit(sample)
        assert (fitted.reasons, fitted.unknown) == ([None], [None])
        pq.write_table(pa.Table.from_struct_array(fitted.rows), tmp_path / "rows.parquet")
        assert pq.read_table(tmp_path / "rows.parquet").to_pylist() == [written]


def test_numbers_at_every_boundary_arrive() -> None:
    """A column of text has every digit of an integer; one of numbers fits or says why not."""
    values = [f'{{"n":{number}}}'.encode() for number in NUMBERS]
    for column in ("STRING", "INT", "BIGINT", "DOUBLE", "DECIMAL(38,0)", "FLOAT"):
        schema = parse_schema(f"n {column}")
        written, verified = JsonRows(schema).fit(values), PlainRows(schema).fit(values)
        assert [r is None for r in written.reasons] == [r is None for r in verified.reasons]
        assert repr(written.rows.to_pylist()) == repr(verified.rows.to_pylist())
        if column == "STRING":
            shown = [row["n"] for row in written.rows.to_pylist()]
            assert shown[: len(INTEGERS)] == [*map(str, INTEGERS)]
            assert [*map(float, shown)] == [*map(float, NUMBERS)]  # 1E2 is 100.0, as in Spark
        if column == "BIGINT":
            fits = [
                number
                for number, reason in zip(NUMBERS, written.reasons, strict=True)
                if reason is None
            ]
            assert {*map(int, fits)} >= {i for i in INTEGERS if -(2**63) <= i < 2**63}
            assert all(-(2**63) <= int(number) < 2**63 for number in fits)


@pytest.mark.parametrize("reading", [JsonRows, PlainRows])
def test_what_the_schema_does_not_have_is_left_over(reading: type[JsonRows | PlainRows]) -> None:
    """Each field by its pointer, in structs, arrays and maps; a missing one is not left over."""
    schema = parse_schema("a INT, s STRUCT<b: INT>, l ARRAY<STRUCT<b: INT>>, m MAP<STRING, INT>")
    values = [
        {"a": 1, "größe": [1, {"x": None}], "s": {"b": 1, "c/d": 2}},
        {"A": 1, "l": [{"b": 1}, {"b~": 2.5}, None], "m": {"any": 1}},
        {"s": None},
    ]
    fitted = reading(schema).fit([*(json.dumps(each).encode() for each in values), None])
    assert fitted.reasons == [None] * 4
    assert fitted.unknown == [
        '{"/größe":[1,{"x":null}],"/s/c~1d":2}',
        '{"/A":1,"/l/1/b~0":2.5}',
        None,
        None,
    ]
