"""Parameters and pages of a read."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, JsonValue

from schemas.base import Model, Parameters
from schemas.common import DECIMAL, INT64_MAX, Int64, Offset, OffsetOrText, PartitionNumber
from schemas.produce import Encoding

OFFSET_PATTERN = r"^([0-9]{1,19}|earliest|latest|ts:[0-9]{1,19})$"


class ReadParameters(Parameters):
    """Where a read starts, how far it goes and how long it waits."""

    offset: Annotated[str, Field(pattern=OFFSET_PATTERN, examples=["0"])] = "earliest"
    """A number, `earliest`, `latest` (the high watermark) or `ts:<ms>`."""
    max_bytes: Annotated[int, Field(ge=0, le=INT64_MAX), DECIMAL] | None = None
    """Bytes of stored batches; one whole batch is returned even if it is larger."""
    min_bytes: Annotated[int, Field(ge=0, le=INT64_MAX), DECIMAL] = 1
    """With `max_wait_ms`: wait until so many bytes can be read."""
    max_wait_ms: Annotated[int, Field(ge=0), DECIMAL] = 0
    """The long poll: how long to wait for `min_bytes`."""
    end_offset: Offset | None = None
    """Exclusive."""
    isolation: Literal["read_uncommitted", "read_committed"] = "read_uncommitted"
    on_out_of_range: Literal["error", "earliest", "latest"] = "error"
    log_id: Annotated[str, Field(max_length=64)] | None = None
    """The log this read is about; another log under the same name is 409."""
    explain: Literal["0", "1"] = "0"
    """Tell in `Log-Explain` which segment was read and why the answer ended."""


class ReadRecordsParameters(ReadParameters):
    """What JSON reads take besides."""

    max_records: Annotated[int, Field(ge=1, le=INT64_MAX), DECIMAL] | None = None
    encoding: Encoding | None = None
    """Preferred for keys, values and header values; what cannot be shown so falls back."""
    offsets: Literal["number", "string"] = "number"
    """Offsets as strings, for browsers."""


class HeaderOut(Model):
    """One header of a record."""

    key: str
    value: JsonValue
    encoding: Encoding


class RecordOut(Model):
    """One record as JSON; each field says in which encoding it is shown."""

    offset: OffsetOrText
    timestamp: Int64
    timestamp_type: Literal["create", "append"]
    key: JsonValue
    key_encoding: Encoding
    value: JsonValue
    value_encoding: Encoding
    headers: list[HeaderOut]
    leader_epoch: Int64


class RecordPage(Model):
    """Records and where to go on."""

    topic: str
    partition: PartitionNumber
    records: list[RecordOut]
    next_offset: OffsetOrText
    log_start_offset: OffsetOrText
    high_watermark: OffsetOrText
    last_stable_offset: OffsetOrText
    log_end_offset: OffsetOrText
    leader_epoch: Int64
