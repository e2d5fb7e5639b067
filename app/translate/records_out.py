"""Stored batches to JSON: records joined from bytes, fields in an encoding that can show them."""

from __future__ import annotations

from binascii import b2a_base64
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

import msgspec

from engine.errors import CorruptBatch, InvalidRecord, StoredDataCorrupt
from engine.records.batch import BatchView
from engine.records.header import BatchHeader, TimestampType
from engine.records.record import Headers
from engine.records.scan import iter_headers
from engine.types import INT64_MAX, Buffer

Shown: TypeAlias = tuple[bytes, bytes]
"""A field as JSON, and the name of the encoding it is shown in."""

_RAW: Final = msgspec.json.Decoder(msgspec.Raw)
_encode = msgspec.json.encode
_NOT_PLAIN: Final = frozenset(b"n \t\r\n")


@dataclass(frozen=True, slots=True)
class View:
    """What of the stored batches is to be shown, and how. Ends are exclusive."""

    start: int
    end: int = INT64_MAX
    max_records: int = INT64_MAX
    max_answer_bytes: int = INT64_MAX
    limit_bytes: int = INT64_MAX
    encoding: str | None = None
    offsets_as_text: bool = False
    is_ndjson: bool = False


@dataclass(frozen=True, slots=True)
class Rendered:
    """Records as JSON objects, and where the next read starts if they did not all fit."""

    records: list[bytes]
    next_offset: int | None
    """None if everything was shown: the read's own end is the place to go on."""


def render_records(data: Buffer, view: View) -> Rendered:
    """Return the records of whole batches from `view.start` on, control batches left out.

    Raises StoredDataCorrupt if a batch is not what its header says: it was checked on the way in,
    so that is damage.
    """
    renderer = _Renderer(view)
    for position, header in iter_headers(data):
        if header.is_control or header.next_offset <= view.start:
            continue
        try:
            stopped_at = renderer.add(BatchView(data, position), header)
        except (CorruptBatch, InvalidRecord) as error:
            raise StoredDataCorrupt(
                f"the batch at offset {header.base_offset} cannot be read: {error}",
                file="",
                position=position,
                offset=header.base_offset,
            ) from error
        if stopped_at is not None:
            return Rendered(renderer.records, stopped_at)
    return Rendered(renderer.records, None)


class _Renderer:
    """Renders batch after batch until one of the view's bounds is reached."""

    def __init__(self, view: View) -> None:
        self._view = view
        self.records: list[bytes] = []
        self._size_bytes = 0
        self._keys: dict[bytes | None, Shown] = {}
        self._show_key = _PREFERRED[view.encoding or "utf8"]
        self._show_value = _PREFERRED[view.encoding or "json"]

    def add(self, batch: BatchView, header: BatchHeader) -> int | None:
        """Render one batch; return the offset to go on at if a bound was reached inside it."""
        view = self._view
        batch.ensure_intact()
        template = _template(header, offsets_as_text=view.offsets_as_text)
        records = self.records
        for offset, timestamp, key, value, headers in batch.records(limit_bytes=view.limit_bytes):
            if offset < view.start:
                continue
            if offset >= view.end:
                return view.end
            if len(records) >= view.max_records or self._size_bytes >= view.max_answer_bytes:
                return offset
            shown_key, key_encoding = self._keys.get(key) or self._key(key)
            shown_value, value_encoding = self._show_value(value)
            if view.is_ndjson and b"\n" in shown_value:
                shown_value = shown_value.replace(b"\n", b" ")
            line = template % (
                offset, timestamp, shown_key, key_encoding, shown_value, value_encoding,
                self._headers(headers) if headers else b"[]",
            )  # fmt: skip
            records.append(line)
            self._size_bytes += len(line)
        return None

    def _key(self, key: bytes | None) -> Shown:
        """Show a key; few keys repeat often, so what they look like is kept."""
        shown = self._show_key(key)
        if self._view.is_ndjson and b"\n" in shown[0]:
            shown = shown[0].replace(b"\n", b" "), shown[1]
        if len(self._keys) < 1024:
            self._keys[key] = shown
        return shown

    def _headers(self, headers: Headers) -> bytes:
        parts = []
        for name, value in headers:
            shown, encoding = self._show_key(value)
            if self._view.is_ndjson and b"\n" in shown:
                shown = shown.replace(b"\n", b" ")
            parts.append(
                b'{"key":%b,"value":%b,"encoding":"%b"}' % (_encode(name), shown, encoding)
            )
        return b"[" + b",".join(parts) + b"]"


def _template(header: BatchHeader, *, offsets_as_text: bool) -> bytes:
    """Return what all records of one batch look like but for their own fields."""
    appended = header.timestamp_type is TimestampType.LOG_APPEND_TIME
    return b"".join(
        (
            b'{"offset":"%d"' if offsets_as_text else b'{"offset":%d',
            b',"timestamp":%d,"timestamp_type":"',
            b"append" if appended else b"create",
            b'","key":%b,"key_encoding":"%b","value":%b,"value_encoding":"%b","headers":%b',
            b',"leader_epoch":%d}' % header.leader_epoch,
        )
    )


def _as_json(content: bytes | None) -> Shown:
    if content is None:
        return b"null", b"json"
    try:
        _RAW.decode(content)
        if not content.isascii():
            content.decode()  # msgspec passes strings on unread
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return _as_utf8(content)
    if content[0] in _NOT_PLAIN and content.strip() == b"null":
        return _as_utf8(content)  # these four letters are a value; null as JSON is none
    return content, b"json"


def _as_utf8(content: bytes | None) -> Shown:
    if content is None:
        return b"null", b"utf8"
    try:
        return _encode(content.decode()), b"utf8"
    except UnicodeDecodeError:
        return _as_base64(content)


def _as_base64(content: bytes | None) -> Shown:
    if content is None:
        return b"null", b"base64"
    return b'"' + b2a_base64(content, newline=False) + b'"', b"base64"


_PREFERRED: Final[Mapping[str, Callable[[bytes | None], Shown]]] = {
    "json": _as_json,
    "utf8": _as_utf8,
    "base64": _as_base64,
}
