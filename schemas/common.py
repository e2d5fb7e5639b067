"""Constrained names and numbers that several models share."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Final, Literal

from pydantic import BeforeValidator, Field
from pydantic.json_schema import SkipJsonSchema, WithJsonSchema
from pydantic_core import PydanticCustomError
from typing_extensions import TypeAliasType

from schemas.base import Parameters, ResponseModel

INT64_MAX: Final = 2**63 - 1
INT32_MAX: Final = 2**31 - 1
INT16_MAX: Final = 2**15 - 1

OFFSET_PATTERN: Final = r"^([0-9]{1,19}|earliest|latest|ts:[0-9]{1,19})$"

_DECIMAL: Final = re.compile(r"-?[0-9]+")


def _decimal(value: object) -> object:
    """Refuse what Python reads as an integer and others do not: `true`, `1_0`, other digits."""
    if isinstance(value, bool) or (isinstance(value, str) and _DECIMAL.fullmatch(value) is None):
        raise PydanticCustomError("int_parsing", "Input should be decimal digits")
    return value


DECIMAL: Final = BeforeValidator(_decimal)
"""Integers have one spelling; the pattern applies in addition to an integer's bounds."""

INT64: Final = Field(json_schema_extra={"format": "int64"})
INT32: Final = Field(json_schema_extra={"format": "int32"})

Int64 = Annotated[int, INT64]
Int32 = Annotated[int, INT32]
Count = Annotated[int, Field(ge=0), INT64]
OffsetText = Annotated[str, Field(pattern="^-?[0-9]{1,19}$")]
"""An offset as a string: browsers lose integers beyond 2^53."""

AppendedOffset = Annotated[int, Field(ge=-1, le=INT64_MAX), INT64, DECIMAL]
Offset = Annotated[int, Field(ge=0, le=INT64_MAX), INT64, DECIMAL]
LATEST: Final = -1
EARLIEST: Final = -2
"""What the names stand for in a model; the numbers are Kafka's."""
_NAMED: Final[Mapping[object, int]] = {"latest": LATEST, "earliest": EARLIEST}


def _named_offset(value: object) -> object:
    """Return the number of a name, and refuse a number that stands for one."""
    if isinstance(value, str) and value in _NAMED:
        return _NAMED[value]
    value = _decimal(value)
    if isinstance(value, int | str) and int(value) < 0:
        raise PydanticCustomError(
            "greater_than_equal", "Input should be an offset, `earliest` or `latest`"
        )
    return value


NAMED_OFFSET: Final = BeforeValidator(_named_offset)
OffsetOrEnd = Annotated[
    int,
    Field(le=INT64_MAX),
    NAMED_OFFSET,
    WithJsonSchema({"type": "integer", "format": "int64", "minimum": 0, "maximum": INT64_MAX}),
]
"""An offset, or the name of one; the document shows the number, which is what programs send."""

_FLAGS: Final[Mapping[object, bool]] = {"true": True, "false": False}


def _flag(value: object) -> object:
    """Refuse the other words that pydantic reads as booleans, such as `yes` and `on`."""
    if isinstance(value, str) and value not in _FLAGS:
        raise PydanticCustomError("bool_parsing", "Input should be `true` or `false`")
    return _FLAGS.get(value, value)


Flag = Annotated[bool, BeforeValidator(_flag)]
"""A boolean in a query."""

Bytes = Annotated[int, Field(ge=0, le=INT64_MAX), INT64, DECIMAL]
Milliseconds = Annotated[int, Field(ge=0, le=INT64_MAX), INT64, DECIMAL]
Positive = Annotated[int, Field(ge=1, le=INT64_MAX), INT64, DECIMAL]
PageSize = Annotated[int, Field(ge=1), INT32, DECIMAL]
TimestampMs = Annotated[int, Field(ge=0, le=INT64_MAX, examples=[1788000000123]), INT64, DECIMAL]

PartitionNumber = Annotated[
    int,
    Field(ge=0, le=INT32_MAX, description="Partition number; the first is 0."),
    INT32,
    DECIMAL,
]
OffsetOrName = TypeAliasType(
    "OffsetOrName",
    Annotated[
        Offset | Annotated[str, Field(pattern=OFFSET_PATTERN)],
        Field(
            description="An offset as a number or as a string of digits, `earliest`, `latest` "
            "(the high watermark) or `ts:<epoch ms>` (the first record at or after that time)."
        ),
    ],
)

# Shown in the document, judged by the engine: what cannot be created cannot be found either.
TopicName = Annotated[
    str,
    Field(
        description="Topic name: 1 to 249 letters, digits, `.`, `_` and `-` (Kafka's rule).",
        examples=["flights"],
        json_schema_extra={"maxLength": 249, "pattern": "^[a-zA-Z0-9._-]+$"},
    ),
]
TopicShown = Annotated[str, Field(description="Topic name.")]
LogId = Annotated[
    str,
    Field(
        description="`<topic id>.<leader epoch>`: identifies this log in cacheable URLs; a topic "
        "that was deleted and created again has another one.",
    ),
]
LogIdGiven = Annotated[str, Field(max_length=64)]
LeaderEpoch = Annotated[
    int,
    Field(description="Leader epoch: rises by one each time the log is truncated."),
    INT32,
]
ProducerIdShown = Annotated[int, Field(ge=0, description="Producer id."), INT64]
ProducerEpochShown = Annotated[int, Field(description="Producer epoch."), INT32]
Absent = SkipJsonSchema[None]
"""For a member of an answer that is left out, and never null, where it does not apply."""
EncodingName = Literal["json", "utf8", "base64"]
Encoding = TypeAliasType(
    "Encoding",
    Annotated[
        EncodingName,
        Field(
            description="How bytes are represented: `json`: as the JSON value they encode; "
            "`utf8`: as text; `base64`."
        ),
    ],
)
Backend = Literal["local", "kafka"]
Isolation = Literal["read_uncommitted", "read_committed"]
NextPageToken = Annotated[
    str | None,
    Field(description="Send it as `page_token` to get the next page; null on the last page."),
]


class Marks(ResponseModel):
    """The offsets of a log, all from one consistent snapshot."""

    log_start_offset: Count
    """First offset that can be read; retention and `deleteRecords` raise it."""
    high_watermark: Count
    """End of what is flushed to disk, exclusive: readers see no record from here on."""
    last_stable_offset: Count
    """End of what `read_committed` readers see, exclusive: the first open transaction, or the high
    watermark."""
    log_end_offset: Count
    """Offset that the next record gets."""


class PageParameters(Parameters):
    """Which page of a list in the order of names."""

    page_size: PageSize = 100
    """Entries per page. Default 100; more than 1,000 are never returned."""
    page_token: Annotated[str, Field(max_length=1000)] | None = None
    """`next_page_token` of the previous page. Default: none, the first page."""


class DamagedPlace(ResponseModel):
    """One damaged place in a `.log` file."""

    topic: TopicShown
    partition: PartitionNumber
    file: str
    """Name of the file in the partition's directory."""
    position: Count
    """Position in the file, in bytes, of the first byte of the damaged batch."""
    offset: Int64
    """Base offset that the damaged batch states, or the offset whose read found it; -1 if neither
    is known."""
    problem: str
    """What is wrong with the batch."""
