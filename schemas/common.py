"""Constrained names and numbers that several models share."""

from __future__ import annotations

import re
from typing import Annotated, Final

from pydantic import BeforeValidator, Field, WithJsonSchema
from pydantic_core import PydanticCustomError

from schemas.base import Model, Parameters

INT64_MAX: Final = 2**63 - 1
INT32_MAX: Final = 2**31 - 1

_DECIMAL: Final = re.compile(r"-?[0-9]+")


def _decimal(value: object) -> object:
    """Refuse what Python reads as an integer and others do not: `true`, `1_0`, other digits."""
    if isinstance(value, bool) or (isinstance(value, str) and _DECIMAL.fullmatch(value) is None):
        raise PydanticCustomError("int_parsing", "Input should be decimal digits")
    return value


DECIMAL: Final = BeforeValidator(_decimal)
"""One spelling of an integer on all lanes; behind the bounds of every one that is taken."""

Int64 = Annotated[int, Field(json_schema_extra={"format": "int64"})]
Count = Annotated[int, Field(ge=0, json_schema_extra={"format": "int64"})]
Offset = Annotated[int, Field(ge=0, le=INT64_MAX, json_schema_extra={"format": "int64"}), DECIMAL]
TimestampMs = Annotated[
    int,
    Field(ge=0, le=INT64_MAX, json_schema_extra={"format": "int64"}, examples=[1788000000123]),
    DECIMAL,
]
PartitionNumber = Annotated[int, Field(ge=0, le=INT32_MAX), DECIMAL]

# Numbers of a JSON read become strings with `offsets=string`: browsers lose integers beyond 2^53.
OffsetOrText = Annotated[
    int | str,
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "integer", "format": "int64"},
                {"type": "string", "pattern": "^-?[0-9]+$"},
            ]
        }
    ),
]

# Shown in the document, judged by the engine: what cannot be created cannot be found either.
TopicName = Annotated[
    str,
    Field(
        description="1 to 249 letters, digits, '.', '_' and '-'; Kafka's rule",
        examples=["flights"],
        json_schema_extra={"maxLength": 249, "pattern": "^[a-zA-Z0-9._-]+$"},
    ),
]


class Marks(Model):
    """Where a log is, from one consistent snapshot; ends are exclusive."""

    log_start_offset: Count
    high_watermark: Count
    """The end of what is flushed to disk: readers see nothing beyond it."""
    last_stable_offset: Count
    log_end_offset: Count


class PageParameters(Parameters):
    """Which page of a list in the order of names."""

    page_size: Annotated[int, Field(ge=1), DECIMAL] = 100
    page_token: Annotated[str, Field(max_length=1000)] | None = None
    """`next_page_token` of the page before."""
