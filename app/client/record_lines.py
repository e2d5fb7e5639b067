"""Input lines: a record as the service accepts it, or a document or line that becomes its value.

Bytes are passed on unchanged: a value is stored exactly as typed, with its spacing and numbers.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import NamedTuple

import msgspec

from app.client.failures import BadInput


class RecordLine(NamedTuple):
    """A record in JSON without its line end, and the key's bytes: they choose the partition."""

    line: bytes
    key: bytes | None
    number: int | None = None
    """Line number, from 1."""


class _Record(msgspec.Struct):
    """The fields that decide the partition; the service checks everything else."""

    key: msgspec.Raw = msgspec.Raw(b"null")
    key_encoding: str | None = None


_record_decoder = msgspec.json.Decoder(_Record)
_text_decoder = msgspec.json.Decoder(str)
_document_decoder = msgspec.json.Decoder(dict[str, msgspec.Raw])
_any_decoder = msgspec.json.Decoder()


@dataclass(frozen=True, slots=True)
class Fields:
    """The fields of a document that become a record's key and event time; None leaves them out."""

    key: str | None = None
    timestamp: str | None = None


def read_records(lines: Iterable[bytes]) -> Iterator[RecordLine]:
    """Yield the records of lines in the service's own form; empty lines are ignored."""
    return _each(lines, _record)


def read_documents(lines: Iterable[bytes], fields: Fields) -> Iterator[RecordLine]:
    """Yield a record for each line, with the line as its value; empty lines are ignored."""
    return _each(lines, lambda line, number: _document(line, number, fields))


def read_raw(lines: Iterable[bytes]) -> Iterator[RecordLine]:
    """Yield a record for each line, also an empty one; its value is the line without LF or CRLF."""
    for number, line in enumerate(lines, start=1):
        value = line.removesuffix(b"\n").removesuffix(b"\r")
        yield RecordLine(_raw_record_line(value), None, number)


def _raw_record_line(value: bytes) -> bytes:
    try:
        text, encoding = value.decode(), b"utf8"
    except UnicodeDecodeError:
        text, encoding = base64.b64encode(value).decode(), b"base64"
    return b'{"value":%b,"value_encoding":"%b"}' % (msgspec.json.encode(text), encoding)


def record_line(value: bytes, *, key: str | None = None, timestamp_ms: int | None = None) -> bytes:
    """Return one record in the service's form; `value` is JSON already and is stored as it is."""
    parts = [b'{"value":', value]
    if key is not None:
        parts += (b',"key":', msgspec.json.encode(key))
    if timestamp_ms is not None:
        parts += (b',"timestamp":', b"%d" % timestamp_ms)
    parts.append(b"}")
    return b"".join(parts)


def _each(
    lines: Iterable[bytes], parse: Callable[[bytes, int], RecordLine]
) -> Iterator[RecordLine]:
    for number, line in enumerate(lines, start=1):
        stripped = line.strip()
        if not stripped:
            continue
        try:
            yield parse(stripped, number)
        except (msgspec.MsgspecError, ValueError) as error:
            raise BadInput(number, str(error)) from error


def _record(line: bytes, number: int) -> RecordLine:
    record = _record_decoder.decode(line)
    return RecordLine(line, _key_bytes(bytes(record.key), record.key_encoding), number)


def _key_bytes(raw: bytes, encoding: str | None) -> bytes | None:
    """Return the key as the service will store it, so that both agree on the partition."""
    if raw == b"null":
        return None
    if encoding == "json" or (encoding is None and not raw.startswith(b'"')):
        return raw
    text = _text_decoder.decode(raw)
    if encoding in (None, "utf8"):
        return text.encode()
    if encoding == "base64":
        try:
            return base64.b64decode(text, validate=True)
        except binascii.Error as error:
            raise ValueError(f"the key is not base64: {error}") from error
    raise ValueError(f"key_encoding is json, utf8 or base64, not {encoding!r}")


def _document(line: bytes, number: int, fields: Fields) -> RecordLine:
    if fields.key is None and fields.timestamp is None:
        _any_decoder.decode(line)
        return RecordLine(record_line(line), None, number)
    document = _document_decoder.decode(line)
    key = _key_of(document, fields.key)
    timestamp_ms = _timestamp_of(document, fields.timestamp)
    return RecordLine(
        record_line(line, key=key, timestamp_ms=timestamp_ms),
        None if key is None else key.encode(),
        number,
    )


def _key_of(document: dict[str, msgspec.Raw], field: str | None) -> str | None:
    """Return the field as text: a string as it is, anything else as JSON, null as no key."""
    if field is None:
        return None
    value = _field(document, field)
    if isinstance(value, str):
        return value
    return None if value is None else bytes(document[field]).decode()


def iso_ms(text: str) -> int:
    """Return an ISO 8601 time in ms, in UTC if it has no offset; raises ValueError."""
    moment = datetime.fromisoformat(text)
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return round(moment.timestamp() * 1000)


def _timestamp_of(document: dict[str, msgspec.Raw], field: str | None) -> int | None:
    """Return the field in ms since the epoch; it is that already, or ISO 8601."""
    if field is None:
        return None
    value = _field(document, field)
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if isinstance(value, str):
        return iso_ms(value)
    raise ValueError(f"field {field!r} is neither ms since the epoch nor an ISO 8601 time")


def _field(document: dict[str, msgspec.Raw], field: str) -> object:
    if field not in document:
        raise ValueError(f"the document has no field {field!r}")
    return _any_decoder.decode(document[field])
