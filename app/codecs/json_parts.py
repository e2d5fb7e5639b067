"""JSON bodies in parts: the elements of an array, the lines of NDJSON, each with its bytes as sent.

Nothing is decoded into objects, and no more parts are made than a request may have records: sixteen
MiB of `[1,1,…` would otherwise take forty times their size.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from io import BytesIO
from typing import Final, TypeVar

import msgspec
from msgspec import Raw

from app.errors import HALF_A_PAIR, MalformedRequest, malformed_json
from app.http.answers import Body
from engine.errors import InvalidRecord, TooLarge
from engine.types import Buffer

_ESCAPES: Final = (
    (b"\xc2\x85", rb"\u0085"),
    (b"\xe2\x80\xa8", rb"\u2028"),
    (b"\xe2\x80\xa9", rb"\u2029"),
)


def on_one_line(text: bytes) -> bytes:
    """Return JSON text that no reader splits within a string; line feeds are not looked for."""
    if text.isascii():
        return text
    for end, escape in _ESCAPES:
        text = text.replace(end, escape)
    return text


def growth_bytes(text: bytes) -> int:
    """Return by how much `on_one_line` makes a text longer."""
    if text.isascii():
        return 0
    return sum(text.count(end) * (len(escape) - len(end)) for end, escape in _ESCAPES)


T = TypeVar("T")

_BOM: Final = b"\xef\xbb\xbf"
_ONE: Final = msgspec.json.Decoder(Raw)
_ELEMENTS: Final = msgspec.json.Decoder(list[Raw])

PIECE_BYTES: Final = 2 * 1024 * 1024
"""Bodies up to this size may be decoded before their values are counted: at worst they take forty
times their size for a moment."""

_LONG_LINE_BYTES: Final = 64 * 1024

_END: Final = ord("]")
_BLANKS: Final = b" \t\r\n"
_TRAILING: Final = re.compile(r"trailing characters \(byte ([0-9]+)\)")
"""How msgspec says what follows a value: the number of bytes with the first that is wrong."""


class Array(msgspec.Struct, array_like=True, gc=False):
    """Any array; nothing is made of its elements."""


class _Object(msgspec.Struct, gc=False):
    """Any object; nothing is made of its members."""


class _Objects(msgspec.Struct, gc=False):
    records: list[_Object]


class _OneArray(msgspec.Struct, gc=False):
    records: Array


class _Records(msgspec.Struct, gc=False):
    records: Raw


_ARRAY: Final = msgspec.json.Decoder(Array)
_OBJECTS: Final = msgspec.json.Decoder(_Objects)
_ONE_ARRAY: Final = msgspec.json.Decoder(_OneArray)
_RECORDS: Final = msgspec.json.Decoder(_Records)

_BYTES_OF_AN_OBJECT: Final = 8
"""In a body with more for each brace, one object a record takes no more memory than three times
the body."""


def ensure_count(count: int, *, max_records: int) -> None:
    """Raise TooLarge if a request has too many records."""
    if count > max_records:
        raise TooLarge(
            f"{count} records exceed max_records_per_request ({max_records})",
            limit="max_records_per_request",
            limit_bytes=max_records,
            actual_bytes=count,
        )


def ensure_record_count(body: Body, *, max_records: int) -> None:
    """Raise TooLarge if `records` of a JSON object has too many elements, before they take memory.

    The number of braces decides for most bodies. Raises msgspec's errors if the others are not such
    an object.
    """
    braces = body.count(b"{")
    if braces <= max_records:
        return
    if len(body) >= _BYTES_OF_AN_OBJECT * braces:
        ensure_count(len(_OBJECTS.decode(body).records), max_records=max_records)
    else:
        ensure_count(len(record_elements(body, max_records=max_records)), max_records=max_records)


def record_elements(body: Body, *, max_records: int) -> Sequence[Buffer]:
    """Return the bytes of each element of `records` of a JSON object.

    Raises TooLarge before there are too many, and msgspec's errors if it is not such an object.
    """
    _ONE_ARRAY.decode(body)
    return elements_of(bytes(_RECORDS.decode(body).records), max_records=max_records)


def without_bom(body: Body) -> Body:
    """Return JSON without a byte-order mark."""
    return body[len(_BOM) :] if body.startswith(_BOM) else body  # noqa: FURB188  # which would copy


def whole_escapes(body: Body) -> Body:
    """Return JSON with U+FFFD for each escape that is half of a surrogate pair.

    RFC 8259 allows such text and JavaScript writes it; msgspec refuses it. Every byte stays at its
    position. The body itself is returned if it has none.
    """
    if b"\\u" not in body:
        return body
    content = bytes(body)
    whole = bytearray(content)
    for half in HALF_A_PAIR.finditer(content.replace(rb"\\", b"  ")):
        whole[half.start() : half.end()] = rb"\ufffd"
    return body if whole == content else whole


def ensure_json_text(body: Body) -> Body:
    """Raise MalformedRequest unless the body is JSON that can be stored as it is.

    Return it with `whole_escapes`, for those who decode it.
    """
    try:
        ensure_json(body)
    except MalformedRequest:
        whole = whole_escapes(body)
        if whole is body:
            raise
        ensure_json(whole)
        return whole
    return body


def ensure_json(body: Body) -> None:
    """Raise MalformedRequest unless the body is one JSON value in UTF-8."""
    try:
        str(body, "utf-8")  # msgspec checks no bytes of what it does not decode
        _ONE.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise malformed_json(body, error) from None
    except RecursionError:
        raise _too_deep() from None


def elements_of(body: Body, *, max_records: int) -> Sequence[Buffer]:
    """Return the elements of an array.

    Raises MalformedRequest if the body is not JSON, InvalidRecord if it is not an array, TooLarge
    if it has too many elements.
    """
    whole = ensure_json_text(body)
    try:
        if whole is body and body.count(b",") < max_records:
            return _ELEMENTS.decode(body)
        return _counted(whole, max_records, body)
    except msgspec.ValidationError:
        raise InvalidRecord(
            "split=array takes a JSON array, and the body is another value"
        ) from None


def json_lines(body: Body, *, max_records: int) -> Sequence[Buffer]:
    """Return the values of NDJSON, one a line; blank lines are none.

    Raises MalformedRequest for a line that is not one JSON value, TooLarge for too many lines.
    """
    count = count_of_lines(body)
    ensure_count(count, max_records=max_records)
    try:
        str(body, "utf-8")
    except UnicodeDecodeError as error:
        raise malformed_json(body, error) from None
    if len(body) <= PIECE_BYTES:
        with suppress(msgspec.DecodeError, RecursionError):
            values = _ONE.decode_lines(body)
            # It would take several values in a line, and values of several lines.
            if len(values) == count and body.startswith(b"\n".join(values)):
                return values
    lines: Sequence[Body] = body.split(b"\n")
    return [_line(line, number) for number, line in enumerate(lines, 1) if line.strip()]


def json_values(body: Body, *, max_records: int) -> Sequence[Buffer]:
    """Return the JSON values of a body, one after the other, with blanks between them or nothing.

    Raises MalformedRequest for anything else, TooLarge for too many.
    """
    whole = whole_escapes(body)
    try:
        str(body, "utf-8")
        if whole is body and len(body) <= PIECE_BYTES:
            values: Sequence[Buffer] = _ONE.decode_lines(body)
        else:
            values = _values_one_by_one(whole, max_records, body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise malformed_json(body, error) from None
    ensure_count(len(values), max_records=max_records)
    return values


def _values_one_by_one(body: Body, max_records: int, sent: Body) -> Sequence[Buffer]:
    """Find the values in `body`, and cut them from `sent`, as `_counted` does."""
    view = memoryview(body)
    values: list[Buffer] = []
    start, end = 0, len(body.rstrip(_BLANKS))
    while start < end:
        ensure_count(len(values) + 1, max_records=max_records)
        after = start + _end_of_first(view[start:end])
        values.append(bytes(sent[start:after]).strip(_BLANKS))
        start = after
    return values


def text_lines(body: Body, *, max_records: int) -> Sequence[Buffer]:
    """Return the lines of a text without their ends, LF or CR LF; empty lines are lines.

    Raises TooLarge for too many.
    """
    ensure_count(count_of_lines(body), max_records=max_records)
    lines = body.replace(b"\r\n", b"\n").split(b"\n")
    return lines if lines[-1] else lines[:-1]


def _counted(body: Body, max_records: int, sent: Body) -> Sequence[Buffer]:
    """Count the elements one by one: commas inside of elements make a comma count too high.

    They are found in `body` and cut from `sent`, whose bytes have the same positions.
    """
    _ARRAY.decode(body)
    view = memoryview(body)
    elements: list[Buffer] = []
    start = end = body.index(b"[")
    while body[end] != _END:
        ensure_count(len(elements) + 1, max_records=max_records)
        start = end + 1
        end = start + _end_of_first(view[start:])
        elements.append(bytes(sent[start:end]).strip(_BLANKS))
    return elements


def _end_of_first(view: memoryview) -> int:
    """Return what follows the first of several values: its position, after blanks.

    Raises msgspec.DecodeError if the first one is not valid.
    """
    try:
        _ONE.decode(view)
    except msgspec.DecodeError as error:
        trailing = _TRAILING.search(str(error))
        if trailing is None:
            raise
        return int(trailing[1]) - 1
    return len(view)


def decoded_lines(decoder: msgspec.json.Decoder[T], body: Body, *, at_most: int) -> Sequence[T]:
    """Return the values of NDJSON; of a large body, whole pieces until there are more than that.

    Raises what the decoder raises. It takes several values in a line, and values of several lines.
    """
    if len(body) <= PIECE_BYTES:
        return decoder.decode_lines(body)
    values: list[T] = []
    view = memoryview(body)
    start = 0
    while start < len(body) and len(values) <= at_most:
        near = start + PIECE_BYTES
        end = body.find(b"\n", near) + 1 or len(body)
        if end - near > _LONG_LINE_BYTES:  # which might have very many values
            _ONE.decode(view[body.rfind(b"\n", start, near) + 1 : end])
        values += decoder.decode_lines(view[start:end])
        start = end
    return values


def count_of_lines(body: Body) -> int:
    """Return how many lines a text has."""
    if 0 < len(body) <= PIECE_BYTES:
        return len(BytesIO(body).readlines())  # `count` looks at one byte after the other
    return body.count(b"\n") + (not body.endswith(b"\n"))


def _line(line: Body, number: int) -> Buffer:
    """Return the value of a line, or refuse it by its number."""
    try:
        return _ONE.decode(line)
    except msgspec.DecodeError as error:
        whole = whole_escapes(line)
        if whole is not line:
            with suppress(msgspec.DecodeError):
                _ONE.decode(whole)
                return bytes(line).strip(_BLANKS)
        raise MalformedRequest(
            f"line {number}: {malformed_json(line, error)}", line=number
        ) from None
    except RecursionError:
        raise MalformedRequest(f"line {number} is nested too deeply", line=number) from None


def _too_deep() -> MalformedRequest:
    return MalformedRequest("the body is nested too deeply")
