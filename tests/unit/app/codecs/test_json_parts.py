"""Parts of JSON bodies: each with its bytes, and never more than a request may have."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.codecs.json_parts import (
    _values_one_by_one,
    count_of_lines,
    elements_of,
    ensure_record_count,
    json_lines,
    json_values,
    text_lines,
    whole_escapes,
)
from app.errors import MalformedRequest
from engine.errors import InvalidRecord, TooLarge


@pytest.mark.parametrize("max_records", [4, 1_000])
def test_elements_are_counted_and_cut_alike(max_records: int) -> None:
    """With more commas than elements, they are found one by one: by msgspec's own message."""
    body = b' [1 ,{"a":[1,2],"b":"],\\"" } , "x,y"\n,[[],[3]] ] '
    wanted = [b"1", b'{"a":[1,2],"b":"],\\"" }', b'"x,y"', b"[[],[3]]"]
    assert [bytes(one) for one in elements_of(body, max_records=max_records)] == wanted


def test_too_many_elements_are_refused_before_they_are_made() -> None:
    """Sixteen MiB of `[1,1,…` would take forty times their size."""
    with pytest.raises(TooLarge):
        elements_of(b"[" + b"1," * 1_000_000 + b"1]", max_records=10)
    with pytest.raises(InvalidRecord):
        elements_of(b'{"a":1,"b":2}', max_records=1)


@pytest.mark.parametrize(
    ("body", "line"),
    [(b"1\n[\n", 2), (b"1 2\n", 1), (b'{"a":\n1}\n', 1), (b"1\n\n" + b"[" * 100_000, 3)],
)
def test_a_line_that_is_not_one_value_is_named(body: bytes, line: int) -> None:
    """The decoder alone would take several values in a line, and values of several lines."""
    with pytest.raises(MalformedRequest, match=f"line {line}"):
        json_lines(body, max_records=10)


values = st.recursive(
    st.sampled_from([b"1", b"-2.5", b"null", b'"a"', '"é}"'.encode(), rb'"\"[\\"', rb'"\ud800"']),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3).map(lambda each: b"[%b]" % b" ,".join(each)),
        inner.map(lambda each: b'{"a" :%b}' % each),
    ),
    max_leaves=5,
)
separators = st.sampled_from([b" ", b"\n", b"\r\n\t", b"\n\n"])


@given(
    st.lists(st.tuples(values, separators), max_size=8),
    separators,
    st.sampled_from(["close", "apart"]),
)
def test_values_are_cut_wherever_they_end(
    parts: list[tuple[bytes, bytes]], before: bytes, where: str
) -> None:
    """With blanks or nothing between them; two of them that would be one are kept apart."""
    pieces = [before]
    for value, blank in parts:
        can_touch = where == "close" and value[:1] in b'{["' and value[-1:] in b'}]"'
        pieces += [value, b"" if can_touch else blank]
    body = b"".join(pieces)
    expected = [value for value, _ in parts]
    assert [bytes(one) for one in json_values(body, max_records=8)] == expected
    one_by_one = _values_one_by_one(whole_escapes(body), 8, body)
    assert [bytes(one) for one in one_by_one] == expected
    if len(expected) > 1:
        with pytest.raises(TooLarge):
            json_values(body, max_records=len(expected) - 1)


@pytest.mark.parametrize("body", [b'{"a":1}x', b"1 [", b'{"a":1},{"a":2}', b'"\xff"', b"[" * 9999])
def test_what_is_no_row_of_values_is_refused(body: bytes) -> None:
    """A comma, a rest, bytes that are not UTF-8."""
    with pytest.raises(MalformedRequest):
        json_values(body, max_records=9)
    with pytest.raises(MalformedRequest):
        json_values(rb'"\ud800" ' + body, max_records=9)


def test_lines_that_are_not_utf_8_are_refused() -> None:
    """The decoder does not look at the bytes of a text that it does not decode."""
    with pytest.raises(MalformedRequest, match="UTF-8"):
        json_lines(b'1\n"\xff"', max_records=2)


def test_lines_are_counted_before_they_are_made() -> None:
    """Of text and of NDJSON; also where the lines are empty."""
    for lines in (json_lines, text_lines):
        with pytest.raises(TooLarge):
            lines(b"\n" * 11, max_records=10)
    assert json_lines(b"\n" * 10, max_records=10) == []
    assert text_lines(b"\n" * 10, max_records=10) == [b""] * 10


@given(st.binary(max_size=20).map(lambda body: bytes(b"\n\r a"[byte % 4] for byte in body)))
def test_lines_end_with_a_line_feed_and_nothing_else(body: bytes) -> None:
    """The last one may have none, and an empty text is one line."""
    assert count_of_lines(body) == body.count(b"\n") + (not body.endswith(b"\n"))


def test_a_large_body_has_the_same_lines() -> None:
    """Above the size up to which bodies are decoded before their values are counted."""
    line = b'"%b"' % (b"x" * 1_000_000)
    body = b"\n".join([line] * 3)
    assert [bytes(one) for one in json_lines(body, max_records=3)] == [line] * 3


@pytest.mark.parametrize("record", [b"{}", b'{"value":1,"key":"a"}', b'{"a":{},"b":[{}]}'])
def test_the_records_of_an_object_are_counted_alike(record: bytes) -> None:
    """Few bytes for each brace, or many; braces inside a record do not count."""
    body = b'{"more":null,"records":[%b]}' % b",".join([record] * 5)
    ensure_record_count(body, max_records=5)
    with pytest.raises(TooLarge) as raised:
        ensure_record_count(body, max_records=4)
    assert raised.value.facts()["limit"] == "max_records_per_request"
