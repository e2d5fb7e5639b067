"""Stored batches to JSON: many records at a time, fields in an encoding that can show them.

A record is one struct, and msgspec writes a chunk of them at once. Whether values are JSON is
checked once for a chunk; each is checked alone only if one is not, or is null.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import ClassVar, Final, NamedTuple, TypeAlias

import msgspec
from msgspec import Raw

from app.codecs.json_parts import count_of_lines, growth_bytes, on_one_line
from app.codecs.stored import (
    MOST_GROWTH,
    RECORD_BYTES,
    RECORD_HEADER_BYTES,
    StoredRecords,
    View,
)
from engine.records.batch import BatchView
from engine.records.compiled import CompiledRecord
from engine.records.header import BatchHeader, TimestampType
from engine.records.parts import Records
from engine.records.record import Headers, Record
from engine.types import Buffer

Content: TypeAlias = Raw | str | bytes | None
"""A field as msgspec writes it: JSON as it is, text, bytes as base64."""

Shown: TypeAlias = tuple[Content, str]
"""A field, and the name of the encoding it is shown in."""

ShownAll: TypeAlias = tuple[Sequence[Content], Iterable[str]]

_RAW: Final = msgspec.json.Decoder(Raw)
_RAWS: Final = msgspec.json.Decoder(list[Raw])
_ENCODER: Final = msgspec.json.Encoder()
_COMMA: Final = ord(",")
_BRACKET: Final = ord("[")
_BLANKS: Final = bytes.maketrans(b"\r\n", b"  ")
_NOT_PLAIN: Final = frozenset(b"n \t\r\n")
_NO_HEADERS: Final[list[_HeaderOut]] = []
_NULL_BYTES: Final = len(b"null")
_EMPTY_BYTES: Final = len(b'""') + _NULL_BYTES
_ESCAPED_SHORT: Final = b'"\\\b\t\n\f\r'
_ESCAPED_LONG: Final = bytes(set(range(0x20)) - set(_ESCAPED_SHORT))

SPARE_BYTES: Final = 1024 * 1024
"""Below this size records are rendered first and measured afterwards."""

WIDEST_BYTE: Final = 6
"""The largest factor from stored bytes to JSON: escapes."""

assert MOST_GROWTH > WIDEST_BYTE, "no part grows more than by headers"


class _HeaderOut(msgspec.Struct, gc=False):
    key: str
    value: Content
    encoding: str


class _RecordOut(msgspec.Struct, gc=False):
    """The members of a record, in the order in which they are written; `RecordOut` of `schemas`."""

    offset: int | str
    timestamp: int
    timestamp_type: str
    key: Content
    key_encoding: str
    value: Content
    value_encoding: str
    headers: list[_HeaderOut]
    leader_epoch: int


@dataclass(frozen=True, slots=True)
class Rendered:
    """Rendered records, and the next offset if not all fit."""

    text: bytearray
    """A JSON array of records, or one record per line. The caller may extend it, so that megabytes
    are written once."""
    count: int
    next_offset: int | None
    """None if everything was rendered: then the read's own end is next."""
    stopped_by: str
    """The bound of the view that ended it, if not everything was rendered."""


def render_records(data: Buffer, view: View) -> Rendered:
    """Return the records of whole batches that the view wants.

    Text and frame never exceed `max_answer_bytes`, except for a single record. Raises as
    `StoredRecords`, and RecordTooLarge.
    """
    stored = StoredRecords(data, view)
    renderer = _LinesRenderer(view) if view.is_ndjson else _ArrayRenderer(view)
    room_bytes = view.max_answer_bytes - view.frame_bytes - renderer.frame_bytes
    for batch in stored.batches():
        texts, key = view.texts, None
        if texts is not None and stored.wants_all_of(batch.header):
            key = texts.key_of(
                batch, view.encoding, as_text=view.offsets_as_text, is_ndjson=view.is_ndjson
            )
            text = texts.rendered.get(key)
            if text is not None and renderer.size_bytes + len(text) <= room_bytes:
                renderer.add_text(text)
                stored.take_all(batch.header)
                continue
        began = renderer.size_bytes
        _render(stored, batch, renderer, room_bytes)
        if texts is None or key is None or stored.stopped_at is not None:
            continue
        if texts.rendered.is_wanted(key, renderer.size_bytes - began):
            texts.rendered.put(key, renderer.text_from(began))
    return Rendered(renderer.close(), stored.count, stored.stopped_at, stored.stopped_by)


def _render(stored: StoredRecords, batch: BatchView, renderer: _Renderer, room_bytes: int) -> None:
    """Write the wanted records of a batch, as far as there is room."""
    header = batch.header
    for records in stored.records_of(batch):
        size_before = renderer.size_bytes
        if _is_small(records, stored.part_bytes, max(room_bytes - size_before, SPARE_BYTES)):
            renderer.add(header, records)
            if renderer.size_bytes <= room_bytes:
                continue
            renderer.take_back(size_before)
        for index, record in enumerate(records):
            size_bytes = renderer.measure(header, record)
            answer_bytes = renderer.frame_bytes + renderer.size_bytes
            if not stored.has_room(record, size_bytes, answer_bytes, len(records) - index):
                break
            renderer.add(header, [record])


def _is_small(records: Records, part_bytes: int, room_bytes: int) -> bool:
    """Whether the records certainly fit, whatever they contain.

    Their fields are examined only if their part could hold more.
    """
    least_room = len(records) * RECORD_BYTES
    if least_room + part_bytes * MOST_GROWTH <= room_bytes:
        return True
    for record in records:
        least_room += WIDEST_BYTE * (len(record.key or b"") + len(record.value or b""))
        for name, value in record.headers:
            least_room += RECORD_HEADER_BYTES + WIDEST_BYTE * (len(name) + len(value or b""))
    return least_room <= room_bytes


class _Renderer(ABC):
    """Renders the records of batch after batch as the view wants them."""

    frame_bytes: ClassVar[int]
    """Bytes around all records."""
    is_of_lines: ClassVar[bool] = False
    """Whether a record is a line, in which what lenient readers take for its end is escaped."""

    def __init__(self, view: View) -> None:
        self.text = bytearray()
        self._view = view
        self._keys = _PREFERRED[view.encoding or "utf8"]
        self._values = _PREFERRED[view.encoding or "json"]

    @property
    @abstractmethod
    def size_bytes(self) -> int:
        """Written bytes: each record and its separator."""

    @abstractmethod
    def add(self, header: BatchHeader, records: Records) -> None:
        """Write these records of one batch."""

    @abstractmethod
    def add_text(self, text: bytes) -> None:
        """Write what `text_from` has returned, of this renderer or of another one."""

    @abstractmethod
    def text_from(self, size_bytes: int) -> bytes:
        """Return everything that was written after so many bytes; its size is what it added."""

    @abstractmethod
    def take_back(self, size_bytes: int) -> None:
        """Truncate to this many bytes."""

    @abstractmethod
    def close(self) -> bytearray:
        """Return everything."""

    def measure(self, header: BatchHeader, record: CompiledRecord | Record) -> int:
        """Return the rendered size of a record without rendering it.

        For one that cannot be shown, the size of its fields: a lower bound.
        """
        raw_bytes = len(record.key or b"") + len(record.value or b"")
        if raw_bytes > self._view.max_record_bytes:
            return raw_bytes
        [shown] = self._shown(header, [record])
        fields = [(shown.key, record.key), (shown.value, record.value)]
        for one, (name, value) in zip(shown.headers, record.headers, strict=True):
            fields += [(name, name.encode()), (one.value, value)]
        size_bytes = sum(_field_bytes(*field) for field in fields)
        if self.is_of_lines:
            size_bytes += sum(
                growth_bytes(stored)
                for content, stored in fields
                if stored is not None and not isinstance(content, bytes)
            )
        for one in shown.headers:
            size_bytes += len(_ENCODER.encode(_HeaderOut("", None, one.encoding))) - _EMPTY_BYTES
        size_bytes += max(0, len(shown.headers) - 1)  # commas
        shown.key = shown.value = None
        shown.headers = _NO_HEADERS
        return size_bytes + len(_ENCODER.encode(shown)) - 2 * _NULL_BYTES + 1  # and the separators

    def _shown(self, header: BatchHeader, records: Records) -> list[_RecordOut]:
        appended = header.timestamp_type is TimestampType.LOG_APPEND_TIME
        timestamp_type = "append" if appended else "create"
        leader_epoch = header.leader_epoch
        as_text = self._view.offsets_as_text
        return [
            _RecordOut(
                str(record.offset) if as_text else record.offset,
                record.timestamp,
                timestamp_type,
                key,
                key_encoding,
                value,
                value_encoding,
                self._headers(record.headers) if record.headers else _NO_HEADERS,
                leader_epoch,
            )
            for record, key, key_encoding, value, value_encoding in zip(
                records,
                *self._keys.show_all([record.key for record in records]),
                *self._values.show_all([record.value for record in records]),
                strict=False,  # encodings repeat
            )
        ]

    def _headers(self, headers: Headers) -> list[_HeaderOut]:
        return [_HeaderOut(name, *self._keys.show(value)) for name, value in headers]


class _ArrayRenderer(_Renderer):
    """Writes one JSON array, a chunk of records at a time, into one buffer."""

    frame_bytes = 1

    @property
    def size_bytes(self) -> int:
        return max(0, len(self.text) - 1)  # a comma or bracket a record, and one more

    def add(self, header: BatchHeader, records: Records) -> None:
        # Each chunk is an array: its first bracket replaces the last one of the chunk before, and
        # then makes room for a comma.
        text = self.text
        start = max(0, len(text) - 1)
        _ENCODER.encode_into(self._shown(header, records), text, start)
        if start:
            text[start] = _COMMA

    def add_text(self, text: bytes) -> None:
        start = max(0, len(self.text) - 1)
        self.text[start:] = text
        self.text[start] = _COMMA if start else _BRACKET
        self.text += b"]"

    def text_from(self, size_bytes: int) -> bytes:
        return bytes(memoryview(self.text)[size_bytes:-1])

    def take_back(self, size_bytes: int) -> None:
        del self.text[size_bytes:]
        if size_bytes:
            self.text += b"]"

    def close(self) -> bytearray:
        return self.text or bytearray(b"[]")


class _LinesRenderer(_Renderer):
    """Writes one record per line; a line break inside stored JSON becomes a space.

    What lenient readers take for one is escaped.
    """

    frame_bytes = 0
    is_of_lines = True

    @property
    def size_bytes(self) -> int:
        return len(self.text)

    def add(self, header: BatchHeader, records: Records) -> None:
        shown = self._shown(header, records)
        lines = _ENCODER.encode_lines(shown)
        if count_of_lines(lines) > len(shown) or b"\r" in lines:
            texts = [_ENCODER.encode(one).translate(_BLANKS) for one in shown]
            lines = b"".join([b"%b\n" % text for text in texts])
        self.text += on_one_line(lines)

    def add_text(self, text: bytes) -> None:
        self.text += text

    def text_from(self, size_bytes: int) -> bytes:
        return bytes(memoryview(self.text)[size_bytes:])

    def take_back(self, size_bytes: int) -> None:
        del self.text[size_bytes:]

    def close(self) -> bytearray:
        return self.text


def _field_bytes(shown: Content, stored: bytes | None) -> int:
    """Return the rendered size of a stored field."""
    if stored is None:
        return _NULL_BYTES
    if isinstance(shown, str):
        return _string_bytes(stored)
    return len(stored) if isinstance(shown, Raw) else (len(stored) + 2) // 3 * 4 + 2  # base64


def _string_bytes(text: bytes) -> int:
    """Return the size of UTF-8 as a JSON string; escaped characters take 2 or 6 bytes."""
    short = len(text) - len(text.translate(None, _ESCAPED_SHORT))
    long = len(text) - len(text.translate(None, _ESCAPED_LONG))
    return len(text) + 2 + short + (WIDEST_BYTE - 1) * long


def _as_json(content: bytes | None) -> Shown:
    if content is None:
        return None, "json"
    try:
        _RAW.decode(content)
        if not content.isascii():
            content.decode()  # msgspec passes strings on unread
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return _as_utf8(content)
    if content[0] in _NOT_PLAIN and content.strip() == b"null":
        return _as_utf8(content)  # these four letters are a value; JSON null means no value
    return Raw(content), "json"


def _all_as_json(contents: Sequence[bytes | None]) -> ShownAll:
    """Check at once whether all are JSON: in brackets they must form a list of exactly them.

    Contents that are not JSON might form a list together, such as `[1` and `2]`; then an element's
    length differs from the stored one.
    """
    try:
        joined = b"[%b]" % b",".join(contents)  # type: ignore[arg-type]  # a null is a TypeError
        raws = _RAWS.decode(joined)
        if not joined.isascii():
            joined.decode()
    except (TypeError, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return _each(_as_json, contents)
    if list(map(len, raws)) != list(map(len, contents)) or b"null" in contents:  # type: ignore[arg-type]  # as above
        return _each(_as_json, contents)
    return raws, repeat("json")


def _as_utf8(content: bytes | None) -> Shown:
    if content is None:
        return None, "utf8"
    try:
        return content.decode(), "utf8"
    except UnicodeDecodeError:
        return _as_base64(content)


def _all_as_utf8(contents: Sequence[bytes | None]) -> ShownAll:
    try:
        shown = [None if content is None else content.decode() for content in contents]
    except UnicodeDecodeError:
        return _each(_as_utf8, contents)
    return shown, repeat("utf8")


def _as_base64(content: bytes | None) -> Shown:
    return content, "base64"


def _all_as_base64(contents: Sequence[bytes | None]) -> ShownAll:
    return contents, repeat("base64")


def _each(show: Callable[[bytes | None], Shown], contents: Sequence[bytes | None]) -> ShownAll:
    shown, encodings = zip(*map(show, contents), strict=True)
    return shown, encodings


class _Preference(NamedTuple):
    """How to show one field, and those of many records."""

    show: Callable[[bytes | None], Shown]
    show_all: Callable[[Sequence[bytes | None]], ShownAll]


_PREFERRED: Final[Mapping[str, _Preference]] = {
    "json": _Preference(_as_json, _all_as_json),
    "utf8": _Preference(_as_utf8, _all_as_utf8),
    "base64": _Preference(_as_base64, _all_as_base64),
}
