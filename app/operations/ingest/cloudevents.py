"""CloudEvents over HTTP to records, by the Kafka protocol binding of CloudEvents 1.0.

An event keeps the bytes it was sent with. In binary mode those are its data, and `content-type` is
theirs; in structured mode they are the whole event, and `content-type` is that of the event format.
In both its attributes are the record's headers `ce_…`, and `partitionkey` is its key. The binding
has no batches: each event of one becomes a record in structured mode.

An event that breaks the specification (CloudEvents 1.0.2, 3.1; JSON format, 2 and 3) is refused.
Two exceptions serve senders that exist: version 0.3 is known too, and the extensions of Debezium
have capitals in their names, which become small letters.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import date
from itertools import chain
from typing import Final, TypeAlias
from urllib.parse import unquote_to_bytes

import msgspec
from msgspec import Raw

from app.codecs.json_parts import whole_escapes
from app.errors import MAX_ERRORS_LISTED, MalformedRequest
from engine.errors import InvalidRecord
from engine.records.builder import HeaderList, NewRecord
from engine.types import Buffer

KeyOf: TypeAlias = Callable[[Buffer], bytes | None]

_Fault: TypeAlias = tuple[str, str]
"""An attribute, and what is wrong with it."""

EVENT: Final = b"application/cloudevents+json"
BATCH: Final = b"application/cloudevents-batch+json"
KEY: Final = "partitionkey"

REQUIRED: Final = ("specversion", "id", "source", "type")
VERSIONS: Final = (b"1.0", b"0.3")

MAX_ATTRIBUTES_BYTES: Final = 64 * 1024
"""Bytes of an event in JSON without its data, as the specification wants every transport to take
whole events of that size."""

_PREFIX: Final = b"ce-"
_OF_HEAD: Final = tuple(_PREFIX + name.encode() for name in REQUIRED)
_ATTRIBUTE: Final = re.compile(r"[a-z0-9]+")
_OF_DEBEZIUM: Final = re.compile(r"iodebezium[a-zA-Z0-9]+")
_MEMBERS_OF_DATA: Final = ("data", "data_base64")
_DATA: Final = (*_MEMBERS_OF_DATA, "datacontenttype")
"""Members of an event that are not headers of their own; the type is `content-type`."""
_MISNAMED: Final = "is not a name of small letters and digits, as those of attributes are"
_NULL: Final = b"null"

_ESCAPE: Final = re.compile(rb"\\(.)")
_ABSENT: Final = Raw()
_QUOTE: Final = ord('"')
_MEMBERS: Final = msgspec.json.Decoder(dict[str, Raw])
_TEXT: Final = msgspec.json.Decoder(str)
_FLAGS: Final = frozenset({b"true", b"false"})
_INTEGER: Final = re.compile(rb"-?[0-9]{1,10}")
_INT32: Final = range(-(1 << 31), 1 << 31)
_BASE64: Final = re.compile(rb'"(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?"')
_CONTROL: Final = re.compile("[\x00-\x1f\x7f-\x9f\ufdd0-\ufdef\ufffe\uffff]")

_URI: Final = r"(?:%[0-9A-Fa-f]{2}|[^\s<>\"{}|\\^`%\x00-\x1f\x7f])"
"""A character of a URI; letters that are not ASCII are taken as they are."""
_WORD: Final = r"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
_FORMS: Final[Mapping[str, tuple[re.Pattern[str], str]]] = {
    "source": (re.compile(f"{_URI}+"), "a URI or a part of one"),
    "subject": (re.compile(".+", re.DOTALL), "text"),
    "dataschema": (re.compile(f"[A-Za-z][A-Za-z0-9+.-]*:{_URI}+"), "an absolute URI"),
    "datacontenttype": (re.compile(rf"{_WORD}/{_WORD}\s*(;.*)?"), "a media type"),
    "time": (
        re.compile(
            r"\d{4}-\d\d-\d\d[Tt](?:[01]\d|2[0-3]):[0-5]\d:(?:[0-5]\d|60)(?:\.\d+)?"
            r"(?:[Zz]|[+-](?:[01]\d|2[0-3]):[0-5]\d)",
            re.ASCII,
        ),
        "a time as in RFC 3339",
    ),
}
_TEXTS: Final = frozenset({*REQUIRED, *_FORMS, KEY})
"""Attributes that are text; others may be true, false or an integer."""


class _Data(msgspec.Struct, gc=False):
    """The data of an event in JSON."""

    data: Raw = _ABSENT
    data_base64: Raw = _ABSENT


_OF_EVENT: Final = msgspec.json.Decoder(_Data)


def is_binary(head: Mapping[bytes, bytes]) -> bool:
    """Whether the headers have attributes of an event, complete or not."""
    return any(name in head for name in _OF_HEAD)


def attributes_of_head(head: Mapping[bytes, bytes]) -> dict[str, bytes]:
    """Return the attributes of an event in binary mode.

    Raises MalformedRequest if one is missing or invalid.
    """
    attributes = {
        name[len(_PREFIX) :].decode("latin-1"): _decoded(name, value)
        for name, value in head.items()
        if name.startswith(_PREFIX)
    }
    misnamed = ((name, _MISNAMED) for name in attributes if not _ATTRIBUTE.fullmatch(name))
    for name, reason in chain(misnamed, _faults(attributes)):
        raise MalformedRequest(f"the header ce-{name} {reason}", header=f"ce-{name}")
    return attributes


def headers_of(attributes: Mapping[str, bytes]) -> HeaderList:
    """Return the attributes as headers of a record."""
    return [(f"ce_{name}", value) for name, value in attributes.items() if name not in _DATA]


def records_of(
    events: Sequence[Buffer], headers: HeaderList, key_of: KeyOf, now_ms: int
) -> list[NewRecord]:
    """Return events in JSON as records; raises InvalidRecord that lists the invalid ones.

    `headers` are those of every record; `key_of` finds a key other than `partitionkey`.
    """
    records: list[NewRecord] = []
    faults: list[dict[str, object]] = []
    for index, event in enumerate(events):
        attributes, reasons = _attributes_of(whole_escapes(bytes(event)))
        key = key_of(event)
        if key is None:
            key = attributes.get(KEY)
        records.append((now_ms, key, event, headers + headers_of(attributes)))
        for name, reason in reasons:
            detail = f"{name} {reason}"
            faults.append(
                {"index": index, "field": name, "code": "invalid_record", "detail": detail}
            )
        if len(faults) >= MAX_ERRORS_LISTED:
            break
    if faults:
        raise InvalidRecord(
            "nothing was written: what was sent as CloudEvents is not", faults[:MAX_ERRORS_LISTED]
        )
    return records


def _attributes_of(event: Buffer) -> tuple[dict[str, bytes], list[_Fault]]:
    """Return the attributes of an event in JSON, and what is wrong with them."""
    try:
        data = _OF_EVENT.decode(event)
    except msgspec.ValidationError:
        return {}, [("event", "is not a JSON object")]
    size_bytes = len(event) - len(data.data) - len(data.data_base64)
    if size_bytes > MAX_ATTRIBUTES_BYTES:
        reason = f"has {size_bytes} bytes without its data, more than {MAX_ATTRIBUTES_BYTES}"
        return {}, [("event", reason)]
    attributes: dict[str, bytes] = {}
    faults: list[_Fault] = [*_data_faults(bytes(data.data), bytes(data.data_base64))]
    for member, raw in _MEMBERS.decode(event).items():
        if member in _MEMBERS_OF_DATA:
            continue
        value, name = bytes(raw), member.lower() if _OF_DEBEZIUM.fullmatch(member) else member
        if _ATTRIBUTE.fullmatch(name) is None:
            faults.append((name, _MISNAMED))
        elif value[0] == _QUOTE:
            attributes[name] = _TEXT.decode(raw).encode()
        elif value != _NULL:
            attributes[name] = value
            faults += [(name, reason) for reason in _mistyped(name, value)]
    named = {name for name, _ in faults}
    return attributes, faults + [one for one in _faults(attributes) if one[0] not in named]


def _mistyped(name: str, value: bytes) -> Iterator[str]:
    """Yield what is wrong with a value that is not text, if the attribute cannot have it."""
    if name in _TEXTS:
        yield "is not text in quotes"
    elif value not in _FLAGS and not (_INTEGER.fullmatch(value) and int(value) in _INT32):
        yield "is not text, true, false or an integer of 32 bits"


def _data_faults(data: bytes, data_base64: bytes) -> Iterator[_Fault]:
    if data_base64 not in (b"", _NULL):
        if data:
            yield "data_base64", "stands beside data, and an event has one of them"
        if _BASE64.fullmatch(data_base64) is None:
            yield "data_base64", "is not base64"


def _faults(attributes: Mapping[str, bytes]) -> Iterator[_Fault]:
    """Yield the name of each attribute that is missing or invalid, and why."""
    for name in REQUIRED:
        if not attributes.get(name):
            yield name, "is missing, and an event needs it"
    version = attributes.get("specversion")
    if version and version not in VERSIONS:
        yield "specversion", f"is {version.decode()!r}; 1.0 and 0.3 are known here"
    for name, value in attributes.items():
        text = value.decode()
        if name in _FORMS and not (name in REQUIRED and not text):
            form, what = _FORMS[name]
            is_day = name != "time" or _is_day(text[:10])
            if form.fullmatch(text) is None or not is_day:
                yield name, f"is not {what}"
                continue
        if _CONTROL.search(text):
            yield name, "has a control character"


def _is_day(text: str) -> bool:
    try:
        date.fromisoformat(text)
    except ValueError:
        return False
    return True


def _decoded(name: bytes, value: bytes) -> bytes:
    """Return the text of a header: without quotes, and with its percent-encoding decoded."""
    if len(value) > 1 and value[0] == _QUOTE == value[-1]:
        value = _ESCAPE.sub(rb"\1", value[1:-1])
    value = unquote_to_bytes(value)
    try:
        value.decode()
    except UnicodeDecodeError:
        shown = name.decode("latin-1")
        raise MalformedRequest(f"the header {shown} is not UTF-8", header=shown) from None
    return value
