"""Usual records, decoded by columns: no Python line runs per record.

Most records have a string key or none, a value that is stored as sent, and at most a time. They are
accepted here only if nothing is wrong; `records_in` handles all others one by one and names every
fault.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Annotated, Final, cast

import msgspec
from msgspec import Raw

from app.codecs.json_parts import decoded_lines
from app.http.answers import Body
from engine.config import LogConfig
from engine.records.builder import RecordColumns
from engine.records.check import TimestampBounds
from engine.types import INT64_MAX

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
_BODY: Final = msgspec.json.Decoder(_PlainsIn)
_LINES: Final = msgspec.json.Decoder(PlainIn)


def decode_plain(
    body: Body, *, is_ndjson: bool, max_records: int
) -> Sequence[PlainIn] | Sequence[ValueIn]:
    """Return the records of a body, which may be too many; none unless all are usual."""
    try:
        if is_ndjson:
            return decoded_lines(_LINES, body, at_most=max_records)
        with suppress(msgspec.ValidationError):  # mostly in the first record
            return _VALUES.decode(body).records
        return _BODY.decode(body).records
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
