"""Filters: an expression means what a dumb reader of its parts says, whatever the bytes."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.codecs.filter import MAX_DEPTH, MAX_FILTER_BYTES, MAX_TESTS, filter_of
from app.codecs.stored import StoredRecords, View
from app.errors import MalformedRequest
from engine.records.builder import NewRecord, build_batch
from engine.records.header import Codec
from engine.records.record import Record

TEXTS = ["", "a", "ab", "7", "70", "ä", "1.5", "null", "true", '"a"', "a b", "\u2028", '{"x":1}']
VALUES: list[Any] = [*TEXTS, None, True, False, 0, 1, 7, -3, 1.5, 10**20, [7], {"x": 7}]
NAMES = ["h", "a b", "ä", ""]
POINTERS = ["/x", "/a~1b", "/list/0", "/x/y"]

texts = st.sampled_from(TEXTS)
documents = st.sampled_from(VALUES) | st.dictionaries(
    st.sampled_from(["x", "a/b", "list"]),
    st.sampled_from(VALUES) | st.lists(st.sampled_from(VALUES), max_size=2),
    max_size=3,
)
contents = (
    st.none()
    | texts.map(str.encode)
    | documents.map(lambda one: json.dumps(one).encode())
    | documents.map(lambda one: json.dumps(one, ensure_ascii=False).encode())
    | st.binary(max_size=4)
)
headers = st.lists(st.tuples(st.sampled_from(NAMES), contents), max_size=3)


@dataclass(frozen=True)
class Expression:
    """An expression, and what it means."""

    text: str
    means: Callable[[Record], bool]


def found(content: bytes | None, pointer: str) -> list[bytes]:
    """What a place holds: by the library of JSON, not by that of the service."""
    if content is None:
        return []
    if not pointer:
        return [content]
    try:
        value = json.loads(content.decode())
        for part in pointer[1:].split("/"):
            name = part.replace("~1", "/").replace("~0", "~")
            value = value[int(name)] if isinstance(value, list) else value[name]
    except (ValueError, KeyError, TypeError, IndexError):
        return []
    return [json.dumps(value).encode()]


def held(place: str, name: str, record: Record) -> list[bytes]:
    match place:
        case "key":
            return found(record.key and bytes(record.key), name)
        case "value":
            content = record.value
            return found(None if content is None else bytes(content), name)
        case "header":
            return [bytes(v) for k, v in record.headers if k == name and v is not None]
        case "offset":
            return [b"%d" % record.offset]
        case _:
            return [b"%d" % record.timestamp]


def said(place: str, name: str, record: Record) -> list[bytes]:
    """The texts of a place."""
    texts: list[bytes] = []
    for one in held(place, name, record):
        if not name or place == "header":
            texts.append(one)
        if place == "value" or (name and place == "key"):
            value = decoded(one)
            if isinstance(value, str):
                texts.append(value.encode())
    return texts


def decoded(content: bytes) -> object:
    try:
        return json.loads(content.decode())
    except ValueError:
        return ...


def same(one: object, other: object) -> bool:
    return one == other and isinstance(one, bool) == isinstance(other, bool)


@st.composite
def singles(draw: st.DrawFn) -> Expression:
    """One test of one place."""
    place = draw(st.sampled_from(["key", "value", "header", "offset", "timestamp"]))
    name, spelled = "", place
    if place == "header":
        name = draw(st.sampled_from(NAMES))
        spelled = f"header.{name}" if name == "h" else f"header.{json.dumps(name)}"
    elif place in {"key", "value"} and draw(st.booleans()):
        name = draw(st.sampled_from(POINTERS))
        spelled += name if draw(st.booleans()) else json.dumps(name)
    kind = draw(st.sampled_from(["=", "!=", "<", "<=", ">", ">=", "starts_with", "exists"]))
    if kind == "exists":
        if place == "header":
            return Expression(f"exists {spelled}", lambda r: any(k == name for k, _ in r.headers))
        return Expression(f"exists {spelled}", lambda r: bool(held(place, name, r)))
    if kind == "starts_with":
        prefix = draw(texts)
        wanted = prefix.encode()
        return Expression(
            f"{spelled} starts_with {json.dumps(prefix)}",
            lambda r: any(t.startswith(wanted) for t in said(place, name, r)),
        )
    if kind not in {"=", "!="}:
        number = draw(st.sampled_from([0, 1, 7, -3, 1.5, 3]))
        compare: dict[str, Callable[[Any], bool]] = {
            "<": lambda v: v < number,
            "<=": lambda v: v <= number,
            ">": lambda v: v > number,
            ">=": lambda v: v >= number,
        }

        def compares(record: Record) -> bool:
            values = [decoded(one) for one in held(place, name, record)]
            return any(
                compare[kind](one)
                for one in values
                if isinstance(one, int | float) and not isinstance(one, bool)
            )

        return Expression(f"{spelled} {kind} {number}", compares)
    literal = draw(texts | st.sampled_from([None, True, False, 0, 1, 7, 1.5, 10**20]))

    def equals(record: Record) -> bool:
        if isinstance(literal, str):
            return literal.encode() in said(place, name, record)
        values = [decoded(one) for one in held(place, name, record)]
        if literal is None:
            return all(one is None for one in values)
        return any(same(one, literal) for one in values)

    is_equal = kind == "="
    return Expression(
        f"{spelled}{kind}{json.dumps(literal)}", lambda record: equals(record) is is_equal
    )


def combined(parts: st.SearchStrategy[Expression]) -> st.SearchStrategy[Expression]:
    two = st.tuples(parts, parts)
    return (
        two.map(
            lambda p: Expression(
                f"({p[0].text}) and ({p[1].text})", lambda r: p[0].means(r) and p[1].means(r)
            )
        )
        | two.map(
            lambda p: Expression(
                f"({p[0].text} or {p[1].text})", lambda r: p[0].means(r) or p[1].means(r)
            )
        )
        | parts.map(lambda p: Expression(f"not ({p.text})", lambda r: not p.means(r)))
    )


expressions = st.recursive(singles(), combined, max_leaves=5)
records = st.lists(
    st.tuples(st.integers(0, 9), contents, contents, headers), min_size=1, max_size=6
)


@given(expressions, st.lists(records, min_size=1, max_size=3), st.sampled_from(list(Codec)))
def test_a_filter_shows_what_a_dumb_reader_would(
    expression: Expression, batches: list[list[NewRecord]], codec: Codec
) -> None:
    """Of any records, in any codec: none is left out because of the bytes that were looked for."""
    data = b""
    for batch in batches:
        built = build_batch(batch, codec=codec)
        built[:8] = len(data and list(shown(data, View(start=0)))).to_bytes(8, "big")
        data += bytes(built)
    everything = list(shown(data, View(start=0)))
    wanted = list(shown(data, View(start=0, wanted=filter_of(expression.text))))
    assert wanted == [one for one in everything if expression.means(one)], expression.text


def shown(data: bytes, view: View) -> list[Record]:
    return [
        Record(one.offset, one.timestamp, one.key, one.value, one.headers)
        for _, some in StoredRecords(data, view)
        for one in some
    ]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "at character 0 the end stands where key, value, header.NAME, offset or timestamp"),
        ("key", "at character 3 the end stands where =, !=, <, <=, >, >= or starts_with"),
        ("key =", "at character 5 the end stands where a string in quotes, a number, true, false"),
        ("key = 'a'", "at character 6 \"'a'\" is not understood"),
        ("key = a", "at character 6 'a' is not understood"),
        ('key == "a"', "at character 5 '=' stands where a string in quotes"),
        ('keys = "a"', "at character 0 'keys = \"a\"' is not understood"),
        ('key = "a" "b"', "at character 10 '\"b\"' stands where and, or, or the end"),
        ('key = "a" and', "at character 13 the end stands where key, value, header.NAME"),
        ('(key = "a"', "at character 10 the end stands where and, or, or )"),
        ('key = "a")', "at character 9 ')' stands where and, or, or the end"),
        ('value/n < "7"', "< at character 8 compares numbers"),
        ("value/n >= true", ">= at character 8 compares numbers"),
        ("key starts_with 7", "at character 16 '7' stands where a string in quotes"),
        ("exists", "at character 6 the end stands where key, value, header.NAME"),
        ('header. = "a"', "stands where the header's name, in quotes if it is not plain, should"),
        ('header. "a" = "a"', "stands where the header's name, in quotes if it is not plain, sh"),
        ('value"x" = 1', "'x' is not a JSON Pointer"),
        ("value/~2 = 1", "is not a JSON Pointer"),
        ('key = "\\x"', "at character 6: JSON is malformed"),
        ("key = 01", "at character 6: JSON is malformed"),
        ("key = 1e999x", "is not understood"),
        ("and", "at character 0 'and' stands where"),
        ('not not not key = "a" or', "at character 24 the end"),
        ("key = " + '"' + "a" * MAX_FILTER_BYTES + '"', f"more than {MAX_FILTER_BYTES} bytes"),
        (" or ".join(["key=1"] * (MAX_TESTS + 1)), f"more than {MAX_TESTS} tests"),
        ("(" * MAX_DEPTH + "key=1" + ")" * MAX_DEPTH, f"more than {MAX_DEPTH} deep"),
        ("not " * MAX_DEPTH + "key=1", f"more than {MAX_DEPTH} deep"),
    ],
)
def test_a_filter_that_cannot_be_read_says_where_and_what_belongs_there(
    text: str, said: str
) -> None:
    """The position counts from 0; nothing is read."""
    with pytest.raises(MalformedRequest) as refused:
        filter_of(text)
    assert said in str(refused.value)
    assert refused.value.facts() == {"parameter": "filter"}


@pytest.mark.parametrize(
    ("text", "is_known"),
    [
        ('header.h = "7"', True),
        ('key = "a"', True),
        ('key starts_with "a"', True),
        ("exists header.h", True),
        ('value/x = 1 and header.h = "7"', True),
        ('header.h = "7" or key = "a"', True),
        ('header.h = "7" or value/x = 1', False),
        ('not header.h = "7"', False),
        ('header.h != "7"', False),
        ("header.h = 7", False),
        ("header.h = null", False),
        ('value = "a"', False),
        ('key starts_with ""', False),
        ("key = null", False),
    ],
)
def test_records_are_passed_over_unread_where_their_bytes_tell(text: str, is_known: bool) -> None:  # noqa: FBT001  # a column
    """A text has one spelling in keys and headers; in JSON it has many."""
    assert filter_of(text).may_want(b"zzz") is not is_known
    assert filter_of(text).may_want(bytes(build_batch([(0, b"a", b"", [("h", b"7")])])))


@pytest.mark.parametrize(
    ("text", "is_wanted"),
    [
        ("exists header.h", True),
        ("exists header.x", False),
        ("exists key and exists value/n and not exists value/x", True),
        ('value/s = "t"', True),
        ('value/n starts_with "7"', False),
        ('value/s starts_with "t"', True),
        ("value/z = null and value/x = null and header.x = null", True),
        ("offset = 0 and timestamp = 0", True),
    ],
)
def test_an_expression_says_what_is_wanted(text: str, is_wanted: bool) -> None:  # noqa: FBT001  # a column
    """Of one record, by its parts."""
    record = Record(0, 0, b"k", b'{"n": 7, "s": "t", "z": null}', [("h", None)])
    assert filter_of(text).wants(record) is is_wanted


def test_a_value_that_only_begins_like_a_json_string_is_its_bytes() -> None:
    """A quotation mark at its beginning makes no JSON."""
    record = Record(0, 0, None, b'"cut off', [])
    assert filter_of(r'value starts_with "\"cut"').wants(record)
    assert not filter_of('value starts_with "cut"').wants(record)
