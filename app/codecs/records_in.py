"""JSON records to records for a batch: values stay the bytes that were sent.

msgspec's raw values keep keys and values unparsed. Most records have a string key or none, a value
that is stored as sent, and at most a time. They are decoded by columns, without a line of Python
per record, and accepted so only if nothing is wrong. All others are decoded one by one; errors are
collected and reported with the records' indexes.
"""

from __future__ import annotations

import binascii
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Annotated, Final, Literal, NoReturn, cast

import msgspec
from msgspec import Raw

from app.codecs.delivery_headers import RESERVED
from app.codecs.json_parts import (
    PIECE_BYTES,
    Array,
    count_of_lines,
    decoded_lines,
    ensure_count,
    ensure_json,
    ensure_record_count,
    json_lines,
    record_elements,
    without_bom,
)
from app.errors import MAX_ERRORS_LISTED, ExpiredTimestamp, MalformedRequest, malformed_json
from app.http.answers import Body
from engine.config import LogConfig
from engine.errors import InvalidRecord, InvalidTimestamp
from engine.records.builder import NewRecord, RecordColumns
from engine.records.check import TimestampBounds
from engine.types import INT64_MAX, Buffer

Timestamp = Annotated[int, msgspec.Meta(ge=0, le=INT64_MAX)]

_NULL: Final = b"null"


class ValueIn(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    """A usual record with nothing else."""

    value: Raw


class PlainIn(msgspec.Struct, forbid_unknown_fields=True, kw_only=True, gc=False):
    """A usual record, with its fields in the order in which most clients write them."""

    key: str | None = None
    value: Raw
    timestamp: Timestamp | None = None


class _ValuesIn(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    records: list[ValueIn]


class _PlainsIn(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    records: list[PlainIn]


_VALUES: Final = msgspec.json.Decoder(_ValuesIn)
_PLAIN_BODY: Final = msgspec.json.Decoder(_PlainsIn)
_PLAIN_LINES: Final = msgspec.json.Decoder(PlainIn)


def decode_plain(
    body: Body, *, is_ndjson: bool, max_records: int
) -> Sequence[PlainIn] | Sequence[ValueIn]:
    """Return the records of a body, which may be too many; none unless all are usual."""
    try:
        if is_ndjson:
            return decoded_lines(_PLAIN_LINES, body, at_most=max_records)
        with suppress(msgspec.ValidationError):  # mostly in the first record
            return _VALUES.decode(body).records
        return _PLAIN_BODY.decode(body).records
    except (msgspec.DecodeError, RecursionError):
        return ()


def plain_columns(
    records: Sequence[PlainIn] | Sequence[ValueIn],
    bounds: TimestampBounds,
    *,
    now_ms: int,
    config: LogConfig,
) -> RecordColumns | None:
    """Return records ready for a batch; None if there is none, or one needs a closer look."""
    if not records:
        return None
    values = [record.value for record in records]
    if len(_NULL) in set(map(len, values)) and _NULL in map(bytes, values):
        return None
    keys: Sequence[bytes | None] = [None] * len(values)
    times: Sequence[int] | None = [now_ms] * len(values)
    if isinstance(records[0], PlainIn):
        plain = cast("Sequence[PlainIn]", records)
        keys = _encoded([record.key for record in plain])
        times = _within([record.timestamp for record in plain], bounds, now_ms)
    if config.is_compacted and None in keys:
        return None
    if times is None:
        return None
    return RecordColumns(times, keys, cast("list[memoryview]", values))  # a raw value is a buffer


def _encoded(keys: list[str | None]) -> Sequence[bytes | None]:
    absent = keys.count(None)
    if absent == len(keys):
        return [None] * absent
    if not absent:
        return list(map(str.encode, cast("list[str]", keys)))
    return [None if key is None else key.encode() for key in keys]


def _within(times: list[int | None], bounds: TimestampBounds, now_ms: int) -> Sequence[int] | None:
    """Return all times, `now_ms` where there is none; None if one is out of bounds."""
    absent = times.count(None)
    if absent == len(times):
        return [now_ms] * absent
    sent = [time for time in times if time is not None]
    if not bounds.earliest <= min(sent) <= max(sent) <= bounds.latest:
        return None
    return sent if not absent else [now_ms if time is None else time for time in times]


Encoding = Literal["json", "utf8", "base64"]

_ABSENT: Final = Raw()
_UNBOUNDED: Final = TimestampBounds(0, INT64_MAX)
_LEAST_BYTES: Final = len("{},")
_FEW_BYTES: Final = 1024
"""Bodies up to this size have too few records for the columns."""

EXPIRED: Final = "expired_timestamp"

_RESERVED: Final = (
    "the service writes this header; leave it out, and send the id of a delivery in Idempotency-Key"
)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND: Final = timedelta(milliseconds=1)
_RFC_3339: Final = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt ][0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]{1,9})?"
    r"(?:[Zz]|[+-][0-9]{2}:[0-9]{2})"
)
_QUOTE: Final = ord('"')
_BACKSLASH: Final = ord("\\")


class HeaderIn(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    """One header of a record as sent."""

    key: str
    value: Raw
    encoding: Encoding | None = None


class RecordIn(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    """One record as sent; an absent key or value is an empty `Raw`."""

    value: Raw = _ABSENT
    key: Raw = _ABSENT
    timestamp: Timestamp | str | None = None
    headers: list[HeaderIn] | None = None
    key_encoding: Encoding | None = None
    value_encoding: Encoding | None = None


class RecordsIn(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    """The body of a JSON append."""

    records: list[RecordIn]


class _RawRecordsIn(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    records: list[Raw]


class _AnyArray(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    records: Array


_BODY: Final = msgspec.json.Decoder(RecordsIn)
_LINES: Final = msgspec.json.Decoder(RecordIn)
_RAW_BODY: Final = msgspec.json.Decoder(_RawRecordsIn)
_ANY_ARRAY: Final = msgspec.json.Decoder(_AnyArray)
_TEXT: Final = msgspec.json.Decoder(str)
_RAW_LINES: Final = msgspec.json.Decoder(Raw)
_AT: Final = " - at `$."
_NAMED: Final = re.compile(r"^Object (?:contains unknown|missing required) field `(.*)`$")


def read_records(
    body: Body, *, is_ndjson: bool, max_records: int, now_ms: int, config: LogConfig
) -> list[NewRecord] | RecordColumns:
    """Return the records of a body, ready for a batch of a topic with this configuration.

    Raises MalformedRequest if it is not JSON in UTF-8, InvalidRecord if it contains no or invalid
    records, TooLarge beyond `max_records`, before they are decoded, and what `new_records` raises.
    """
    body = without_bom(body)
    try:
        str(body, "utf-8")  # raw values are never parsed: this is the only check of their bytes
        # How many records there may be: one a line, or any number that is allowed.
        lines = count_of_lines(body) if is_ndjson else max_records
        if len(body) > _LEAST_BYTES * max_records:  # else there cannot be too many
            if not is_ndjson:
                ensure_record_count(body, max_records=max_records)
            elif lines > max_records and body.count(b"{") > max_records:
                ensure_count(lines, max_records=max_records)
        if len(body) > _FEW_BYTES:
            plain = decode_plain(body, is_ndjson=is_ndjson, max_records=max_records)
            if len(plain) <= lines:
                bounds = _Rules(config, now_ms).kept_bounds
                columns = plain_columns(plain, bounds, now_ms=now_ms, config=config)
                if columns is not None:
                    return columns
        records: Sequence[RecordIn] = (
            # They may be more than `max_records`, if lines have several.
            decoded_lines(_LINES, body, at_most=max_records)
            if is_ndjson
            else _BODY.decode(body).records
        )
    except msgspec.ValidationError:
        _refuse_body(body, _Rules(config, now_ms), is_ndjson=is_ndjson, max_records=max_records)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        _find_wrong_line(body, is_ndjson=is_ndjson, max_records=max_records)
        raise malformed_json(body, error) from None
    except RecursionError:
        raise MalformedRequest("the body is nested too deeply") from None
    if not records:
        raise InvalidRecord("the body contains no record")
    if len(records) > lines:
        json_lines(body, max_records=max_records)  # raises: a line has several values
    return new_records(records, now_ms=now_ms, config=config)


def _find_wrong_line(body: Body, *, is_ndjson: bool, max_records: int) -> None:
    """Raise MalformedRequest for the line of a large body that is not JSON."""
    if is_ndjson and len(body) > PIECE_BYTES:  # the error counts bytes from somewhere inside
        json_lines(body, max_records=max_records)


def new_records(records: Sequence[RecordIn], *, now_ms: int, config: LogConfig) -> list[NewRecord]:
    """Return the records ready for a batch of a topic with this configuration.

    Raises InvalidTimestamp if only times are wrong, otherwise InvalidRecord; both list the records
    concerned, and nothing is written.
    """
    made: list[NewRecord] = []
    faults: list[dict[str, object]] = []
    rules = _Rules(config, now_ms)
    for index, record in enumerate(records):
        try:
            made.append(_new_record(record, rules))
        except _Fault as fault:
            faults.append(fault.at(index))
            if len(faults) == MAX_ERRORS_LISTED:
                break
    if faults:
        _refuse(faults, config)
    return made


class _Rules:
    """The topic's requirements for records, and the time of those without one."""

    __slots__ = ("_bounds", "_kept_from_ms", "config", "now_ms", "requires_keys")

    def __init__(self, config: LogConfig, now_ms: int) -> None:
        self.config = config
        self._bounds: TimestampBounds | None = None
        self._kept_from_ms: int | None = None
        self.now_ms = now_ms
        self.requires_keys = config.is_compacted

    @property
    def bounds(self) -> TimestampBounds:
        """The accepted times; computed when the first record with a time needs them."""
        if self._bounds is None:
            config = self.config
            timed = timestamp_bounds(config, self.now_ms)
            self._bounds = _UNBOUNDED if config.uses_append_time else timed
        return self._bounds

    @property
    def kept_from_ms(self) -> int:
        """Older records would be removed by the next retention pass."""
        if self._kept_from_ms is None:
            self._kept_from_ms = _kept_from(self.config, self.now_ms)
        return self._kept_from_ms

    @property
    def kept_bounds(self) -> TimestampBounds:
        """The times that are accepted and kept."""
        bounds = self.bounds
        return bounds._replace(earliest=max(bounds.earliest, self.kept_from_ms))


def _kept_from(config: LogConfig, now_ms: int) -> int:
    if config.uses_append_time or config.retention_ms < 0 or not config.deletes:
        return 0
    return max(0, now_ms - config.retention_ms)


def _new_record(record: RecordIn, rules: _Rules) -> NewRecord:
    """Return one record ready for a batch, or raise its error."""
    key = _content(record.key, record.key_encoding, "key")
    if key is None and rules.requires_keys:
        _refuse_null_key()
    value = _value(record)
    headers = _headers(record.headers) if record.headers else ()
    timestamp = record.timestamp
    if timestamp is None:
        return rules.now_ms, key, value, headers
    if isinstance(timestamp, str):
        timestamp = _milliseconds(timestamp)
    bounds = rules.bounds
    if not bounds.earliest <= timestamp <= bounds.latest:
        _refuse_timestamp(timestamp, bounds)
    if timestamp < rules.kept_from_ms:
        raise _Fault("timestamp", EXPIRED, f"timestamp {timestamp} is before {rules.kept_from_ms}")
    return timestamp, key, value, headers


def timestamp_bounds(config: LogConfig, now_ms: int) -> TimestampBounds:
    """Return the times that a topic accepts now."""
    return TimestampBounds.around(
        now_ms,
        before_max_ms=config.message_timestamp_before_max_ms,
        after_max_ms=config.message_timestamp_after_max_ms,
    )


class _Fault(Exception):
    """An error in one field of a record."""

    def __init__(self, field: str | None, code: str, detail: str) -> None:
        super().__init__(detail)
        self.field = field
        self.code = code

    def at(self, index: int | None) -> dict[str, object]:
        return {"index": index, "field": self.field, "code": self.code, "detail": str(self)}


def _milliseconds(text: str) -> int:
    """Return the epoch milliseconds of an RFC 3339 time, rounded down."""
    if _RFC_3339.fullmatch(text):
        with suppress(ValueError, OverflowError):
            milliseconds = (datetime.fromisoformat(text.upper()) - _EPOCH) // _MILLISECOND
            if milliseconds >= 0:
                return milliseconds
    raise _Fault(
        "timestamp", "invalid_record", "a time is epoch milliseconds or an RFC 3339 string"
    )


def _value(record: RecordIn) -> bytes | None:
    """Return the stored bytes of the value: as sent, unless an encoding is given."""
    raw = bytes(record.value)
    if not raw:
        raise _Fault("value", "missing", "the record has no value; null makes a tombstone")
    if raw == _NULL:
        return None
    encoding = record.value_encoding
    if encoding is None or encoding == "json":
        return raw
    return _DECODERS[encoding](raw, "value")


def _content(field: Raw, encoding: Encoding | None, name: str) -> bytes | None:
    """Return the bytes of a key or header value: a string's text, anything else as its JSON."""
    raw = bytes(field)
    if not raw or raw == _NULL:
        return None
    if encoding is None:
        return _text(raw, name) if raw[0] == _QUOTE else raw
    return _DECODERS[encoding](raw, name)


def _headers(headers: Sequence[HeaderIn]) -> list[tuple[str, bytes | None]]:
    made = []
    for index, header in enumerate(headers):
        field = f"headers[{index}]"
        if header.key in RESERVED:
            raise _Fault(field, "reserved_header", _RESERVED)
        made.append((header.key, _content(header.value, header.encoding, field)))
    return made


def _text(raw: bytes, field: str) -> bytes:
    if raw[0] != _QUOTE:
        raise _Fault(field, "not_a_string", "utf8 and base64 need a JSON string")
    if _BACKSLASH not in raw:
        return raw[1:-1]
    return _TEXT.decode(raw).encode()


def _base64(raw: bytes, field: str) -> bytes:
    try:
        return binascii.a2b_base64(_text(raw, field), strict_mode=True)
    except binascii.Error as error:
        raise _Fault(field, "not_base64", f"not base64: {error}") from None


def _json(raw: bytes, _field: str) -> bytes:
    return raw


_DECODERS: Final[Mapping[str, Callable[[bytes, str], bytes]]] = {
    "json": _json,
    "utf8": _text,
    "base64": _base64,
}


def _raw_records(body: Body, *, is_ndjson: bool, max_records: int) -> Sequence[Buffer]:
    """Return the bytes of each record; raises TooLarge for too many in a large body."""
    if len(body) <= PIECE_BYTES:
        return _RAW_LINES.decode_lines(body) if is_ndjson else _RAW_BODY.decode(body).records
    if is_ndjson:
        return json_lines(body, max_records=max_records)
    _ANY_ARRAY.decode(body)  # raises for what is wrong around the records
    return record_elements(body, max_records=max_records)


def _refuse_body(body: Body, rules: _Rules, *, is_ndjson: bool, max_records: int) -> NoReturn:
    """Refuse a body with at least one malformed record; list all errors.

    Raises MalformedRequest if a record is not even JSON.
    """
    faults: list[dict[str, object]] = []
    try:
        raws = _raw_records(body, is_ndjson=is_ndjson, max_records=max_records)
        for index, raw in enumerate(raws):
            try:
                _new_record(_LINES.decode(raw), rules)
            except msgspec.ValidationError as error:
                faults.append(_misformed(error).at(index))
            except _Fault as fault:
                faults.append(fault.at(index))
            if len(faults) == MAX_ERRORS_LISTED:
                break
    except msgspec.ValidationError as error:  # of the members around the records
        ensure_json(body)  # of JSON lines the first would be refused as if it were the body
        entry = _misformed(error).at(None)
        what = 'the body is JSON, but not a body of an append; send {"records": [{"value": …}]}'
        raise InvalidRecord(what, [entry]) from None
    except msgspec.DecodeError as error:
        raise malformed_json(body, error) from None
    _refuse(faults, rules.config)


def _misformed(error: msgspec.ValidationError) -> _Fault:
    """Translate msgspec's sentence, which names a field or ends in the JSON path to it."""
    sentence, _, path = str(error).partition(_AT)
    named = _NAMED.search(sentence)
    fields = [path.removesuffix("`"), named[1] if named else ""]
    return _Fault(".".join(filter(None, fields)) or None, "invalid_record", sentence)


def _refuse_null_key() -> NoReturn:
    raise _Fault("key", "invalid_record", "a compacted topic needs keys")


def _refuse_timestamp(timestamp: int, bounds: TimestampBounds) -> NoReturn:
    raise _Fault(
        "timestamp",
        "invalid_timestamp",
        f"timestamp {timestamp} is not within {bounds.earliest} to {bounds.latest}",
    )


def _refuse(faults: Sequence[Mapping[str, object]], config: LogConfig) -> NoReturn:
    codes = {fault["code"] for fault in faults}
    told = f"nothing was written; records that are not acceptable: {len(faults)}"
    if codes == {EXPIRED}:
        raise ExpiredTimestamp(
            f"{told}, which retention.ms ({config.retention_ms}) of the topic would remove at its "
            "next pass: send times in milliseconds, leave them out, or raise retention.ms (-1 "
            "keeps everything)",
            faults,
            retention_ms=config.retention_ms,
        )
    if codes <= {EXPIRED, "invalid_timestamp"}:
        raise InvalidTimestamp(f"{told}, with a time outside the topic's bounds", faults)
    raise InvalidRecord(told, faults)
