"""Parameters and pages of a read."""

from __future__ import annotations

from typing import Annotated, Generic, Literal, TypeVar

from pydantic import BeforeValidator, Field, JsonValue

from schemas.base import Parameters, ResponseModel
from schemas.common import (
    DECIMAL,
    INT64,
    OFFSET_PATTERN,
    Absent,
    Bytes,
    Encoding,
    Flag,
    Int32,
    Int64,
    Isolation,
    LeaderEpoch,
    LogIdGiven,
    OffsetOrEnd,
    OffsetText,
    PartitionNumber,
    Positive,
    TopicShown,
)

StartOffset = Annotated[str, Field(pattern=OFFSET_PATTERN, examples=["0"])]
TopicStart = Annotated[
    str, Field(pattern=r"^(earliest|latest|ts:[0-9]{1,19})$", examples=["latest"])
]
OutOfRange = Literal["error", "earliest", "latest"]
OffsetForm = Literal["number", "string"]
FilterText = Annotated[str, Field(max_length=2_000, examples=['header.tenant = "7"'])]
N = TypeVar("N")
R = TypeVar("R")


class ReadParameters(Parameters):
    """Where a read starts, how far it goes and how long it waits."""

    offset: StartOffset = "earliest"
    """Where to start: an offset, `earliest`, `latest` (the high watermark; with `read_committed`
    the last stable offset) or `ts:<epoch ms>` (the first record at or after that time). Default
    `earliest`."""
    max_bytes: Bytes | None = None
    """Upper bound for stored bytes in the response; one whole batch is returned even if it is
    larger. Default: `default_fetch_bytes` of `/v1/limits` (1 MiB)."""
    min_bytes: Bytes = 1
    """Long poll: respond as soon as this many bytes can be read. Default 1."""
    max_wait_ms: Annotated[int, Field(ge=0), INT64, DECIMAL] = 0
    """Long poll: milliseconds to wait for `min_bytes`, at most 60,000. Default 0, no wait."""
    end_offset: OffsetOrEnd | None = None
    """Where to stop, exclusive; `earliest` and `latest` are the log start and the end of what is
    visible now. Default: none, read to the end of what is visible."""
    isolation: Isolation = "read_uncommitted"
    """`read_committed` leaves out records of open and aborted transactions. Default
    `read_uncommitted`."""
    on_out_of_range: OutOfRange = "error"
    """Where to start if `offset` is outside the log: fail with 410 or 416 (`error`), `earliest` or
    `latest`. Default `error`."""
    log_id: LogIdGiven | None = None
    """`log_id` of the log to read; 409 if the log was replaced since. Default: none, not
    checked."""
    explain: Annotated[Flag, BeforeValidator(lambda text: text == "1" or text)] = False
    """`true`, or `1`, adds the header `Log-Explain`: which segment was read and why the response
    ended. Default `false`."""
    stream: Flag = False
    """`true` sends everything up to `end_offset`, or up to the end of what is visible when the
    request arrives, in one chunked response; `max_bytes` bounds each read. If the response ends
    without its last chunk, it is incomplete. Not with `max_records`, `min_bytes`, `max_wait_ms` and
    `explain`. Default `false`, one page."""


class ReadRecordsParameters(ReadParameters):
    """What reads of records take besides."""

    max_records: Positive | None = None
    """Upper bound for records in the response. Default: `default_fetch_records` of `/v1/limits`."""
    encoding: Encoding | None = None
    """Preferred encoding of keys, values and header values; a field that does not fit falls back
    from `json` to `utf8` to `base64`. Default: `utf8` for keys and headers, `json` for values."""
    last: Annotated[int, Field(ge=1, le=100_000), INT64, DECIMAL] | None = None
    """Where to start, instead of `offset`: so many offsets before the end; a log with gaps has
    fewer records there. Default: none."""
    filter: FilterText | None = None
    """Which records to return, such as `header.tenant = "7" and value/amount >= 100`; what is
    passed over counts for `max_bytes`, so a page may be empty and have a next one. Default: all."""
    format: Literal["json", "ndjson", "arrow"] | None = None
    """Media type of the response, for clients that cannot send `Accept`. Default: as `Accept`
    says."""
    offsets: OffsetForm = "number"
    """`string` returns offsets as JSON strings, for browsers, as the media type
    `application/json;offsets=string`. Default `number`."""


class HeaderOut(ResponseModel):
    """One header of a record."""

    key: str
    """Header name."""
    value: JsonValue
    """Header value in `encoding`."""
    encoding: Encoding
    """Encoding of `value`."""


class RecordOf(ResponseModel, Generic[N]):
    """One record; each field says in which encoding it is shown."""

    offset: N
    """Offset of the record."""
    timestamp: Int64
    """Epoch milliseconds; -1 if the record has no time."""
    timestamp_type: Literal["create", "append"]
    """`create`: set by the producer; `append`: the time of the append."""
    key: JsonValue
    """Key in `key_encoding`; null for a null key."""
    key_encoding: Encoding
    """Encoding of `key`."""
    value: JsonValue
    """Value in `value_encoding`; null for a tombstone."""
    value_encoding: Encoding
    """Encoding of `value`."""
    headers: list[HeaderOut]
    """Record headers, in order."""
    leader_epoch: LeaderEpoch


class RecordOut(RecordOf[Int64]):
    """One record; each field says in which encoding it is shown."""


class RecordOutWithStringOffset(RecordOf[OffsetText]):
    """One record, as `offsets=string` shows it."""


class RecordsOf(ResponseModel, Generic[R, N]):
    """Records and where to read on."""

    topic: TopicShown
    partition: PartitionNumber
    records: list[R]
    """Records in the order of their offsets; empty if there is nothing to read."""
    next_offset: N
    """Offset to read on from; it advances past control batches and compaction gaps too."""


class PageOf(RecordsOf[R, N], Generic[R, N]):
    """Records, where to read on, and where the log is."""

    log_start_offset: N
    """First offset that can be read."""
    high_watermark: N
    """End of what is flushed to disk, exclusive."""
    last_stable_offset: N
    """End of what `read_committed` readers see, exclusive."""
    log_end_offset: N
    """Offset that the next record gets."""
    leader_epoch: LeaderEpoch


class StayingPageOf(RecordsOf[R, N], Generic[R, N]):
    """Records and where to read on; an immutable page says nothing of where the log is."""

    log_start_offset: N | Absent = None
    """First offset that can be read; not in an immutable page."""
    high_watermark: N | Absent = None
    """End of what is flushed to disk, exclusive; not in an immutable page."""
    last_stable_offset: N | Absent = None
    """End of what `read_committed` readers see, exclusive; not in an immutable page."""
    log_end_offset: N | Absent = None
    """Offset that the next record gets; not in an immutable page."""
    leader_epoch: Int32 | Absent = None
    """Leader epoch of the log; not in an immutable page."""


class RecordPage(StayingPageOf[RecordOut, Int64]):
    """Records and where to read on."""


class RecordPageWithStringOffsets(StayingPageOf[RecordOutWithStringOffset, OffsetText]):
    """Records and where to read on, as `offsets=string` shows them."""
